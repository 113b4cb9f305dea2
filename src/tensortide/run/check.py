"""A search for what a live budget cannot see: unseen writes, and ops that do not repeat (``budget(check=True)``)."""

from __future__ import annotations

import ctypes
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensortide.errors import RunError
from tensortide.recorder.code_paths import is_internal
from tensortide.run.block import PENDING, Block, Recomputable, Storage, address_of, stored, tensors_of
from tensortide.run.writers import written_unseen
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.run.operators import Operator
    from tensortide.run.runtime import Runtime

_INSTEAD = (
    "Probably a NumPy array or native code that shares its memory has. Write it through PyTorch (tensor.copy_(...)), "
    "ask for its address right before (tensor.numpy(), data_ptr()), let what writes be an op that says so "
    "(torch.library.custom_op with mutates_args=), or write it outside of `with tensortide.budget(...)`"
)


class Seal(NamedTuple):
    """Checksum of the contents of a storage, a description of them, and the last op that used them."""

    checksum: int
    what: str
    last: str


class Checker:
    """Compares what is in memory with what was there when an op had it last, and with what recomputation gives.

    Of every ``every``-th storage the contents are known. They are compared whenever an op uses the storage or what was
    made of it, after the op unless it declares to write it, before it is evicted, and at the end. New results are
    computed a second time. Bytes that a kernel returns beside other results are left out: those of recurrent layers are
    scratch, which their gradients write. The first difference that could change a result raises RunError.
    """

    def __init__(self, runtime: Runtime, every: int) -> None:
        self.runtime, self.every = runtime, every
        self._found = 0
        runtime.watchers.append(self.around)
        runtime.engine.listeners.append(self._heard)

    def around(
        self, action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Do ``action``, an op of the program."""
        if operator.view:
            return action(operator, args, kwargs)
        runtime = self.runtime
        op = f"{operator.func} at {_line()} (op {runtime.engine.ops:,})"
        runtime.promote()
        used = self._blocks((*args, *kwargs.values()))
        for block in dict.fromkeys([*used, *self._sources(used)]):
            self._compare(block, f"{{last}} and {op}")
        sealed = {block for block in used if block.seal is not None}
        result = action(operator, args, kwargs)
        for block, tensor in used.items():
            self._compare(block, f"the start and the end of {op}")
            written = block in sealed and block.seal is None
            given = "from outside of PyTorch's ops" if block.given else f"as {op} read it"
            origin = f"as {op} left it" if written else given
            self._seal(block, tensor, origin, op)
        made = {block: tensor for block, tensor in self._blocks((result,)).items() if block not in used}
        for block, tensor in made.items():
            if tensor.dtype != torch.uint8 or len(made) == 1:
                self._seal(block, tensor, f"the result of {op}", op)
        if not operator.written:
            self._repeat([block for block in made if block.seal is not None])
        return result

    def finish(self) -> None:
        """Compare everything that the program still holds."""
        self.runtime.promote()
        for value in list(self.runtime.known.values()):
            self._compare(value.block, "{last} and the end of the budget")

    def _heard(self, kind: int, index: int) -> None:
        memory = self.runtime.engine.memories[index] if kind == Kind.EVICT else None
        if memory is not None:
            self._compare(memory, "{last} and its eviction")

    def _blocks(self, values: Iterable[Any]) -> dict[Block, torch.Tensor]:
        found: dict[Block, torch.Tensor] = {}
        for tensor in stored(tensors_of(values)):
            try:
                found.setdefault(self.runtime.storages.value(tensor).block, tensor)
            except NotImplementedError:  # it has no memory
                continue
        return found

    def _sources(self, blocks: Iterable[Block]) -> list[Block]:
        """Storages that may have to be read to recompute ``blocks``."""
        engine = self.runtime.engine
        numbers = dict.fromkeys(
            near for block in blocks if block.storage != PENDING for near in engine.parents[block.storage]
        )
        return [memory for near in numbers if (memory := engine.memories[near]) is not None]

    def _bytes(self, block: Block) -> Storage | None:
        """The contents of ``block``, if the latest are resident."""
        engine, storage = self.runtime.engine, block.storage
        if storage != PENDING and not engine.defined[engine.newest(storage)]:
            return None
        return block.own if block.own is not None else block()

    def _seal(self, block: Block, tensor: torch.Tensor, origin: str, op: str) -> None:
        old = block.seal
        if written_unseen(block):
            block.seal = None  # nothing is made of it again
        elif old is None:
            self._found += 1
            contents = self._bytes(block) if self._found % self.every == 0 else None
            if contents is not None and block.key not in self.runtime.unfilled.found:
                block.seal = Seal(_checksum(contents), f"{_form(tensor)}, {origin}", op)
        else:
            block.seal = old._replace(last=op)

    def _compare(self, block: Block, between: str) -> None:
        """Raise RunError if somebody has written to ``block`` unseen, ``between`` two ops, and a result depends on
        it."""
        contents = self._bytes(block) if block.seal is not None else None
        if block.seal is None or contents is None:
            return
        before, what, last = block.seal
        if _checksum(contents) == before:
            return
        block.seal = None
        if not self._matters(block):
            return
        raise RunError(
            f"{what}, was overwritten unseen between {between.format(last=last)}: no op of PyTorch has written it, and "
            f"a memory budget may recompute it, or what was made of it, as if nothing had happened. {_INSTEAD}."
        )

    def _matters(self, block: Block) -> bool:
        engine, storage = self.runtime.engine, block.storage
        return storage == PENDING or not engine.fixed[storage] or bool(engine.held_below([storage]))

    def _repeat(self, made: Sequence[Block]) -> None:
        """Raise RunError if the op that made ``made`` gives something else a second time."""
        engine = self.runtime.engine
        calls: dict[Recomputable, None] = {}
        for block in made:
            storage = block.storage
            if storage != PENDING and not engine.fixed[storage]:
                call = engine.calls[engine.op_of[engine.newest(storage)]]
                if call is not None and all(value is None or self._bytes(value.block) for value in call.inputs):
                    calls[call] = None
        for call in calls:
            again, _ = call.recompute(self.runtime.clock)
            for value, contents in again.items():
                memory = engine.memories[engine.storage[value]]
                seal = memory.seal if memory is not None else None
                if seal is not None and _checksum(contents) != seal.checksum:
                    raise RunError(
                        f"an op does not repeat: {seal.what}, differs when it is computed a second time from "
                        "the same inputs. It depends on something that a memory budget does not see (a random "
                        "generator of another library, a counter), or its kernel is not deterministic "
                        "(torch.use_deterministic_algorithms). Run it outside of `with tensortide.budget(...)`"
                    )


def _checksum(contents: Storage) -> int:
    """A number that another content of ``contents`` is most unlikely to have."""
    if contents.device.type != "cpu":
        contents = contents.cpu()
    nbytes = contents.nbytes()
    return zlib.crc32((ctypes.c_char * nbytes).from_address(address_of(contents))) if nbytes else 0


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"


def _line() -> str:
    """The line of the program that runs."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
