"""The dispatch mode under which every op finds its inputs in memory and room for its outputs."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.errors import BudgetInfeasible, RunError
from tensortide.plan.remat.policies import Policy
from tensortide.replay.remat.outcome import OutOfMemory, Thrashing
from tensortide.run.again import Again
from tensortide.run.block import Block
from tensortide.run.engine import ENDLESS, LiveEngine
from tensortide.run.operators import Operator, apart, generators_of, operators, written_by
from tensortide.run.shortage import infeasible
from tensortide.run.sizes import sizes_on
from tensortide.run.template import Storage, frozen, storage_of, tensors_of

_ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
UNREAD = -1


class Watcher(Protocol):
    """Somebody who is told of every op."""

    def around(
        self, action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Do ``action`` on the other arguments, and return its result."""


class Runtime(TorchDispatchMode):
    """Runs the program's ops under a budget: evicts before an op what does not fit, computes again what it misses.

    Storages on other devices than ``device`` count nothing and are left alone.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No compiler wrapper around the handler."""
        return False

    def __init__(
        self,
        policy: Policy,
        budget_bytes: int,
        device: torch.device,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__()
        self.engine = LiveEngine(policy, budget_bytes)
        self.device = device
        self.clock = clock
        self.thread = get_ident()
        self.sizes = sizes_on(device)
        self.ops = 0
        self.known: dict[int, Block] = {}
        """Address of a storage of the program -> its block."""
        self.watchers: list[Watcher] = []
        """They go around every op, the last one outermost."""
        self._when_dropped = self._dropped

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        operator = operators.get(id(func))
        if operator is None:
            if isinstance(func, torch._ops.HigherOrderOperator):
                return self._safely(self._opaque, func, args, kwargs or {})
            operator = operators[id(func)] = Operator(func)  # which holds ``func``, so the number stays its own
        if operator.passed:
            return func(*args, **(kwargs or {}))
        for kind in types:
            if kind not in _ORDINARY and not issubclass(kind, torch.nn.Parameter):
                return NotImplemented
        action: Callable[..., Any] = self._view if operator.view else self._run
        if self.watchers:
            for watcher in self.watchers:
                action = functools.partial(watcher.around, action)
        return self._safely(action, operator, args, kwargs or {})

    def _safely(self, action: Callable[..., Any], what: Any, *arguments: Any) -> Any:
        """Do ``action``; a collection in the midst of it could take away what is about to be read."""
        if get_ident() != self.thread:
            raise RunError(
                f"{getattr(what, 'func', what)} ran in another thread than the one that opened the memory budget: "
                "a budget covers one thread"
            )
        collecting = gc.isenabled()
        gc.disable()
        try:
            return action(what, *arguments)
        except OutOfMemory as error:
            raise infeasible(self, getattr(what, "func", what), error.shortage) from None
        except Thrashing:
            raise BudgetInfeasible(
                f"{getattr(what, 'func', what)} needs over {ENDLESS} ops to be run again: "
                "the budget is too small to get on with, or another policy does better"
            ) from None
        finally:
            if collecting:
                gc.enable()

    # Ops

    def _view(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Views take nothing, but may look at the size of the storage."""
        engine = self.engine
        for tensor in (args[0],) if operator.lone else tensors_of((*args, *kwargs.values())):
            storage = self.storage(tensor)
            if not engine.material[storage]:
                engine.abandon(self._prepare([engine.newest(storage)], (), 0))
        self.ops += 1
        return operator.kernel(*args, **kwargs)

    def _run(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        overwritten: dict[int, None] = {}
        unread: list[int] = []
        if operator.written or operator.statistics:
            written, blind = written_by(operator, args, kwargs)
            overwritten = dict.fromkeys(self._storages(tensors_of(written)))
            unread = self._storages(blind)
        if not operator.allocates and all(map(self.engine.fixed.__getitem__, overwritten)):
            return self._update(operator, args, kwargs, overwritten)
        tensors: list[torch.Tensor] = []
        marks: list[Any] = []
        template = [frozen(value, tensors, marks) for value in args]
        named = {name: frozen(value, tensors, marks) for name, value in kwargs.items()} if kwargs else kwargs
        storages = self._storages(tensors)
        call = Again(operator.func, template, named, storages, self._bytes) if operator.repeatable else None
        if operator.random and call is not None:  # before anything is computed again
            call.generators = [(g, g.get_state()) for g in generators_of(args, kwargs, tensors)]
        room = self.sizes.room(operator, marks, template, named, args, kwargs)
        values = self.engine.values
        inputs = [values[storage][-1] for storage in dict.fromkeys(storages)]
        result, cost_ns = self._timed(operator, args, kwargs, inputs, overwritten, room.nbytes)
        if operator.foreach and call is not None:
            grown = self._note_apart(operator, args, kwargs, result, cost_ns)
        else:
            grown = self._note(storages, call, overwritten, unread, result, cost_ns)
        if operator.resizing:
            grown += self._resized(overwritten)
        room.learn(grown)
        if self.engine.memory > self.engine.budget:
            self.engine.make_room(0)
        return result

    def _note(
        self,
        storages: list[int],
        call: Again | None,
        overwritten: dict[int, None],
        unread: list[int],
        result: Any,
        cost_ns: int,
    ) -> int:
        """Tell the engine what has run; returns the bytes that it allocated."""
        made, places, repeatable = self._fresh(result)
        if unread and call is not None:
            call.inputs = [UNREAD if storage in unread else storage for storage in storages]
        values = self.engine.values
        inputs = [values[storage][-1] for storage in dict.fromkeys(storages) if storage not in unread]
        outputs = self.engine.complete(inputs, call if repeatable else None, made, overwritten, unread, cost_ns)
        grown = 0
        for (nbytes, block), value in zip(made, outputs, strict=False):
            block.storage = self.engine.storage[value]
            grown += nbytes
        if call is not None:
            call.fresh = list(zip(places, outputs, strict=False))
        return grown

    def _note_apart(
        self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], result: Any, cost_ns: int
    ) -> int:
        """As ``_note``, for a call that does one thing to many tensors: each depends on its own inputs only."""
        grown = 0
        parts = apart(args, kwargs, result)
        for some, others, outcome in parts:
            tensors: list[torch.Tensor] = []
            template = [frozen(value, tensors, []) for value in some]
            named = {name: frozen(value, tensors, []) for name, value in others.items()}
            storages = self._storages(tensors)
            written, _ = written_by(operator, some, others)
            overwritten = dict.fromkeys(self._storages(tensors_of(written)))
            call = Again(operator.func, template, named, storages, self._bytes)
            grown += self._note(storages, call, overwritten, [], outcome, cost_ns // len(parts))
        return grown

    def _update(
        self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any], overwritten: dict[int, None]
    ) -> Any:
        """Run an op that makes nothing but writes to what is fixed, as optimizers do: nothing asks for it again."""
        values = self.engine.values
        storages = self._storages(tensors_of((*args, *kwargs.values()) if kwargs else args))
        inputs = [values[storage][-1] for storage in dict.fromkeys(storages)]
        result, cost_ns = self._timed(operator, args, kwargs, inputs, overwritten, 0)
        self.engine.updated(cost_ns)
        return result

    def _timed(
        self,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: list[int],
        overwritten: dict[int, None],
        nbytes: int,
    ) -> tuple[Any, int]:
        """Run an op when its inputs are there and so is room for ``nbytes``; its result and how long it took."""
        frame = self._prepare(inputs, overwritten, nbytes)
        began = self.clock()
        try:
            result = operator.kernel(*args, **kwargs)
            cost_ns = self.clock() - began
        finally:
            if frame is not None:
                self.engine.abandon(frame)
        self.ops += 1
        return result, cost_ns

    def _opaque(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operator over functions: its inputs are there; what it makes stays."""
        storages = self._storages(tensors_of((*args, *kwargs.values())))
        frame = self._prepare([self.engine.newest(storage) for storage in dict.fromkeys(storages)], (), 0)
        try:
            result = func(*args, **kwargs)
        finally:
            self.engine.abandon(frame)
        self._note(storages, None, {}, [], result, 0)
        return result

    def _prepare(self, inputs: Sequence[int], overwritten: Any, nbytes: int) -> Any:
        """As the engine does; garbage in cycles goes before an op is said not to fit."""
        try:
            return self.engine.prepare(inputs, overwritten, nbytes)
        except OutOfMemory:
            gc.collect()
            return self.engine.prepare(inputs, overwritten, nbytes)

    # Storages

    def _storages(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        known = self.known
        found = []
        for tensor in tensors:
            block = known.get(storage_of(tensor)._cdata)
            found.append(self.storage(tensor) if block is None else block.storage)
        return found

    def storage(self, tensor: torch.Tensor) -> int:
        """The engine's number for the storage of ``tensor``; one not seen before existed before."""
        handle = storage_of(tensor)
        block = self.known.get(handle._cdata)
        if block is None:
            block = Block.of(handle, self._when_dropped)
            block.storage = self.engine.add_constant(self._nbytes(handle), block)
            self.known[block.key] = block
        return block.storage

    def expose(self, tensor: torch.Tensor, *, lasting: bool) -> None:
        """Somebody is going to look at the bytes of ``tensor``: they are there, and if ``lasting`` they stay as long as
        the program holds the storage."""
        if type(tensor) not in _ORDINARY or tensor.layout is not torch.strided:
            return
        if get_ident() == self.thread:
            self._safely(self._expose, "reading a tensor", tensor, lasting)
        else:
            self.refuse(tensor)

    def refuse(self, tensor: torch.Tensor) -> None:
        """Raise RunError if ``tensor``, which another thread wants, may be taken away."""
        block = self.known.get(storage_of(tensor)._cdata)
        if block is not None and not self.engine.fixed[block.storage]:
            raise RunError("another thread uses a tensor that is under a memory budget: a budget covers one thread")

    def _expose(self, _: str, tensor: torch.Tensor, lasting: bool) -> None:
        storage = self.storage(tensor)
        frame = self._prepare([self.engine.newest(storage)], (), 0)
        self.engine.abandon(frame)
        if lasting:
            self.engine.pin(storage)

    def close(self) -> None:
        """Forget everything: tensors are ordinary tensors again."""
        self.known.clear()
        self.engine = LiveEngine(self.engine.policy, self.engine.budget)

    def _bytes(self, storage: int) -> Storage:
        block = self.engine.memories[storage]
        assert isinstance(block, Block)
        return block.bytes()

    def _nbytes(self, handle: Storage) -> int:
        return handle.nbytes() if handle.device == self.device else 0

    def _fresh(self, result: Any) -> tuple[list[tuple[int, Block]], list[int], bool]:
        """Storages that ``result`` has and nobody knew: their bytes and blocks; the places of their tensors; whether
        all of them can be taken away and given back."""
        made: list[tuple[int, Block]] = []
        places: list[int] = []
        repeatable = True
        for place, tensor in enumerate((result,) if type(result) is torch.Tensor else tensors_of((result,))):
            handle = storage_of(tensor)
            if handle._cdata not in self.known:
                block = Block.of(handle, self._when_dropped)
                self.known[block.key] = block
                made.append((self._nbytes(handle), block))
                places.append(place)
                repeatable = repeatable and tensor.device == self.device and handle.resizable()
        return made, places, repeatable

    def _dropped(self, block: Block) -> None:
        if self.known.get(block.key) is block:
            del self.known[block.key]
            self.engine.gone.append((block.storage, block))

    def _resized(self, storages: Any) -> int:
        """An op may have given storages another size; they are not followed any further than that."""
        engine, grown = self.engine, 0
        for storage in storages:
            nbytes = self._nbytes(self._bytes(storage))
            if nbytes == engine.storage_bytes[storage]:
                continue
            grown += max(0, nbytes - engine.storage_bytes[storage])
            engine.memory += nbytes - engine.storage_bytes[storage]
            engine.storage_bytes[storage] = nbytes
            engine.pin(storage)
            engine.sever(storage)
        engine.peak = max(engine.peak, engine.memory)
        return grown
