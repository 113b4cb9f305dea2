"""Steps as they were really run: every op, when it began and ended, what went and what came back; as a Plan and as a
Timeline of the captured Graph."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.memory.accumulate import accumulate_apart
from tensortide.plans import Lane, Plan
from tensortide.replays import replay
from tensortide.replays.remat.outcome import TraceKind
from tensortide.replays.remat.steps import steps
from tensortide.run.step_match import Seen, StepMatch
from tensortide.run.tables import NOTHING

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.memory import Timeline
    from tensortide.run.runtime import Runtime

KEPT = 64
"""Steps that are remembered at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """An op that ran: its index in the graph (-1: of an earlier step), whether it ran before, when it began and ended,
    and the bytes that were resident with its results."""

    op: int
    recompute: bool
    began_ns: int
    ended_ns: int
    resident_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class LiveStep:
    """One step of the program that ran the ops of ``graph``.

    ``happened``: ops that ran or were recomputed, storages evicted or released for good, in order
    (``replays.remat.outcome``), with ops and storages of the graph. ``runs``: every run of an op. ``evictions``: of all
    storages, those that the graph does not have too. ``before_bytes``: resident when it began. ``workspace``: what is
    resident includes that of kernels, which had gone ``overrun_bytes`` over the budget when it began. A recomputed op
    has the time of its kernel, as when it ran first.
    """

    graph: Graph
    device: str
    happened: tuple[tuple[int, int], ...]
    runs: tuple[Ran, ...]
    evictions: int
    before_bytes: int
    workspace: bool
    overrun_bytes: int

    @property
    def peak_bytes(self) -> int:
        return max(run.resident_bytes for run in self.runs)

    @property
    def recomputations(self) -> int:
        return sum(run.recompute for run in self.runs)

    @property
    def base_ns(self) -> int:
        """Time of the ops of the program."""
        return sum(run.ended_ns - run.began_ns for run in self.runs if not run.recompute)

    @property
    def recompute_ns(self) -> int:
        """Time of the recomputed ops."""
        return sum(run.ended_ns - run.began_ns for run in self.runs if run.recompute)

    @property
    def durations_ns(self) -> tuple[int, ...]:
        """Duration of the first run of each op of the graph; views take none."""
        return tuple(run.ended_ns - run.began_ns for run in self.runs if not run.recompute)

    def plan(self) -> Plan:
        """The step as it was executed, as a Plan of the graph. Raises PlanError if an op of an earlier step was
        recomputed."""
        strange = sum(run.op == NOTHING for run in self.runs)
        if strange:
            raise PlanError(f"{strange} ops of an earlier step were recomputed: no plan of one step says that")
        return Plan(self.graph.index.digest, (Lane(self.device, tuple(steps(self.graph, self.happened))),))

    def timeline(self) -> Timeline:
        """Bytes of the storages of the graph during each of ``runs``, which are the ops of ``Timeline.graph``. What
        else the program has in memory is only in their ``resident_bytes``. Raises PlanError as ``plan``."""
        return replay(self.graph, self.plan(), workspace=self.workspace)


class Tracer(StepMatch):
    """Remembers the latest steps that ran the ops of ``graph``.

    The first one shows which gradients are summed out of place, because a budget is open, that the graph sums in place:
    it is not remembered, and the later ones are those of the graph as it is run here (``memory.accumulate``).
    """

    def __init__(self, runtime: Runtime, graph: Graph) -> None:
        super().__init__(runtime, graph)
        self.traced: deque[LiveStep] = deque(maxlen=KEPT)
        self._happened: list[tuple[int, int]] = []
        self._runs: list[Ran] = []
        self._evictions = self._before_bytes = self._overrun_bytes = 0

    def begins(self) -> None:
        self._happened, self._runs, self._evictions = [], [], 0
        self._overrun_bytes = self.runtime.engine.overrun_bytes

    def hears(self, kind: int, index: int, began_ns: int, ended_ns: int, resident_bytes: int) -> None:
        self._evictions += kind == TraceKind.EVICT
        if index != NOTHING or kind == TraceKind.RECOMPUTE:
            self._happened.append((kind, index))
        if kind == TraceKind.RECOMPUTE:
            self._runs.append(Ran(index, True, began_ns, ended_ns, resident_bytes))

    def takes(self, op: int, seen: Seen) -> None:
        if not op:
            self._before_bytes = seen.before_bytes
        self._happened.append((TraceKind.RUN, op))
        self._runs.append(Ran(op, False, seen.began_ns, seen.ended_ns, seen.resident_bytes))

    def ends(self) -> None:
        if self.sums:
            self.along(accumulate_apart(self.graph, self.sums))
            return
        self.traced.append(
            LiveStep(
                graph=self.graph,
                device=str(self.runtime.device),
                happened=tuple(self._happened),
                runs=tuple(self._runs),
                evictions=self._evictions,
                before_bytes=self._before_bytes,
                workspace=self.runtime.sizes.workspace,
                overrun_bytes=self._overrun_bytes,
            )
        )
