"""The dispatch mode under which every op finds its inputs in memory and room for its outputs."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tensortide.errors import BudgetInfeasible, RunError
from tensortide.plans.remat.policies import Policy
from tensortide.recorder.recorder import Mode
from tensortide.replays.remat.simulation import OutOfMemory, Thrashing
from tensortide.run import allocations
from tensortide.run.block import (
    PENDING,
    Recomputable,
    Storage,
    Template,
    Value,
    frozen,
    storage_of,
    stored,
    tensors_of,
)
from tensortide.run.composites import Composites, dense
from tensortide.run.device import asked_bytes, device_of
from tensortide.run.engine import LiveEngine
from tensortide.run.evicted import resize
from tensortide.run.in_flight import InFlight, Listener
from tensortide.run.interrupts import Interrupts
from tensortide.run.limit import infeasible
from tensortide.run.operators import NO_ROOM, Operator, Room, generators_of, operator_of, operators, sizes_on
from tensortide.run.out_of_memory import Attempt, failed, repeated
from tensortide.run.storages import Storages
from tensortide.run.threads import take_off, tracing
from tensortide.run.unfilled import covers

if TYPE_CHECKING:
    from tensortide.graph import Graph

_ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
PATIENCE_S = 60.0
"""Longest time that a thread waits for the op of another one."""
TIMED = 4
"""Calls of each kind that are timed by events."""
MOST_WRITES = 64
"""A value written more often than this stays resident."""


Ran: TypeAlias = tuple[Any, int, int | None]
"""Result of an op, its duration, and the most bytes that it allocated at once, if that was measured."""

Watcher: TypeAlias = Callable[[Callable[..., Any], Operator, Sequence[Any], dict[str, Any]], Any]
"""Wrapper around every op of the program: does the first argument on the others, and returns its result."""


class Runtime(Mode):
    """Runs the program's ops under a budget: before an op it evicts what does not fit and recomputes missing inputs.

    Storages on other devices than ``device`` count nothing and are left alone.
    """

    def __init__(
        self,
        policy: Policy,
        budget_bytes: int,
        device: torch.device,
        clock: Callable[[], int] = time.perf_counter_ns,
        workspace: bool = True,
        interrupts: Interrupts | None = None,
    ) -> None:
        super().__init__()
        self.engine = LiveEngine(policy, budget_bytes, clock)
        self.device = device
        self.storages = Storages(self.engine, device)
        self.known, self.pending = self.storages.known, self.storages.pending
        self.unfilled = self.storages.unfilled
        self._read, self._written, self._fresh = self.storages.read, self.storages.written, self.storages.fresh
        self.hardware = device_of(device)
        self.streams = self.storages.streams = self.engine.streams = self.hardware.streams()
        self.timer = self.engine.timer = self.hardware.timer() if clock is time.perf_counter_ns else None
        self.lowered_from = 0
        """The budget before the device ran out of memory; 0 if it never did."""
        self.clock = clock
        self.thread = get_ident()
        self.interrupts = interrupts or Interrupts()
        self.lock = self.interrupts.lock
        """Held by a thread while an op of it is under way: at most one is."""
        self.crowded = False
        """True once another thread has used what may be evicted."""
        self.sizes = sizes_on(device, workspace, torch.get_num_threads())
        self.composites = Composites()
        self.room: Room | None = None
        """That of the latest op that allocated."""
        self.in_flight, self.listener = InFlight(self), Listener(self)
        self.sizing = False
        """True while storages are asked for their sizes alone."""
        self.keeping = False
        """True while what ops make stays resident: others write it too, unseen."""
        self.graph: Graph | None = None
        """The captured step, if there is one."""
        self.disarm: Callable[[], None] = lambda: None
        """Takes the compiled core away from the thread that opened the budget, where it is called."""
        self.watchers: list[Watcher] = []
        """Wrappers around every op, the last one outermost."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if tracing():
            return func(*args, **(kwargs or {}))
        operator = operators.get(id(func))
        if operator is None:
            if isinstance(func, torch._ops.HigherOrderOperator):
                return self._safely(self._opaque, func, args, kwargs or {})
            operator = operator_of(func)
        if operator.passed:
            return func(*args, **(kwargs or {}))
        for kind in types:
            if kind not in _ORDINARY and not issubclass(kind, torch.nn.Parameter):
                return NotImplemented
        if operator.whole and torch.is_inference_mode_enabled() and dense((*args, *(kwargs or {}).values())):
            return self.composites.run(self, func, args, kwargs or {})
        if operator.communicates:
            return self._safely(self.in_flight.run, operator, args, kwargs or {})
        if operator.view and not self.watchers:
            return self._view(operator, args, kwargs or {})
        action: Callable[..., Any] = self._view if operator.view else self._run
        if self.watchers and get_ident() == self.thread:
            for watcher in self.watchers:
                action = functools.partial(watcher, action)
        return self._safely(action, operator, args, kwargs or {})

    def _safely(self, action: Callable[..., Any], what: Any, *arguments: Any) -> Any:
        """Do ``action``, while no other thread does one: a collection in the midst of it, too, could take away what is
        about to be read."""
        self._enter()
        collecting = gc.isenabled()
        try:
            if collecting:
                gc.disable()
            if self.streams is not None:
                self.streams.order()
            return action(what, *arguments)
        except OutOfMemory as error:
            raise infeasible(self, getattr(what, "func", what), error.shortage) from None
        except RuntimeError as error:
            if asked_bytes(error) is None:
                raise
            raise failed(self, getattr(what, "func", what), "it cannot be run again") from error
        except Thrashing:
            raise BudgetInfeasible(
                f"{getattr(what, 'func', what)} needs over {self.engine.most_recomputed:,} ops to be recomputed: "
                "the budget is too small to get on with, or another policy does better"
            ) from None
        finally:
            if collecting:
                gc.enable()
            self.lock.release()
            if self.interrupts.waiting:
                self.interrupts.deliver()

    def _enter(self) -> None:
        if not self.lock.acquire(timeout=PATIENCE_S):
            raise RunError(
                f"an op of another thread has not ended for {PATIENCE_S:.0f} s; under a memory budget one op runs at a "
                "time, and must not wait for those of other threads"
            )

    # Ops

    def _view(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Views take nothing, but may look at the size of the storage."""
        if self.crowded and not self.interrupts.busy:
            return self._safely(self._view, operator, args, kwargs)
        if operator.resizing:
            self._set(*args)
        for tensor in (args[0],) if operator.lone else tensors_of((*args, *kwargs.values())):
            try:
                value = self.known.get(storage_of(tensor)._cdata)
                if value is None or not (value.block.storage == PENDING or self.engine.resident[value.block.storage]):
                    self._safely(self._expose, operator, tensor, False)
            except NotImplementedError:
                return self._safely(self._opaque, operator, args, kwargs)
            except TypeError:  # of a Python number: it is made a tensor first, which is new
                return self._safely(self._run, operator, args, kwargs)
        self.engine.ops += 1
        return operator.kernel(*args, **kwargs)

    def _run(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        if engine.freed or self.in_flight.flights:
            self.in_flight.land()
            engine.collect()
        written: Sequence[Value] = ()
        blind: Sequence[Value] = ()
        template: list[Template] | None = None
        named = kwargs
        marks: list[Any] = []
        try:
            if operator.written or operator.statistics:
                written, blind = self._written(operator, args, kwargs)
            if operator.lean and self.storages.settled(written):
                tensors = tensors_of((*args, *kwargs.values()) if kwargs else args)
            else:
                tensors = []
                template = frozen(args, tensors, marks)
                if kwargs:
                    named = dict(zip(kwargs, frozen(kwargs.values(), tensors, marks), strict=True))
            if self.unfilled.found and (written or not operator.blank):
                self.unfilled.used(operator.fills, tensors, written)
            values, held, resident = self._read(tensors)
        except RuntimeError:  # NotImplementedError among them: no storage, no size, or no memory
            return self._opaque(operator, args, kwargs)
        if template is None:
            return self._update(operator, args, kwargs, values, held, written, resident)
        call = None
        if operator.repeatable and (0 not in [value.block.nbytes for value in values] or not self._elsewhere(tensors)):
            inputs = [None if value in blind else value for value in values] if blind else values
            call = Recomputable(operator.func, template, named, inputs, engine.ops, torch.is_grad_enabled())
            call.held = held
            if operator.sums:
                call.sums = not call.gradients and torch._C._current_graph_task_id() >= 0
            if operator.random:  # before anything is recomputed
                call.generators = [(g, g.get_state()) for g in generators_of(args, kwargs, tensors)]
        room = self.room = self.sizes.room(operator, marks, template, named, args, kwargs)
        result, cost_ns, most_bytes = self._execute(operator, args, kwargs, values, held, written, resident, room, call)
        if call is not None and (len(call.generators) > 1 or operator.foreign):
            call.generators = [(g, before) for g, before in call.generators if not torch.equal(before, g.get_state())]
        self._note(operator, call, written, blind, result, cost_ns, room, most_bytes)
        return result

    def _elsewhere(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True if more than a number is read from another device. Such an op is not recomputed: it would hold memory
        that no budget is of, and host memory may change unseen, by a loader that fills it again."""
        return any(tensor.device != self.device and tensor.numel() > 1 for tensor in tensors)

    def _note(
        self,
        operator: Operator,
        call: Recomputable | None,
        written: Sequence[Value],
        blind: Sequence[Value],
        result: Any,
        cost_ns: int,
        room: Room,
        most_bytes: int | None,
    ) -> None:
        """Remember what has run."""
        engine = self.engine
        if self.keeping or (operator.foreign and self.listener.heard):
            call = None
        spoilt = [value for value in written if value not in blind] if written else written
        made, grown = self._fresh(result, None if spoilt else call)
        workspace_bytes = room.workspace_bytes if most_bytes is None else max(0, most_bytes - grown)
        engine.ran(cost_ns, grown, workspace_bytes)
        if call is not None:
            call.cost_ns, call.nbytes, call.workspace_bytes = cost_ns, grown, workspace_bytes
            if operator.foreach:
                call.divide(len(spoilt or made))
        now = engine.clock_ns
        for value in made:
            value.block.seen_ns = now
        for at, value in enumerate(written):
            alone = call is not None and (bool(call.count) or spoilt == [value])
            self._write(value, call if alone else None, at, now)
        if operator.blank and call is not None and (made or covers(result)):
            self.unfilled.add(operator, call, made or [self.known[value.block.key] for value in written], result)
        if operator.resizing:
            grown += self._resized(written)
        room.learn(grown, most_bytes)
        if engine.memory > engine.budget:
            self._exceeded()
        elif self.watchers:
            self.promote()
        elif engine.ops > self.pending.due:
            self.pending.sweep(engine.ops)

    def _write(self, old: Value, call: Recomputable | None, at: int, now: int) -> None:
        """Note that an op has overwritten ``old``: ``call``, if it can be recomputed; number ``at`` of several."""
        block, engine = old.block, self.engine
        block.seal = None
        if block.stays or old.writes >= MOST_WRITES:
            call = None
        if block.storage == PENDING or (call is not None and not engine.fixed[block.storage]):
            value = Value(block, call, -1 - at, old.writes + 1)
            self.known[block.key] = value
            block.seen_ns = now
            if block.storage == PENDING:
                self.pending.values[block.key] = value
            elif call is not None:
                engine.complete(call.part(at) if call.count else call, [value])
        elif engine.fixed[block.storage]:
            block.written = engine.ops
        else:
            engine.fix(block.storage)

    def _update(
        self,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        values: Sequence[Value],
        held: list[Storage],
        written: Sequence[Value],
        resident: bool,
    ) -> Any:
        """Run an op that makes nothing but writes to what is fixed, as optimizers do: nothing asks for it again."""
        result, cost_ns, _ = self._execute(operator, args, kwargs, values, held, written, resident, NO_ROOM, None)
        self.engine.ran(cost_ns, 0, 0)
        for value in written:
            value.block.written, value.block.seal = self.engine.ops, None
        return result

    def _execute(
        self,
        operator: Operator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        values: Sequence[Value],
        held: list[Storage],
        written: Sequence[Value],
        resident: bool,
        room: Room,
        call: Recomputable | None,
    ) -> Ran:
        """Make room for an op and run it. If the device has less memory than the budget says, it is run again after
        evictions."""
        begun, asked = False, 0
        try:
            frame = self._ready(values, held, written, resident and not operator.foreign, room)
            begun = not written or self.hardware.fits(room.nbytes + room.workspace_bytes)
            if begun:
                run = self._measured if room.open else self._timed
                return run(self.kernel_of(operator), args, kwargs, frame, room)
        except RuntimeError as error:
            denied = asked_bytes(error)
            if denied is None:
                raise
            asked = denied
        attempt = Attempt(self, operator, args, kwargs, values, held, written, room, call, begun)
        return repeated(self, operator.func, asked, room, attempt)

    def _measured(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any], frame: Any, room: Room) -> Ran:
        """As ``_timed``, with a record of what it allocates, unless a profiler of the program's own is at work."""
        if not allocations.start():
            return self._timed(kernel, args, kwargs, frame, room)
        kept: list[Storage] = []
        try:
            result, cost_ns, _ = self._timed(kernel, args, kwargs, frame, room)
            for tensor in tensors_of((result,)):
                with contextlib.suppress(NotImplementedError):  # it has no storage
                    kept.append(storage_of(tensor))
        finally:
            most_bytes = allocations.stop(self.device, [s for s in kept if s._cdata not in self.known])
        return result, cost_ns, most_bytes

    def _timed(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any], frame: Any, room: Room) -> Ran:
        """Run an op whose inputs are resident, and for whose outputs there is room. Where ops are queued, its duration
        is an estimate until events tell (``TIMED`` times for each kind of call)."""
        mark = self.timer.mark() if self.timer is not None and room.timings < TIMED else None
        began = self.clock()
        try:
            result = kernel(*args, **kwargs)
            cost_ns = self.clock() - began
        finally:
            if frame is not None:
                self.engine.abandon(frame)
        self.engine.ops += 1
        if self.timer is not None:
            cost_ns = room.cost_ns or cost_ns
            if mark is not None:
                room.timings += room is not NO_ROOM
                self.timer.since(mark, functools.partial(self._late, room, cost_ns))
        return result, cost_ns, None

    def _late(self, room: Room, estimate_ns: int, cost_ns: int) -> None:
        """An op was over after ``cost_ns``."""
        self.engine.late_ns += cost_ns - estimate_ns
        if room is not NO_ROOM:
            room.timed(cost_ns)

    def settle(self) -> None:
        """Take over the durations of all ops so far; waits for the device where they are still queued."""
        if self.timer is not None:
            self.timer.settle()
            self.engine.correct()

    def kernel_of(self, operator: Operator) -> Callable[..., Any]:
        """The kernel of ``operator``; that of another library runs such that the communication inside it is seen."""
        if not operator.foreign:
            kernel: Callable[..., Any] = operator.kernel
            return kernel

        def listened(*args: Any, **kwargs: Any) -> Any:
            self.listener.heard = False
            with self.listener:
                return operator.kernel(*args, **kwargs)

        return listened

    def _opaque(self, what: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an operator over functions, or an op on tensors without a storage, a size or memory of their own (sparse,
        nested, zeros without memory): its inputs are made resident; what it makes and writes stays resident."""
        engine = self.engine
        tensors = stored(tensors_of((*args, *kwargs.values())))
        self.unfilled.used(False, tensors, ())
        values = dict.fromkeys(value for tensor in tensors if (value := self.storages.found(tensor)) is not None)
        kernel = what
        written: list[Value] = []
        if isinstance(what, Operator):
            kernel, (written, _) = what.kernel, self.storages.all_written(what, args, kwargs)
        frame = self._ready(list(values), [], written, False, NO_ROOM)
        run = self._measured if self.sizes.workspace else self._timed
        result, cost_ns, most_bytes = run(kernel, args, kwargs, frame, NO_ROOM)
        for value in written:
            self._write(value, None, 0, 0)
        _, grown = self._fresh(result, None)
        engine.ran(cost_ns, grown, max(0, (most_bytes or 0) - grown))
        self.promote()
        self._shrink()
        return result

    def _exceeded(self, _: Any = None) -> None:
        """Evict what is more than the limit."""
        self.promote()
        self._shrink()

    def promote(self) -> None:
        """Report all ops so far to the engine."""
        self.pending.promote(self.engine.ops)
        self.unfilled.pin()

    def _ready(
        self, values: Sequence[Value], held: list[Storage], written: Sequence[Value], resident: bool, room: Room
    ) -> Any:
        """Make ``values`` resident, and ``room``, and secure what depends on values about to be ``written``. Those of
        ``values`` that can no longer be recomputed are added to ``held``. None if nothing had to be done, and so
        nothing is locked: nothing is evicted until the op is over."""
        engine = self.engine
        if self.streams is not None:
            self.streams.use([value.block for value in values])
        if resident and engine.memory + room.nbytes + room.workspace_bytes <= engine.budget:
            for value in written:
                storage = value.block.storage
                if storage != PENDING and (engine.children[storage] or not engine.fixed[storage]):
                    break  # the engine must hear before it is overwritten
            else:
                return None
        self.promote()
        read = dict.fromkeys(value.block for value in values)
        for block in read:
            if engine.fixed[block.storage]:
                held.append(block.bytes())
            block.read = engine.epoch
        inputs = [engine.newest(block.storage) for block in read]
        overwritten = dict.fromkeys(value.block.storage for value in written)
        return self._prepare(inputs, overwritten, room.nbytes, room.workspace_bytes)

    def _bring(self, storage: int) -> None:
        self.promote()
        self.engine.abandon(self._prepare([self.engine.newest(storage)], (), 0))

    def _prepare(self, inputs: Sequence[int], overwritten: Any, nbytes: int, workspace_bytes: int = 0) -> Any:
        """As the engine does; garbage in cycles is collected, and communication waited for, before an op is refused as
        too large. A recomputation that finds too little memory on the device is run again after evictions."""
        attempt = functools.partial(self.engine.prepare, inputs, overwritten, nbytes, workspace_bytes)
        try:
            return attempt()
        except OutOfMemory:
            gc.collect()
            self.in_flight.settle()
            return attempt() if not self.lowered_from else self._prepare_beyond(attempt)
        except RuntimeError as error:
            asked = asked_bytes(error)
            if asked is None:
                raise
        return repeated(self, "a recomputation", asked, Room(nbytes), attempt)

    def _shrink(self) -> None:
        """Evict what is over the budget, after an op that made more than was known; a lowered budget gives way."""
        try:
            self.engine.make_room(0)
        except OutOfMemory:
            if self.engine.memory > self.lowered_from:
                raise
            self.engine.budget = self.engine.memory

    def _prepare_beyond(self, attempt: Callable[[], Any]) -> Any:
        """Prepare an op that does not fit into the lowered budget: perhaps there is more memory by now."""
        try:
            return attempt()
        except OutOfMemory as error:
            short = error.shortage
            if short is None or short.asked_bytes + short.held_bytes > self.lowered_from:
                raise
            self.engine.budget = short.asked_bytes + short.held_bytes
        return attempt()

    # Storages

    def gradient(self, parameter: torch.Tensor) -> None:
        """The gradient of ``parameter`` has come: it is evicted last."""
        gradient = parameter.grad
        if gradient is not None and type(gradient) in _ORDINARY and gradient.layout is torch.strided:
            self._safely(self._gradient, "a gradient", gradient)

    def _gradient(self, _: str, gradient: torch.Tensor) -> None:
        block = self.storages.value(gradient).block
        self.engine.gradients.add(block)
        if block.storage != PENDING:
            self.engine.gradient_made(block.storage)

    def storage(self, tensor: torch.Tensor) -> int:
        """The engine's number for the storage of ``tensor``."""
        block = self.storages.value(tensor).block
        if block.storage == PENDING:
            self.promote()
        return block.storage

    def expose(self, tensor: torch.Tensor, *, lasting: bool) -> None:
        """Make ``tensor`` resident before its bytes are read; if ``lasting``, its address is kept, and its bytes may be
        overwritten at once, unseen."""
        if type(tensor) not in _ORDINARY or tensor.layout is not torch.strided or tensor._is_zerotensor():
            return
        if get_ident() == self.thread or storage_of(tensor)._cdata in self.known:
            self._safely(self._expose, "reading a tensor", tensor, lasting and not self.sizing)

    def hold(self, tensor: torch.Tensor) -> None:
        """Make ``tensor`` resident, and pin it as long as the program holds the storage."""

        def pin(_: str) -> None:
            self.unfilled.used(False, [tensor], ())
            self._bring(self.storage(tensor))
            self.engine.pin(self.storage(tensor))

        self._safely(pin, "pinning a tensor")

    @contextlib.contextmanager
    def reading(self, tensor: torch.Tensor, lasting: bool) -> Iterator[None]:
        """``expose`` it, and let no op of another thread run while its bytes are read."""
        self._enter()
        try:
            self.expose(tensor, lasting=lasting)
            yield
        finally:
            self.lock.release()
            self.interrupts.deliver()

    def _expose(self, _: str, tensor: torch.Tensor, lasting: bool) -> None:
        storage = self.storages.value(tensor).block.storage
        if storage != PENDING and not self.engine.resident[storage]:
            self._bring(storage)
        if lasting:
            self._overwritten(tensor)
            self.storages.share(self.storages.value(tensor).block)

    def _overwritten(self, tensor: torch.Tensor) -> None:
        """Secure what depends on ``tensor``, which code that nobody sees may overwrite from now on; it stays
        resident."""
        self.unfilled.found.pop(storage_of(tensor)._cdata, None)
        written = self.storages.with_aliases([self.storages.value(tensor)])
        frame = self._ready(written, [], written, True, NO_ROOM)
        self.engine.abandon(frame)
        for value in written:
            self._write(value, None, 0, self.engine.clock_ns)

    def resize(self, handle: Storage, nbytes: int) -> None:
        """Give the storage ``handle`` another size, as the program asks: a write, since contents may be lost."""
        value = self.known.get(handle._cdata)
        if value is None:
            resize(handle, nbytes)
        else:
            self._safely(functools.partial(self._resize, value), "resizing a storage", nbytes)

    def _resize(self, value: Value, _: str, nbytes: int) -> None:
        block = value.block
        handle = block.bytes()
        made = nbytes if handle.device == self.device else 0
        frame = self._ready([value], [], [value], False, Room(max(0, made - block.nbytes), min(made, block.nbytes)))
        try:
            resize(handle, nbytes)
        finally:
            self.engine.abandon(frame)
        self.engine.ran(0, 0, made)  # PyTorch copies to new bytes
        self._write(value, None, 0, self.engine.clock_ns)
        self._resized([value])

    def _set(self, tensor: torch.Tensor, source: Any = None, offset: int = 0, size: Any = (), stride: Any = ()) -> None:
        """Prepare the storage ``source`` that ``tensor`` is about to be set to: PyTorch enlarges it where it is too
        small."""
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if stride else math.prod(size) - 1
        nbytes = (offset + last + 1) * tensor.itemsize if size and all(size) else 0
        if nbytes and nbytes > source.nbytes():
            self.resize(source, nbytes)

    def restore(self) -> None:
        """Put back whatever the program still holds, at the end."""
        if self.streams is not None:
            self.streams.order()
        for _ in range(2):
            try:
                self.engine.restore()
                return
            except RuntimeError as error:
                if asked_bytes(error) is None:
                    raise
            self.hardware.reclaim()
        raise failed(self, "leaving the budget", "tensors that were evicted cannot come back, and are lost")

    def close(self) -> None:
        """Forget everything: tensors are ordinary tensors again."""
        engine = self.engine
        if self.streams is not None:
            self.streams.leave([value.block for value in self.known.values()])
            self.hardware.synchronize()
        for table in (self.known, self.storages.shared, self.pending.values, engine.memories, engine.calls):
            table.clear()
        engine.unsettled.clear()
        self.in_flight.flights.clear()
        self.__class__ = _Closed

    def __exit__(self, *error: Any) -> None:
        """Leave, also where modes that were entered later are still on, and in another thread."""
        take_off(self)
        torch._C._push_on_torch_dispatch_stack(self)  # to be the one that is taken off
        super().__exit__(*error)

    def _resized(self, written: Sequence[Value]) -> int:
        """An op may have given storages another size; they are not followed any further than that."""
        engine, grown = self.engine, 0
        self.promote()
        for value in written:
            block, storage = value.block, value.block.storage
            nbytes = self.storages.nbytes(block.bytes())
            if nbytes == block.nbytes:
                continue
            grown += max(0, nbytes - block.nbytes)
            engine.memory += nbytes - block.nbytes
            block.nbytes = engine.storage_bytes[storage] = nbytes
            engine.fix(storage)
        engine.peak = max(engine.peak, engine.memory)
        return grown


class _Closed(Runtime):
    """A Runtime whose budget is closed, in case that somebody still has it: everything passes."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))

    def expose(self, tensor: torch.Tensor, *, lasting: bool) -> None:
        """Nothing is away."""

    def resize(self, handle: Storage, nbytes: int) -> None:
        resize(handle, nbytes)
