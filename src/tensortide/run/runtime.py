"""The dispatch mode under which every op finds its inputs in memory and room for its outputs."""

from __future__ import annotations

import functools
import gc
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.errors import BudgetInfeasible, RunError
from tensortide.plan.remat.policies import Policy
from tensortide.replay.remat.outcome import OutOfMemory, Thrashing
from tensortide.run.again import Again
from tensortide.run.block import Block
from tensortide.run.engine import ENDLESS, LiveEngine
from tensortide.run.operators import Operator, generators_of, operator_of, written_by
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
        self.thread = threading.get_ident()
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
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._safely(self._opaque, func, args, kwargs or {})
        operator = operator_of(func)
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
        if threading.get_ident() != self.thread:
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
        for tensor in (args[0],) if operator.lone else tensors_of([*args, *kwargs.values()]):
            storage = self.storage(tensor)
            if not engine.material[storage]:
                engine.abandon(self._prepare([engine.newest(storage)], (), 0))
        return operator.func(*args, **kwargs)

    def _run(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        tensors: list[torch.Tensor] = []
        marks: list[Any] = []
        template = [frozen(value, tensors, marks) for value in args]
        named = {name: frozen(value, tensors, marks) for name, value in kwargs.items()} if kwargs else kwargs
        storages = [self.storage(tensor) for tensor in tensors]
        needed = inputs = list({engine.values[storage][-1]: None for storage in storages})
        overwritten, blind = self._written(operator, args, kwargs, tensors, storages)
        if blind:
            inputs = list({engine.values[storage][-1]: None for storage in storages if storage != UNREAD})
        states = (
            [(g, g.get_state()) for g in generators_of(args, kwargs, tensors)] if operator.random else []
        )  # before anything is computed again
        key = self.sizes.key(operator, marks, args, kwargs)
        frame = self._prepare(needed, overwritten, self.sizes.predict(key, operator, template, named))
        began = self.clock()
        try:
            result = operator.func(*args, **kwargs)
            cost_ns = self.clock() - began
        finally:
            engine.abandon(frame)
        made, places, repeatable = self._fresh(result)
        call = (
            Again(operator.func, template, named, storages, self._bytes) if operator.repeatable and repeatable else None
        )
        values = engine.complete(inputs, call, made, overwritten, blind, cost_ns)
        self._watch(made, values)
        grown = sum([nbytes for nbytes, _ in made])
        if call is not None:
            call.generators, call.fresh = states, list(zip(places, values, strict=False))
        if operator.resizing:
            grown += self._resized(overwritten)
        self.sizes.learn(key, grown)
        self.ops += 1
        if engine.memory > engine.budget:
            engine.make_room(0)
        return result

    def _written(
        self, operator: Operator, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor], storages: list[int]
    ) -> tuple[dict[int, None], set[int]]:
        """The storages that a call writes, and those of them whose contents no result depends on, which become UNREAD
        in ``storages``."""
        if not operator.written and not operator.statistics:
            return {}, set()
        written, unread = written_by(operator, args, kwargs)
        overwritten = dict.fromkeys(self.storage(tensor) for tensor in tensors_of(written))
        blind = {self.storage(tensor) for tensor in unread}
        for place, tensor in enumerate(tensors):
            if any(tensor is other for other in unread):
                storages[place] = UNREAD
        return overwritten, blind

    def _opaque(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operator over functions: its inputs are there; what it makes stays."""
        engine = self.engine
        tensors = tensors_of([list(args), list(kwargs.values())])
        inputs = list({engine.newest(self.storage(tensor)): None for tensor in tensors})
        frame = self._prepare(inputs, (), 0)
        try:
            result = func(*args, **kwargs)
        finally:
            engine.abandon(frame)
        made, _, _ = self._fresh(result)
        self._watch(made, engine.complete(inputs, None, made, (), (), 0))
        return result

    def _prepare(self, inputs: list[int], overwritten: Any, nbytes: int) -> Any:
        """As the engine does; garbage in cycles goes before an op is said not to fit."""
        try:
            return self.engine.prepare(inputs, overwritten, nbytes)
        except OutOfMemory:
            gc.collect()
            return self.engine.prepare(inputs, overwritten, nbytes)

    # Storages

    def storage(self, tensor: torch.Tensor) -> int:
        """The engine's number for the storage of ``tensor``; one not seen before existed before."""
        handle = storage_of(tensor)
        block = self.known.get(handle._cdata)
        if block is None:
            block = Block(handle, self._when_dropped)
            block.storage = self.engine.add_constant(self._nbytes(handle), block)
            self.known[block.key] = block
        return block.storage

    def expose(self, tensor: torch.Tensor, *, lasting: bool) -> None:
        """Somebody is going to look at the bytes of ``tensor``: they are there, and if ``lasting`` they stay as long as
        the program holds the storage."""
        if type(tensor) not in _ORDINARY or tensor.layout is not torch.strided:
            return
        if threading.get_ident() == self.thread:
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
        for place, tensor in enumerate((result,) if type(result) is torch.Tensor else tensors_of(result)):
            handle = storage_of(tensor)
            if handle._cdata not in self.known:
                block = Block(handle, self._when_dropped)
                self.known[block.key] = block
                made.append((self._nbytes(handle), block))
                places.append(place)
                repeatable = repeatable and handle.device == self.device and handle.resizable()
        return made, places, repeatable

    def _watch(self, made: list[tuple[int, Block]], values: list[int]) -> None:
        for (_, block), value in zip(made, values, strict=False):
            block.storage = self.engine.storage[value]

    def _dropped(self, block: Block) -> None:
        if self.known.get(block.key) is block:
            del self.known[block.key]
            self.engine.gone.append(block.storage)

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
