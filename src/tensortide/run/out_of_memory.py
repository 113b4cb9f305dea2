"""An answer to the error of a device whose memory has run out although the budget is not reached: evict, run again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tensortide.errors import BudgetInfeasible, BudgetLowered
from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.block import Recomputable, Value, storage_of, tensors_of
from tensortide.run.device import asked_bytes
from tensortide.run.operators import Operator
from tensortide.run.sizes import NO_ROOM, Room
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.run.execution import Ran
    from tensortide.run.residence import Residence
    from tensortide.run.runtime import Runtime

T = TypeVar("T")
MOST_ATTEMPTS = 5
LEAST_BYTES = 2 << 20
"""Fewest bytes to evict for another attempt."""


@dataclass(slots=True)
class Attempt:
    """An op of the program that found too little memory, to be run again. ``begun``: it may have written something."""

    runtime: Runtime
    operator: Operator
    args: Sequence[Any]
    kwargs: dict[str, Any]
    values: Sequence[Value]
    held: list[Any]
    written: Sequence[Value]
    room: Room
    call: Recomputable | None
    begun: bool

    def __call__(self) -> Ran:
        runtime, room = self.runtime, self.room
        if self.begun:
            self._undo()
        frame = runtime.ready(self.values, self.held, self.written, False, room)
        if self.written and not runtime.hardware.fits(room.nbytes + room.workspace_bytes):
            runtime.engine.abandon(frame)
            raise _DoesNotFit
        self.begun = True
        ran = runtime.execution.timed(runtime.execution.kernel_of(self.operator), self.args, self.kwargs, frame, room)
        if room is not NO_ROOM:
            room.learn(sum({s._cdata: s.nbytes() for s in map(storage_of, tensors_of((ran[0],)))}.values()), None)
        return ran

    def _undo(self) -> None:
        """Put back what the failed op may have changed: generators; and what it overwrites, by recomputing that."""
        runtime, engine = self.runtime, self.runtime.engine
        if self.operator.foreign and runtime.listener.heard:
            raise failed(runtime, self.operator.func, "other processes took part in it")
        if self.operator.foreign:
            raise failed(runtime, self.operator.func, "it is of another library, and may have done part of its work")
        if self.operator.random and self.call is None:
            raise failed(runtime, self.operator.func, "it draws random numbers that cannot be drawn again")
        for generator, state in self.call.generators if self.call is not None else ():
            generator.set_state(state)
        runtime.promote()
        storages = dict.fromkeys([value.block.storage for value in self.written])
        if any(engine.fixed[storage] or engine.pinned[storage] for storage in storages):
            raise failed(runtime, self.operator.func, "it may have written to its inputs already")
        for storage in storages:
            if engine.resident[storage]:
                engine.evict(storage)
        self.begun = False


class _DoesNotFit(RuntimeError):
    """The allocator was asked beforehand."""


def repeated(runtime: Residence, what: Any, asked: int, room: Room, attempt: Callable[[], T]) -> T:
    """The result of ``attempt``, which has failed: it was denied ``asked`` bytes (0: unknown) and needs ``room``.

    First as many bytes are evicted as were asked for, then twice as many, and so on; at last everything. The budget is
    lowered to what was resident before or is then, since so much was to be had; where later ops need more and nothing
    can be evicted, they try. Raises BudgetInfeasible if all of that is in vain.
    """
    engine, before, resident = runtime.engine, runtime.engine.budget, runtime.engine.memory
    bare = False
    for count in range(MOST_ATTEMPTS):
        engine.unlock_all()
        more = max(asked, room.nbytes, LEAST_BYTES) << count
        limit = max(1, min(before, engine.memory + room.nbytes) - more)
        engine.budget, engine.overrun_bytes = before if bare else limit, 0
        runtime.hardware.reclaim()
        try:
            result = attempt()
            engine.budget = min(before, max(resident, engine.memory + room.nbytes))
            _warn(runtime, what, before)
            return result
        except OutOfMemory:
            if bare:
                break
            bare = True  # everything is evicted that can be: once more without a limit
        except _DoesNotFit:
            pass
        except RuntimeError as error:
            denied = asked_bytes(error)
            if denied is None:
                engine.budget = before
                raise
            if bare:
                break
            asked = max(asked, denied)
        except BaseException:
            engine.budget = before
            raise
    engine.budget = before
    raise failed(runtime, what, "all that can be evicted was" if bare else f"nor did {MOST_ATTEMPTS} more attempts")


def failed(runtime: Residence, what: Any, reason: str) -> BudgetInfeasible:
    """The error for an op that cannot be run again."""
    engine = runtime.engine
    return BudgetInfeasible(
        f"{what} found no memory left on {runtime.device}, where {format_bytes(engine.memory)} of tensors are resident "
        f"under a budget of {format_bytes(engine.budget)}; {reason}. Give a budget that leaves more for workspace, "
        "fragmentation and other programs, or make the batch smaller."
    )


def _warn(runtime: Residence, what: Any, before: int) -> None:
    if runtime.lowered_from:
        return
    runtime.lowered_from = before
    warnings.warn(
        f"{what} found no memory left on {runtime.device} under a budget of {format_bytes(before)}: tensors were "
        f"evicted, it ran again, and the budget is {format_bytes(runtime.engine.budget)} from now on. A budget "
        "of that or less avoids it. This is said once.",
        BudgetLowered,
        stacklevel=2,
    )
