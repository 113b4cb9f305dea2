"""The Timeline of a plan of several devices: a lane for each device, copy engine and wire, and every device's bytes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensortide.errors import GraphError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.memory.workspace import Workspace
from tensortide.plans.events import engine_name
from tensortide.plans.events.several import LaneDevices, PlayedLanes, play_lanes
from tensortide.plans.instance import DEVICE, instance
from tensortide.plans.model import Compute, Copy, Evict, Fetch, Plan
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline
from tensortide.timing.clusters import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Row = tuple[int, int, int, int, int, int]
"""An event: its kind, op or storage, lane, start, end, and the device whose bytes it shows."""


class LanesTimeline(Timeline):
    """A plan of several lanes as it was played by the rules of ``plans.events.several``.

    ``lanes`` are the ``devices``, in the order of the plan's, then their copy engines (``gpu0 host out``) and the wires
    (``gpu0 > gpu1``); those that share a queue of the cluster do not overlap. ``resident_bytes`` of an event are those
    of its own device, of a crossing those where it goes, at its start; ``peaks_bytes`` has the most of each device.
    """

    SECTION = "played_lanes"

    def __init__(self, graph: Graph, plan: Plan, played: PlayedLanes) -> None:
        self.plan, self.played = plan, played
        self.devices = tuple(lane.device for lane in plan.lanes)
        copies = (f"{d} {name}" for d, own in zip(self.devices, played.writers, strict=True) for name in own.engines)
        wires = dict.fromkeys(f"{self.devices[each.source]} > {self.devices[each.target]}" for each in played.crossings)
        super().__init__(graph, self.devices[0], self._events, (*self.devices, *copies, *wires))

    @property
    def peaks_bytes(self) -> tuple[int, ...]:
        """The most bytes that each device held."""
        return tuple(self.played.record.peak[own.places[DEVICE]] for own in self.played.writers)

    @functools.cached_property
    def levels(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
        """For each device times, and the bytes that it holds from each on, as ``plans.events.levels`` orders them."""
        import numpy as np

        found, record = [], self.played.record
        for own in self.played.writers:
            held = [each for each in own.held if each.place == DEVICE]
            at = np.array([(record.issue if each.nbytes > 0 else record.end)[each.task] for each in held], np.int64)
            nbytes = np.array([each.nbytes for each in held], np.int64)
            order = np.lexsort((nbytes < 0, np.array([each.step for each in held], np.int64), at))
            level = own.before[DEVICE] + np.cumsum(nbytes[order])
            found.append((np.append([0], at[order]), np.append([own.before[DEVICE]], level)))
        return tuple(found)

    def _events(self) -> Events:
        import numpy as np

        rows = sorted([*self._crossings(), *(row for lane in range(len(self.plan.lanes)) for row in self._steps(lane))])
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        kind, index, lane, start, end, device = columns
        resident = np.zeros(len(kind), np.int64)
        for number, (times, level) in enumerate(self.levels):
            own = device == number
            resident[own] = level[np.searchsorted(times, start[own], side="right") - 1]
        order = np.lexsort((index, kind, lane, start))
        return Events(*(column[order] for column in (kind, index, lane, start, end, resident)))

    def _crossings(self) -> Iterator[_Row]:
        record = self.played.record
        for task, each in enumerate(self.played.crossings):
            lane = self.lanes.index(f"{self.devices[each.source]} > {self.devices[each.target]}")
            yield Kind.SEND, each.storage, lane, record.start[task], record.end[task], each.target

    def _steps(self, lane: int) -> Iterator[_Row]:
        """Yield the ops and transfers of a lane."""
        own, every = self.played.writers[lane], self.played.written[lane].steps
        record = self.played.record
        ran: set[int] = set()
        for number, (step, task) in enumerate(zip(every, own.main, strict=True)):
            times = record.start[task], record.end[task]
            if isinstance(step, Compute):
                yield Kind.RECOMPUTE if step.op in ran else Kind.RUN, step.op, lane, *times, lane
                ran.add(step.op)
            elif isinstance(step, Copy | Fetch):
                leaves = every[number + 1 : number + 2] == (Evict(step.storage),)
                inwards = isinstance(step, Fetch)
                kind = Kind.FETCH if inwards else Kind.OFFLOAD if leaves else Kind.COPY
                engine = self.lanes.index(f"{self.devices[lane]} {engine_name(step.link, inwards=inwards)}")
                yield kind, step.storage, engine, *times, lane


def replay_lanes(
    graph: Graph,
    plan: Plan,
    durations_ns: Sequence[Sequence[int]],
    cluster: Cluster,
    *,
    limited: bool = True,
    workspace: Workspace = True,
) -> LanesTimeline:
    """The Timeline of a ``plan`` of several lanes of ``graph`` on the devices of ``cluster`` that its lanes name, or if
    it names none of them, in their order.

    ``durations_ns``: by lane the time of each op there. ``limited``: no device holds more than its memory. Raises
    PlanError as ``play_lanes``, and for devices that the cluster has not; GraphError for durations that do not fit.
    """
    graph, where = unrolled(graph), LaneDevices.of(cluster, plan)
    if len(durations_ns) != len(plan.lanes):
        raise GraphError(f"{len(durations_ns)} lists of durations for {len(plan.lanes)} lanes: each takes its own")
    stated = [
        instance(graph, graph.index.main_device, times, links=where.links(lane), workspace=workspace)
        for lane, times in enumerate(durations_ns)
    ]
    budgets = [cluster.devices[number].capacity_bytes for number in where.devices] if limited else []
    return LanesTimeline(graph, plan, play_lanes(plan, graph, stated, where, budgets))
