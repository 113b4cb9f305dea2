"""Measured steps: Timelines of the captured Graph as the program ran it under a budget."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.memory.accumulate import accumulate_apart
from tensortide.plans import Lane, Plan
from tensortide.replays import replay
from tensortide.replays.remat.steps import steps
from tensortide.run.step_match import Seen, StepMatch
from tensortide.run.tables import NOTHING
from tensortide.timelines import StorageTimeline, Timeline, events_of
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensortide.graph.model import Graph
    from tensortide.run.runtime import Runtime

KEPT = 64
"""Steps that are remembered at once."""


class LiveStep(Timeline):
    """The Timeline of one step of the program, as measured.

    Evictions are those of all storages, also of those that the graph does not have. ``before_bytes`` were resident when
    the step began. ``workspace``: resident bytes include the workspace of kernels, which had gone ``overrun_bytes``
    over the budget when the step began. A recomputed op has the time of its kernel, as in its first run.
    """

    def __init__(
        self,
        graph: Graph,
        device: str,
        columns: Sequence[Sequence[int]],
        *,
        before_bytes: int,
        workspace: bool,
        overrun_bytes: int,
    ) -> None:
        super().__init__(graph, device, lambda: events_of(*columns))
        self.before_bytes = before_bytes
        self.workspace = workspace
        self.overrun_bytes = overrun_bytes

    @property
    def durations_ns(self) -> tuple[int, ...]:
        """The duration of each op of the graph when the program ran it; views take none."""
        return tuple(self.run_ns[~self.is_recompute].tolist())

    def plan(self) -> Plan:
        """The Plan of the graph that was executed. Raises PlanError if an op of an earlier step was recomputed."""
        foreign = int((self.run_op == NOTHING).sum())
        if foreign:
            raise PlanError(f"{foreign} ops of an earlier step were recomputed: a plan of one step cannot say that")
        events = zip(self.events.kind.tolist(), self.events.index.tolist(), strict=True)
        own = ((kind, index) for kind, index in events if index != NOTHING)
        return Plan(self.recorded.index.digest, (Lane(self.device, tuple(steps(self.recorded, own))),))

    def replayed(self) -> StorageTimeline:
        """The Timeline of ``plan`` with the measured durations. It has the bytes of the graph's storages alone; those
        of the LiveStep include whatever else the program keeps. Raises PlanError as ``plan``."""
        return replay(self.recorded, self.plan(), durations_ns=self.durations_ns, workspace=self.workspace)


class Tracer(StepMatch):
    """Remembers the latest steps that ran the ops of ``graph``.

    The first one shows which gradients are summed out of place, because a budget is open, that the graph sums in place:
    it is not remembered, and the later ones are those of the graph as it is run here (``memory.accumulate``).
    """

    def __init__(self, runtime: Runtime, graph: Graph) -> None:
        super().__init__(runtime, graph)
        self.traced: deque[LiveStep] = deque(maxlen=KEPT)
        self._columns: tuple[array[int], ...] = ()
        self._before_bytes = self._overrun_bytes = 0

    def begins(self) -> None:
        self._columns = tuple(array("q") for _ in range(5))
        self._overrun_bytes = self.runtime.engine.overrun_bytes

    def hears(self, kind: int, index: int, began_ns: int, ended_ns: int, resident_bytes: int) -> None:
        for column, entry in zip(self._columns, (kind, index, began_ns, ended_ns, resident_bytes), strict=True):
            column.append(entry)

    def takes(self, op: int, seen: Seen) -> None:
        if not op:
            self._before_bytes = seen.before_bytes
        self.hears(Kind.RUN, op, seen.began_ns, seen.ended_ns, seen.resident_bytes)

    def ends(self) -> None:
        if self.sums:
            self.along(accumulate_apart(self.graph, self.sums))
            return
        self.traced.append(
            LiveStep(
                self.graph,
                str(self.runtime.device),
                self._columns,
                before_bytes=self._before_bytes,
                workspace=self.runtime.sizes.workspace,
                overrun_bytes=self._overrun_bytes,
            )
        )
