"""The dispatch mode under which the program's ops run, are timed and remembered."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tensortide.plans.remat.policies import Policy
from tensortide.recorder.torch_compat import HigherOrderOperator, current_graph_task_id
from tensortide.replays.remat.simulation import OutOfMemory, Thrashing
from tensortide.run.access import Access
from tensortide.run.block import (
    ORDINARY,
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
from tensortide.run.composites import Composites, all_strided
from tensortide.run.copies import keep_result, reading_copies
from tensortide.run.device import asked_bytes, elsewhere
from tensortide.run.evicted import read_by, unreadable
from tensortide.run.execution import Execution
from tensortide.run.in_flight import InFlight, Listener
from tensortide.run.interrupts import Interrupts
from tensortide.run.limit import infeasible, thrashing
from tensortide.run.operators import Operator, generators_of, operator_of, operators
from tensortide.run.out_of_memory import failed
from tensortide.run.residence import Residence
from tensortide.run.settings import Settings, snapshot, stale
from tensortide.run.sizes import NO_ROOM, Room, sizes_on
from tensortide.run.threads import take_off, tracing
from tensortide.run.torch_compat import push_mode
from tensortide.run.unfilled import covers
from tensortide.run.writers import any_written_unseen

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.run.sums import Owners

TRAIL = 1 << 62
"""Trails of ops are below this."""
MOST_WRITES = 64
"""A value written more often than this stays resident."""

Watcher: TypeAlias = Callable[[Callable[..., Any], Operator, Sequence[Any], dict[str, Any]], Any]
"""Wrapper around every op of the program: does the first argument on the others, and returns its result."""
Unwatched: TypeAlias = tuple[Any, Any, Any, Any]
"""An op that ran without watchers: its function, its Room, and the Blocks that it read and made; None where views and
updates have none."""


class Runtime(Residence):
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
        super().__init__(policy, budget_bytes, device, clock)
        self._read, self._written, self._fresh = self.storages.read, self.storages.written, self.storages.fresh
        self.timer = self.engine.timer = self.hardware.timer() if clock is time.perf_counter_ns else None
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
        self.access, self.execution = Access(self), Execution(self)
        self.gradient_came: Callable[[torch.Tensor], None] = self.access.gradient
        """Hook of parameters."""
        self.closed = False
        """True once the budget is: then everything passes."""
        self.keeping = False
        """True while what ops make stays resident: others write it too, unseen."""
        self.graph: Graph | None = None
        """The captured step, if there is one."""
        self.unshared: Owners = 0, 0, 0, 0
        """References to the first operand of a sum of gradients that may be in place; counted with a ``graph``."""
        self.disarm: Callable[[], None] = lambda: None
        """Takes the compiled core away from the thread that opened the budget, where it is called."""
        self.prototypes: list[Recomputable] = []
        """Those that the compiled core makes others from."""
        self.watchers: list[Watcher] = []
        """Wrappers around every op, the last one outermost."""
        self.engine.repeats.watchers = self.watchers
        self.unwatch: Callable[[int, list[Unwatched]], None] | None = None
        """Function of the compiled core that lets so many ops run without watchers, and appends each to a list."""
        self.settles = clock is time.perf_counter_ns and self.timer is None
        """True if the cost of a call is the least time that one like it took, rather than its own."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.closed or tracing():
            return func(*args, **(kwargs or {}))
        operator = operators.get(id(func))
        if operator is None:
            if isinstance(func, HigherOrderOperator):
                return self.alone(self._opaque, func, args, kwargs or {})
            operator = operator_of(func)
        if operator.passed:
            return func(*args, **(kwargs or {}))
        for kind in types:
            if kind not in ORDINARY and not issubclass(kind, torch.nn.Parameter):
                return NotImplemented
        if operator.composite and torch.is_inference_mode_enabled() and all_strided((*args, *(kwargs or {}).values())):
            return self.composites.run(self, func, args, kwargs or {})
        if operator.communicates:
            return self.alone(self.in_flight.run, operator, args, kwargs or {})
        if operator.view and not self.watchers:
            return self._view(operator, args, kwargs or {})
        action: Callable[..., Any] = self._view if operator.view else self._run
        if self.watchers and get_ident() == self.thread:
            for watcher in self.watchers:
                action = functools.partial(watcher, action)
        return self.alone(action, operator, args, kwargs or {})

    def alone(self, action: Callable[..., Any], what: Any, *arguments: Any) -> Any:
        """Do ``action``, while no other thread does one: a collection in the midst of it, too, could take away what is
        about to be read."""
        self.interrupts.enter()
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
            if unreadable(error):
                raise read_by(getattr(what, "func", what)) from error
            if asked_bytes(error) is None:
                raise
            raise failed(self, getattr(what, "func", what), "it cannot be run again") from error
        except Thrashing:
            raise thrashing(self, getattr(what, "func", what)) from None
        finally:
            if collecting:
                gc.enable()
            self.lock.release()
            if self.interrupts.waiting:
                self.interrupts.deliver()

    # Ops

    def _view(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a view: it allocates nothing, but may look at the size of the storage."""
        if self.crowded and not self.interrupts.busy:
            return self.alone(self._view, operator, args, kwargs)
        if operator.resizing:
            self.access.grow(*args)
        for tensor in (args[0],) if operator.lone else tensors_of((*args, *kwargs.values())):
            try:
                value = self.known.get(storage_of(tensor)._cdata)
                if value is None or not (value.block.storage == PENDING or self.engine.resident[value.block.storage]):
                    self.alone(self.access.make_resident, operator, tensor, False)
            except NotImplementedError:
                return self.alone(self._opaque, operator, args, kwargs)
            except TypeError:  # of a Python number: it is made a tensor first, which is new
                return self.alone(self._run, operator, args, kwargs)
        self.engine.ops += 1
        return operator.kernel(*args, **kwargs)

    def _run(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self._catch_up()
        written: Sequence[Value] = ()
        blind: Sequence[Value] = ()
        template: list[Template] | None = None
        named = kwargs
        marks: list[Any] = []
        try:
            if operator.written or operator.statistics:
                written, blind = self._written(operator, args, kwargs)
            if operator.lean and self.storages.all_fixed(written):
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
        if operator.repeatable and (
            0 not in [value.block.nbytes for value in values] or not elsewhere(self.device, tensors)
        ):
            inputs = [None if value in blind else value for value in values] if blind else values
            call = self._recomputable(operator, template, named, inputs, held)
            if operator.random:  # before anything is recomputed
                call.generators = [(g, g.get_state()) for g in generators_of(args, kwargs, tensors)]
        room = self.room = self.sizes.room(operator, marks, template, named, args, kwargs)
        result, cost_ns, most_bytes = self.execution.run(
            operator, args, kwargs, values, held, written, resident, room, call
        )
        unseen = call is not None and any_written_unseen(call.inputs)
        if call is not None and unseen:
            call = None if written else reading_copies(self, call, result)
        if call is not None and (len(call.generators) > 1 or operator.foreign):
            call.generators = [(g, before) for g, before in call.generators if not torch.equal(before, g.get_state())]
        self._note(operator, call, written, blind, result, cost_ns, room, most_bytes)
        if unseen and call is None:
            keep_result(self, result)
        return result

    def _recomputable(
        self,
        operator: Operator,
        args: list[Template],
        kwargs: dict[str, Template],
        inputs: Sequence[Value | None],
        held: list[Storage],
    ) -> Recomputable:
        """The call of ``operator`` that is about to run."""
        call = Recomputable(operator.func, args, kwargs, inputs, self.engine.ops, torch.is_grad_enabled())
        call.held, call.settings = held, self.engine.settings
        call.backward = not call.gradients and current_graph_task_id() >= 0
        return call

    def _catch_up(self) -> None:
        """Take note of what has happened since the last op: communication that is complete, storages that the program
        has released, settings that it has changed unseen."""
        if self.engine.freed or self.in_flight.flights:
            self.in_flight.land()
            self.engine.collect()
        resident_bytes = self.engine.memory + self.engine.away_bytes
        if resident_bytes < self.engine.low:
            self.engine.low = resident_bytes
        if self.engine.settings is not None and stale(self.engine.settings):
            self.changed(snapshot())

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
        engine.trail = (2 * engine.trail + room.mark) % TRAIL
        if self.settles and not self.watchers:
            room.timed(cost_ns)
            cost_ns = room.cost_ns
        if call is not None:
            call.cost_ns, call.nbytes, call.workspace_bytes = cost_ns, grown, workspace_bytes
            call.trail = engine.trail
            if operator.foreach:
                call.divide(len(spoilt or made))
        now = engine.clock_ns
        for value in made:
            value.block.seen_ns = now
        for at, value in enumerate(written):
            alone = call is not None and (bool(call.count) or spoilt == [value])
            self.note_write(value, call if alone else None, at, now)
        if operator.blank and call is not None and (made or covers(result)):
            self.unfilled.add(operator, call, made or [self.known[value.block.key] for value in written], result)
        if operator.resizing:
            grown += self.access.resized(written)
        room.learn(grown, most_bytes)
        if engine.memory > engine.budget:
            self.exceeded()
        elif self.watchers:
            self.promote()
        elif engine.ops > self.pending.due:
            self.pending.sweep(engine.ops)

    def note_write(self, old: Value, call: Recomputable | None, at: int, now: int) -> None:
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
        """Run an op that only updates fixed storages, as optimizers do; it is never recomputed."""
        result, cost_ns, _ = self.execution.run(operator, args, kwargs, values, held, written, resident, NO_ROOM, None)
        self.engine.ran(cost_ns, 0, 0)
        for value in written:
            value.block.written, value.block.seal = self.engine.ops, None
        return result

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
        frame = self.ready(list(values), [], written, False, NO_ROOM)
        run = self.execution.measured if self.sizes.workspace else self.execution.timed
        result, cost_ns, most_bytes = run(kernel, args, kwargs, frame, NO_ROOM)
        for value in written:
            self.note_write(value, None, 0, 0)
        _, grown = self._fresh(result, None)
        engine.ran(cost_ns, grown, max(0, (most_bytes or 0) - grown))
        self.promote()
        self._shrink()
        return result

    def changed(self, settings: Settings) -> None:
        """The program has changed ``settings`` of the process."""
        self.engine.settings = settings
        for call in self.prototypes:
            call.settings = settings

    # The end

    def close(self) -> None:
        """Forget everything, since an error that the program keeps may refer to this: tensors are ordinary tensors
        again."""
        engine = self.engine
        if self.streams is not None:
            self.streams.leave([value.block for value in self.known.values()])
            self.hardware.synchronize()
        for table in (self.known, self.storages.shared, self.pending.values, engine.memories, engine.calls):
            table.clear()
        engine.aside.clear()
        self.in_flight.flights.clear()
        self.unfilled.clear()
        self.prototypes.clear()
        self.closed = True

    def __exit__(self, *error: Any) -> None:
        """Leave, also where modes that were entered later are still on, and in another thread."""
        take_off(self)
        push_mode(self)  # to be the one that is taken off
        super().__exit__(*error)
