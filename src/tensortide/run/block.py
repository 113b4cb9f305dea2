"""Storages of the program, their values, and the calls that made these and can recompute them.

Arguments of calls have holes where tensors go, so that no tensor is kept alive.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from tensortide.recorder.torch_compat import DispatchKey, set_grad_enabled
from tensortide.run.evicted import evict, exchange
from tensortide.run.torch_compat import (
    BelowAutograd,
    NoAutocast,
    NoModes,
    conjugate_view,
    is_excluded,
    negative_view,
    owners_of_storage,
)

if TYPE_CHECKING:
    from tensortide.run.check import Seal
    from tensortide.run.writers import Writers

Storage = torch.UntypedStorage
storage_of, address_of = torch.Tensor.untyped_storage, torch.UntypedStorage.data_ptr
"""As they were before anybody replaced them."""
_EXACT = frozenset({int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_PLAIN = frozenset({*_EXACT, bool, float, complex, list, tuple})
ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})


class Hole(NamedTuple):
    """A tensor argument: its place among the tensors of the call, and how it views its storage."""

    place: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugated: bool
    negative: bool


Template: TypeAlias = Any
"""A value with Holes for tensors; lists and tuples keep their kind."""
_new = tuple.__new__
_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COLUMNS),
}
"""Parts of sparse tensors."""


def frozen(values: Iterable[Any], tensors: list[torch.Tensor], marks: list[Any]) -> list[Template]:
    """``values`` with holes; their tensors are appended to ``tensors``, and to ``marks`` what tells apart calls of one
    op that allocate different memory: all but the values of numbers that are no integers."""
    found: list[Template] = []
    for value in values:
        kind = type(value)
        if kind in ORDINARY or (kind not in _PLAIN and isinstance(value, torch.Tensor)):
            hole = _hole(value, len(tensors))
            tensors.append(value)
            marks.append(hole)
            found.append(hole)
        elif kind in _EXACT:
            marks.append(value)
            found.append(value)
        elif kind is list or kind is tuple:
            if type(value[0] if value else 0) is int:  # then all of them are
                marks.append(tuple(value))
                found.append(value)
            else:
                marks.append(len(value))
                found.append(kind(frozen(value, tensors, marks)))
        else:
            marks += (kind, value) if kind is bool else (kind,)
            found.append(value)
    return found


def _hole(t: torch.Tensor, place: int) -> Hole:
    return _new(Hole, (place, t.dtype, t.size(), t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()))


def thawed(template: Template, storages: Sequence[Storage | None]) -> Any:
    """``template`` with tensors over ``storages``, one for each place; where there is none, what is in them does not
    matter."""
    if isinstance(template, Hole):
        storage = storages[template.place]
        return view(template, storage) if storage is not None else _scratch(template, storages)
    kind = type(template)
    if kind is list or kind is tuple:
        return kind([thawed(item, storages) for item in template])
    return template


def view(hole: Hole, storage: Storage) -> torch.Tensor:
    """The tensor that ``hole`` describes."""
    _, dtype, size, stride, offset, conjugated, negative = hole
    tensor = _empty(dtype, storage.device).detach().set_(storage, offset, size, stride)
    if conjugated:
        tensor = conjugate_view(tensor)
    return negative_view(tensor) if negative else tensor


@functools.cache
def _empty(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An ordinary tensor without memory; a copy of it takes half the time that another one from the start does."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=dtype, device=device)


def _scratch(hole: Hole, storages: Sequence[Storage | None]) -> torch.Tensor:
    """A tensor whose contents do not matter: running statistics, say."""
    device = next(other.device for other in storages if other is not None)
    return _empty(hole.dtype, device).new_empty(hole.size)


def tensors_of(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors in arguments or results, in order."""
    found: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        if kind in ORDINARY or (kind not in _EXACT and isinstance(value, torch.Tensor)):
            found.append(value)
        elif kind is list or kind is tuple:
            found += tensors_of(value)
    return found


def stored(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """``tensors``; instead of sparse ones, which have no storage, what they consist of; without zeros that have a
    size but no memory."""
    found: list[torch.Tensor] = []
    for tensor in tensors:
        if tensor.layout is torch.strided:
            found += [] if tensor._is_zerotensor() else [tensor]
        else:
            found += [getattr(tensor, part)() for part in _PARTS.get(tensor.layout, ())]
    return found


PENDING = -1
"""Number of a storage that has not been reported to the engine."""
ABOVE = DispatchKey.Functionalize
"""A key like autograd and autocast: the handlers of dispatch modes run with all of these off already."""


class Block(weakref.ref[Any]):
    """A weak reference to a storage of the program, and its state.

    ``key``: address. ``nbytes``: bytes that count. ``storage``: number in the engine. ``given``: existed before the
    budget was opened. ``own``: owner of the bytes once the program has released them. ``counted``: the engine counts
    its bytes although it has not been reported. ``seen_ns``: time of its last use until then. ``written``: number of
    the last op that wrote to it while it could not be recomputed anyway. ``read``: epoch of the engine in which an op
    that was not reported used it last. ``seal``: what a check knows of its contents, until an op writes them.
    ``stays``: it is resident whatever happens. ``aliases``: blocks of other storages over the same memory. ``streams``:
    streams of the bytes, if not the first alone (``queues.Streams``). ``parameter``: of a module. ``writers``: who may
    write it unseen.
    """

    __slots__ = (
        *("aliases", "counted", "given", "key", "nbytes", "own"),
        *("parameter", "read", "seal", "seen_ns", "stays", "storage", "streams", "writers", "written"),
    )

    __eq__, __hash__ = object.__eq__, object.__hash__  # those of a reference end with what it refers to

    aliases: list[Block] | None
    key: int
    nbytes: int
    storage: int
    given: bool
    own: Storage | None
    counted: bool
    seen_ns: int
    written: int
    read: int
    seal: Seal | None
    stays: bool
    parameter: bool
    writers: Writers | None
    streams: list[int] | None

    @classmethod
    def of(cls, program: Storage, nbytes: int, dropped: Callable[[Block], None]) -> Block:
        """Return the block of ``program``; it calls ``dropped`` when the program releases the storage."""
        block = cls(program, dropped)
        block.key, block.nbytes, block.storage = program._cdata, nbytes, PENDING
        block.given = block.counted = block.stays = block.parameter = False
        block.own = block.aliases = block.streams = block.seal = block.writers = None
        block.seen_ns = block.written = block.read = 0
        return block

    def bytes(self) -> Storage:
        """The storage with the bytes."""
        found = self.own if self.own is not None else self()
        assert found is not None
        return found

    def free(self, held: bool) -> None:
        """Give the bytes back; if the program still has the storage, it is empty from now on."""
        program = self()
        if held and program is not None:
            evict(program)
        self.own = None

    def keep(self) -> Storage:
        """Take the bytes away from the program, and return what has them."""
        program = self()
        if program is None:
            return self.bytes()
        held = Storage(0, device=program.device)
        exchange(program, held)
        return held

    def fill(self, made: Storage) -> Storage | None:
        """Take over the bytes of ``made`` without a copy. Returns the storage, if the program still has it."""
        program = self()
        if program is None:
            self.own = made
        else:
            exchange(program, made)
        return program

    def retain(self) -> None:
        """Refer to the storage, so that its bytes outlive the program's last reference."""
        if self.own is None:
            self.own = self()

    def unretain(self) -> None:
        """Leave the storage to the program."""
        self.own = None

    def abandoned(self) -> bool:
        """True if only this block holds the storage."""
        return self.own is not None and owners_of_storage(self.own._cdata) == 1


@dataclass(eq=False, slots=True)
class Value:
    """Contents of a block between two writes. ``call`` made it, if it can be recomputed and was not reported to the
    engine: as result number ``place``, or by writing to the block if ``place`` is negative (for a call for several
    tensors: to number ``-1 - place``). ``writes``: number of writes to the block so far."""

    block: Block
    call: Recomputable | None
    place: int
    writes: int = 0


@dataclass(eq=False, slots=True)
class Recomputable:
    """A call with everything that its results depend on: arguments, and the state of the generators it drew from."""

    func: Any
    args: Template
    kwargs: dict[str, Template]
    inputs: Sequence[Value | None]
    """Value of each tensor argument; None where the result does not depend on it."""
    number: int
    """Position among all ops of the program."""
    gradients: bool
    """True if gradients were on: kernels of recurrent layers return more then."""
    cost_ns: int = 0
    nbytes: int = 0
    """Bytes that it allocated."""
    workspace_bytes: int = 0
    trail: int = 0
    """That of the engine when it had run."""
    backward: bool = False
    """True if the backward pass runs it, and not the user's own checkpointing within."""
    generators: Sequence[tuple[torch.Generator, torch.Tensor]] = ()
    fresh: Sequence[tuple[int, int]] = ()
    """Place of each result that owns a new storage, and the engine's value for it."""
    held: Sequence[Storage] = ()
    """Inputs that cannot be recomputed, until the call is reported to the engine."""
    count: int = 0
    """Number of tensors of a call that does the same to each of several; else 0."""
    parts: dict[int, Recomputable] | None = None
    settings: tuple[Any, ...] | None = None
    """Settings of the process in its first run (``run.settings``); None: unknown."""

    def divide(self, outputs: int) -> None:
        """Note that it does the same to each of several tensors, if as many as its different ``outputs`` were given."""
        lists = [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, (list, tuple))]
        self.count = outputs if lists and len(lists[0]) == outputs else 0

    def part(self, index: int) -> Recomputable:
        """The part of a call for several tensors that works on number ``index``: it depends on its own inputs only."""
        if self.parts is None:
            self.parts = {}
        found = self.parts.get(index)
        if found is None:
            inputs: list[Value | None] = []
            if type(self.args) is list:
                args = [self._part(value, index, inputs) for value in self.args]
            else:
                args, places = self.args.part(index, self.count)
                inputs += [self.inputs[place] for place in places]
            kwargs = {name: self._part(value, index, inputs) for name, value in self.kwargs.items()}
            found = self.parts[index] = Recomputable(self.func, args, kwargs, inputs, self.number, self.gradients)
            found.cost_ns, found.workspace_bytes = self.cost_ns // self.count, self.workspace_bytes
            found.held, found.settings, found.trail = self.held, self.settings, self.trail
        return found

    def _part(self, template: Template, index: int, inputs: list[Value | None]) -> Template:
        if isinstance(template, Hole):
            inputs.append(self.inputs[template.place])
            return template._replace(place=len(inputs) - 1)
        if isinstance(template, (list, tuple)):
            some = template[index : index + 1] if len(template) == self.count else template
            return type(template)([self._part(item, index, inputs) for item in some])
        return template

    def recompute(self, clock: Callable[[], int]) -> tuple[dict[int, Any], int]:
        """Run the call: the new storage of each value that it allocates, and the time of the kernel alone by ``clock``,
        as the first run was timed."""
        storages = [value.block.bytes() if value is not None else None for value in self.inputs]
        now = [(generator, generator.get_state()) for generator, _ in self.generators] if self.generators else ()
        gradients = torch.is_grad_enabled()
        try:
            for generator, state in self.generators:
                generator.set_state(state)
            if gradients != self.gradients:
                set_grad_enabled(self.gradients)
            if is_excluded(ABOVE):
                result, cost_ns = self._run(storages, clock)
            else:
                with (
                    NoAutocast(),
                    BelowAutograd(),
                    NoModes(),
                ):
                    result, cost_ns = self._run(storages, clock)
        finally:
            if gradients != self.gradients:
                set_grad_enabled(gradients)
            for generator, state in now:
                generator.set_state(state)
        results = (result,) if type(result) is torch.Tensor else tensors_of((result,))
        return {value: storage_of(results[place]) for place, value in self.fresh}, cost_ns

    def _run(self, storages: Sequence[Storage | None], clock: Callable[[], int]) -> tuple[Any, int]:
        if type(self.args) is not list:
            return self.args.run(storages, clock)  # type: ignore[no-any-return]
        args = [thawed(value, storages) for value in self.args]
        kwargs = {name: thawed(value, storages) for name, value in self.kwargs.items()} if self.kwargs else self.kwargs
        kernel = self.func._op
        began = clock()
        result = kernel(*args, **kwargs)
        return result, clock() - began
