"""Traffic of copy engines in a step: bytes, time, and how much of it the program waited; predicted, and measured."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tensortide.shown import Show

if TYPE_CHECKING:
    from tensortide.replays import TransferTimeline
    from tensortide.run.traced import LiveStep


@dataclass(frozen=True, slots=True)
class Traffic:
    """A copy engine in one step: bytes that it moved, its busy time, and the time in which ops waited for it."""

    moved_bytes: Annotated[int, Show("Moved")]
    busy_ns: Annotated[int, Show("Busy")]
    stall_ns: Annotated[int, Show("Ops waited")]

    @property
    def hidden_share(self) -> Annotated[float | None, Show("Hidden")]:
        """Share of the busy time in which no op waited; None if it was never busy."""
        return max(0.0, 1 - self.stall_ns / self.busy_ns) if self.busy_ns else None


def predicted_traffic(line: TransferTimeline) -> dict[str, Traffic]:
    """The traffic of each engine in a replay."""
    played, stalls = line.played, Counter[str]()
    for stall in played.stalls:
        if stall.by >= 0 and played.engine[stall.by] in played.busy_ns:
            stalls[played.engine[stall.by]] += stall.end_ns - stall.start_ns
    return {
        name: Traffic(played.moved_bytes[name], busy, stalls[name])
        for name, busy in played.busy_ns.items()
        if played.moved_bytes[name]
    }


def measured_traffic(steps: Sequence[LiveStep]) -> dict[str, Traffic]:
    """The traffic of each engine in live steps: means of a step."""
    found = [_traffic(step) for step in steps]
    return {
        name: Traffic(
            *(
                round(statistics.fmean(getattr(one[name], field) if name in one else 0 for one in found))
                for field in ("moved_bytes", "busy_ns", "stall_ns")
            )
        )
        for name in dict.fromkeys(name for one in found for name in one)
    }


def _traffic(step: LiveStep) -> dict[str, Traffic]:
    moved, busy, stalls = Counter[str](), Counter[str](), Counter[str]()
    for transfer in step.transfers:
        if transfer is not None:
            moved[transfer.engine.name] += transfer.nbytes
            busy[transfer.engine.name] += transfer.ended_ns - transfer.began_ns
    for wait in step.waits:
        stalls[wait.transfer.engine.name] += wait.ended_ns - wait.began_ns
    return {name: Traffic(moved[name], busy[name], stalls[name]) for name in moved}
