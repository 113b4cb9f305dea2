"""A program followed along its captured Graph by a record of its steps: ops, evictions and transfers, as measured."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.plans import Lane, Plan
from tensortide.replays import replay
from tensortide.replays.remat.simulation import steps
from tensortide.run.step_listener import StepListener
from tensortide.run.step_match import Seen
from tensortide.run.tables import NOTHING
from tensortide.timelines import StorageTimeline, Timeline
from tensortide.timelines.events import Events, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensortide.graph.model import Graph
    from tensortide.memory.lifetimes import Ints
    from tensortide.run.moved_storages import Wait
    from tensortide.run.runtime import Runtime
    from tensortide.run.transfers import Transfer
    from tensortide.timing.links import Link

KEPT = 64
"""Steps that are remembered at once."""
WATCHED = 2
"""Steps that are remembered of a plan that is followed: the compiled core runs what it leaves alone in later ones."""


class LiveStep(Timeline):
    """The Timeline of one step of the program, as measured.

    Evictions are those of all storages, also of those that the graph does not have. ``before_bytes`` were resident when
    the step began. ``workspace``: of each op of the graph, the bytes that it took only while it ran. Resident bytes
    include them; they had gone ``overrun_bytes`` over the budget when the step began. A recomputed op has the time of
    its kernel, as in its first run. ``transfers`` began in the step (None: of what was kept beside the tiers), and
    ``waits`` are the times in which the program waited for one; ``home``: that of the plan which was followed.
    """

    def __init__(
        self,
        graph: Graph,
        device: str,
        columns: Sequence[Sequence[int]],
        *,
        before_bytes: int,
        workspace: Sequence[int],
        overrun_bytes: int,
        transfers: Sequence[Transfer | None] = (),
        waits: Sequence[Wait] = (),
        home: Mapping[int, str] | None = None,
    ) -> None:
        links = sorted({transfer.link for transfer in transfers if transfer is not None})
        engines = [f"{link} {way}" for link in links for way in ("out", "in")]
        super().__init__(graph, device, lambda: self._events(columns), (device, *engines))
        self.before_bytes = before_bytes
        self.workspace = tuple(workspace)
        self.overrun_bytes = overrun_bytes
        self.transfers, self.waits, self.home = tuple(transfers), tuple(waits), dict(home or {})

    def _events(self, columns: Sequence[Sequence[int]]) -> Events:
        """Make the events. Those of transfers have their times now that they are over."""
        import numpy as np

        kind, index, start, end, resident = (np.asarray(column, np.int64) for column in columns)
        lane = 0 * kind
        for at, transfer in zip(_moves(kind), self.transfers, strict=True):
            if transfer is None:
                continue
            lane[at] = self.lanes.index(transfer.engine.name)
            start[at], end[at] = transfer.began_ns, transfer.ended_ns
        return Events(kind, index, lane, start, end, resident)

    @property
    def durations_ns(self) -> tuple[int, ...]:
        """The duration of each op of the graph when the program ran it; views take none."""
        return tuple(self.run_ns[~self.is_recompute].tolist())

    def plan(self) -> Plan:
        """The Plan of the graph that was executed. Raises PlanError if an op of an earlier step was recomputed, or if
        what no plan moves was kept beside the tiers."""
        if None in self.transfers:
            raise PlanError("the step kept storages in host memory beside the tiers of its plan: no plan says that")
        foreign = int((self.run_op == NOTHING).sum())
        if foreign:
            raise PlanError(f"{foreign} ops of an earlier step were recomputed: a plan of one step cannot say that")
        events = zip(self.events.kind.tolist(), self.events.index.tolist(), strict=True)
        own = ((Kind(kind), index) for kind, index in events if index != NOTHING)
        moved = zip(_moves(self.events.kind), self.transfers, strict=True)
        links = (t.link for at, t in moved if t is not None and self.events.index[at] != NOTHING)
        found = tuple([step for _, step in steps(self.recorded, own, home=self.home, links=links)])
        return Plan(self.recorded.index.digest, (Lane(self.device, found),), self.home)

    def replayed(self, links: Sequence[Link] | None = None) -> StorageTimeline:
        """The Timeline of ``plan`` with the measured durations. It has the bytes of the graph's storages alone; those
        of the LiveStep include whatever else the program keeps. ``links``: of a step that moved storages.
        Raises PlanError as ``plan``."""
        times = self.durations_ns
        return replay(self.recorded, self.plan(), durations_ns=times, workspace=self.workspace, links=links)


def _moves(kinds: Ints) -> Iterator[int]:
    """Positions of the transfers among events."""
    yield from ((kinds == Kind.COPY) | (kinds == Kind.FETCH)).nonzero()[0].tolist()


class Tracer(StepListener):
    """Remembers the latest steps that ran the ops of ``graph``; with the compiled core no more than the first
    ``most`` of them."""

    def __init__(
        self, runtime: Runtime, graph: Graph, home: Mapping[int, str] | None = None, most: int | None = None
    ) -> None:
        self.runtime, self.graph, self.most = runtime, graph, most
        self.home = dict(home or {})
        self.traced: deque[LiveStep] = deque(maxlen=KEPT)
        self._rows: list[tuple[int, ...]] = []
        self._workspace = array("q")
        self._transfers: list[Transfer | None] = []
        self._waits: list[Wait] = []
        self._before_bytes = self._overrun_bytes = 0
        runtime.engine.when_waited = self._waits.append

    @property
    def _done(self) -> bool:
        """True if it remembers as many steps as it should."""
        return self.most is not None and self.runtime.unwatch is not None and len(self.traced) >= self.most

    def unneeded(self, op: int) -> int:
        return len(self.graph) if self._done else 0

    def begins(self) -> None:
        self._rows = []
        self._transfers = []
        self._workspace = array("q")
        self._overrun_bytes = self.runtime.engine.overrun_bytes

    def hears(self, kind: int, index: int, began_ns: int, ended_ns: int, resident_bytes: int) -> None:
        if self._done:
            return
        self._rows.append((kind, index, began_ns, ended_ns, resident_bytes))

    def moves(self, kind: int, storage: int, transfer: Transfer | None, resident_bytes: int) -> None:
        if self._done:
            return
        self._transfers.append(transfer)
        self.hears(kind, storage, 0, 0, resident_bytes)

    def takes(self, op: int, seen: Seen) -> None:
        if self._done:
            return
        if not op:
            self._before_bytes = seen.before_bytes
        self._workspace.append(seen.workspace_bytes)
        self.hears(Kind.RUN, op, seen.began_ns, seen.ended_ns, seen.resident_bytes)

    def ends(self) -> None:
        waits, self._waits[:] = tuple(self._waits), []
        if self._done:
            return
        self.traced.append(
            LiveStep(
                self.graph,
                str(self.runtime.device),
                [array("q", column) for column in zip(*self._rows, strict=True)],
                before_bytes=self._before_bytes,
                workspace=self._workspace,
                overrun_bytes=self._overrun_bytes,
                transfers=self._transfers,
                waits=waits,
                home=self.home,
            )
        )

    def leaves(self, op: int, expected: str, came: str) -> None:
        self._waits.clear()
