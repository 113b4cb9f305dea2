"""Kernels of the program's ops: run with room made for them, timed, and measured in the first call of each kind."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tensortide.run import allocations
from tensortide.run.block import Recomputable, Storage, Value, storage_of, tensors_of
from tensortide.run.collectives import listening
from tensortide.run.device import asked_bytes
from tensortide.run.operators import Operator
from tensortide.run.out_of_memory import Attempt, repeated
from tensortide.run.sizes import NO_ROOM, Room

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime

TIMED = 4
"""Calls of each kind that are timed by events."""

Ran: TypeAlias = tuple[Any, int, int | None]
"""Result of an op, its duration, and the most bytes that it allocated at once, if that was measured."""


class Execution:
    """Runs kernels for ``runtime``."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(
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
            frame = self.runtime.ready(values, held, written, resident and not operator.foreign, room)
            begun = not written or self.runtime.hardware.fits(room.nbytes + room.workspace_bytes)
            if begun:
                run = self.measured if room.open else self.timed
                return run(self.kernel_of(operator), args, kwargs, frame, room)
            self.runtime.engine.abandon(frame)
        except RuntimeError as error:
            denied = asked_bytes(error)
            if denied is None:
                raise
            asked = denied
        attempt = Attempt(self.runtime, operator, args, kwargs, values, held, written, room, call, begun)
        return repeated(self.runtime, operator.func, asked, room, attempt)

    def measured(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any], frame: Any, room: Room) -> Ran:
        """As ``timed``, with a record of what it allocates, unless a profiler of the program's own is at work."""
        if not allocations.start():
            return self.timed(kernel, args, kwargs, frame, room)
        kept: list[Storage] = []
        try:
            result, cost_ns, _ = self.timed(kernel, args, kwargs, frame, room)
            for tensor in tensors_of((result,)):
                with contextlib.suppress(NotImplementedError):  # it has no storage
                    kept.append(storage_of(tensor))
        finally:
            most_bytes = allocations.stop(self.runtime.device, [s for s in kept if s._cdata not in self.runtime.known])
        return result, cost_ns, most_bytes

    def timed(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any], frame: Any, room: Room) -> Ran:
        """Run an op whose inputs are resident, and for whose outputs there is room. Where ops are queued, its duration
        is an estimate until events tell (``TIMED`` times for each kind of call)."""
        mark = self.runtime.timer.mark() if self.runtime.timer is not None and room.timings < TIMED else None
        began = self.runtime.clock()
        try:
            result = kernel(*args, **kwargs)
            cost_ns = self.runtime.clock() - began
        finally:
            if frame is not None:
                self.runtime.engine.abandon(frame)
        self.runtime.engine.ops += 1
        if self.runtime.timer is not None:
            cost_ns = room.cost_ns or cost_ns
            if mark is not None:
                room.timings += room is not NO_ROOM
                self.runtime.timer.since(mark, functools.partial(self._late, room, cost_ns))
        return result, cost_ns, None

    def _late(self, room: Room, estimate_ns: int, cost_ns: int) -> None:
        """An op was over after ``cost_ns``."""
        self.runtime.engine.late_ns += cost_ns - estimate_ns
        if room is not NO_ROOM:
            room.timed(cost_ns)

    def wait(self) -> None:
        """Take over the durations of all ops so far; waits for the device where they are still queued."""
        if self.runtime.timer is not None:
            self.runtime.timer.wait()
            self.runtime.engine.correct()

    def kernel_of(self, operator: Operator) -> Callable[..., Any]:
        """The kernel of ``operator``; that of another library runs such that the communication inside it is seen."""
        if not operator.foreign:
            kernel: Callable[..., Any] = operator.kernel
            return kernel

        def listened(*args: Any, **kwargs: Any) -> Any:
            self.runtime.listener.heard = False
            with listening(self.runtime.listener):
                return operator.kernel(*args, **kwargs)

        return listened
