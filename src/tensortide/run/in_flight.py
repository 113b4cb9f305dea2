"""Communication under way: the memory that it reads and writes stays where it is until it is complete."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tensortide.recorder.recorder import Mode
from tensortide.recorder.torch_compat import HigherOrderOperator
from tensortide.run.block import ORDINARY, Storage, Value, stored, tensors_of
from tensortide.run.collectives import WAIT, followed, work_of
from tensortide.run.operators import Operator, operator_of, operators
from tensortide.run.sizes import NO_ROOM

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime

LANDING_TIMEOUT_S = 20.0
"""Longest wait for communication whose end makes room, before an op fails for lack of it."""
_OURS = 2
"""References to a Work that only its Flight holds: there, and as the argument of the count."""


@dataclass(eq=False, slots=True)
class Flight:
    """A collective, or one end of a message, that has begun."""

    work: Any
    handles: Sequence[Storage]
    """Its arguments, which are held until it is complete."""
    storages: Sequence[int]
    """Their numbers in the engine."""
    results: frozenset[int]
    """Those of them that stand for it, where the Work is not the program's: of a functional collective what it writes,
    or else what it sends."""
    waited: bool = False

    def complete(self) -> bool:
        """True if nothing reads or writes the arguments any more. Some backends only tell who waits."""
        return self.waited or bool(self.work.is_completed())

    def forgotten(self) -> bool:
        """True if nobody is left to wait for it."""
        return not self.results and sys.getrefcount(self.work) <= _OURS


class InFlight:
    """Runs communication ops, and knows those that are not complete.

    What such an op writes can never be recomputed: it would take all the other processes to do it again. What was made
    from the contents before is secured, as before every write.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.flights: list[Flight] = []
        self._functional = False

    def run(self, operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``operator``, or the ops that it is made of."""
        tensors = tensors_of((*args, *kwargs.values()))
        if not operator.by_parts:
            written, _ = self.runtime.storages.all_written(operator, args, kwargs)
            return self._begin(operator.kernel, tensors, written, args, kwargs)
        runtime = self.runtime
        values = list(dict.fromkeys(map(runtime.storages.value, stored(tensors))))
        frame = runtime.ready(values, [], (), False, NO_ROOM)  # it may look at their memory between its ops
        outer, self._functional = self._functional, True
        try:
            result = followed(runtime, operator.func, tensors, args, kwargs)
        finally:
            self._functional = outer
            runtime.engine.abandon(frame)
        if operator.func._opname == WAIT:
            self._waited_for(tensors)
        return result

    def direct(self, method: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call ``method`` of a backend, which no op stands for: it may write every tensor that it is given."""
        tensors = tensors_of((*args, *kwargs.values()))
        written = self.runtime.storages.with_aliases(map(self.runtime.storages.value, stored(tensors)))
        return self._begin(method, tensors, written, args, kwargs)

    def _begin(
        self,
        kernel: Callable[..., Any],
        tensors: list[torch.Tensor],
        written: Sequence[Value],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        runtime, engine = self.runtime, self.runtime.engine
        self.land()
        parts = stored(tensors)
        runtime.unfilled.used(False, parts, ())
        values = list(dict.fromkeys(map(runtime.storages.value, parts)))
        frame = runtime.ready([*values, *written], [], written, False, NO_ROOM)
        handles = [value.block.bytes() for value in values]
        for value in written:
            runtime.note_write(value, None, 0, 0)
        storages = [value.block.storage for value in values]
        for storage in storages:
            engine.begin_use(storage)
        results = [value.block.storage for value in written or values] if self._functional else []
        flight = Flight(None, handles, storages, frozenset(results))
        try:
            result, cost_ns, _ = runtime.execution.timed(kernel, args, kwargs, frame, NO_ROOM)
            flight.work = work_of(result)
        except BaseException:
            self._end(flight)
            raise
        engine.ran(cost_ns, 0, 0)
        if flight.work is not None:
            self.flights.append(flight)
        else:
            self._fix(flight)
        return result

    def land(self) -> None:
        """Unlock the arguments of what is complete, and fix those of what nobody can wait for any more."""
        still: list[Flight] = []
        for flight in self.flights:
            if flight.complete():
                self._end(flight)
            elif flight.forgotten():
                self._fix(flight)
            else:
                still.append(flight)
        self.flights = still

    def wait(self) -> None:
        """Wait for what is under way, but not for ever: another process may wait for this one to go on."""
        until = time.monotonic() + LANDING_TIMEOUT_S
        while self.flights and time.monotonic() < until:
            time.sleep(0.001)
            self.land()

    def waited(self, work: Any) -> None:
        """The program has waited for ``work``."""
        self.runtime.alone(self._waited_for_work, work)

    def _waited_for_work(self, work: Any) -> None:
        for flight in self.flights:
            if flight.work is work:
                self._waited(flight)
        self.land()

    def _waited_for(self, tensors: Sequence[torch.Tensor]) -> None:
        """The program has waited for the results ``tensors``."""
        ready = {value.block.storage for value in map(self.runtime.storages.value, stored(tensors))}
        for flight in self.flights:
            if not ready.isdisjoint(flight.results):
                self._waited(flight)
        self.land()

    def _waited(self, flight: Flight) -> None:
        """Note that ``flight`` is over; the current stream, which is the one that waits, now uses its arguments."""
        flight.waited = True
        if self.runtime.streams is not None:
            self.runtime.streams.use([self.runtime.known[handle._cdata].block for handle in flight.handles])

    def _end(self, flight: Flight) -> None:
        """Unlock the arguments of ``flight``."""
        for storage in flight.storages:
            self.runtime.engine.end_use(storage)

    def _fix(self, flight: Flight) -> None:
        """Fix the arguments of ``flight``, whose end nobody can tell."""
        for storage in flight.storages:
            if not self.runtime.engine.fixed[storage]:
                self.runtime.engine.fix(storage)
        self._end(flight)


class Listener(Mode):
    """Sees the communication inside an op of another library, which runs as a whole: such an op must not run twice."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime
        self.heard = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        operator = operators.get(id(func)) or Operator(func)
        if not operator.communicates and not operator.foreign:
            return func(*args, **kwargs)
        if not ORDINARY.issuperset(types):
            return NotImplemented
        operator = operator_of(func)
        self.heard = self.heard or operator.communicates
        if operator.by_parts or operator.foreign:
            return followed(self, func, tensors_of((*args, *kwargs.values())), args, kwargs)
        return self.runtime.alone(self.runtime.in_flight.run, operator, args, kwargs)
