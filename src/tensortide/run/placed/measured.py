"""The measured Timeline of a placed step: what the lanes of a Plan did when, beside the predicted one."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.placements.graphs.placed_timeline import PlacedTimeline
from tensortide.plans.model import Compute, Plan, Receive, Send
from tensortide.run.placed.lane import Span
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline


def measured_timeline(graph: Graph, plan: Plan, spans: Sequence[Sequence[Span]]) -> Timeline:
    """The Timeline of a run of ``plan``, from the ``spans`` of each of its lanes.

    Times are since each lane began: let processes meet at a barrier before. An op that runs takes its time on the host;
    a send is handing over, a receive includes the wait. Bytes are not measured, they are 0. Raises PlanError if the
    spans are not those of the lanes.
    """
    import numpy as np

    rows = []
    if [len(each) for each in spans] != [len(lane.steps) for lane in plan.lanes]:
        raise PlanError("the spans are of other lanes than the plan has")
    for number, (lane, each) in enumerate(zip(plan.lanes, spans, strict=True)):
        for span in each:
            step = lane.steps[span.step]
            if isinstance(step, Compute):
                kind, index = Kind.RUN, step.op
            elif isinstance(step, Send | Receive):
                kind, index = (Kind.SEND if isinstance(step, Send) else Kind.RECEIVE), step.storage
            else:
                kind, index = Kind.EVICT, step.storage
            rows.append((kind, index, number, span.start_ns, span.end_ns, 0))
    rows.sort(key=lambda row: (row[3], row[2]))
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    return Timeline(graph, plan.lanes[0].device, lambda: Events(*columns), tuple(lane.device for lane in plan.lanes))


def shares(predicted: PlacedTimeline, measured: Timeline) -> dict[str, tuple[float, float]]:
    """For each device the share of the step in which it runs ops: predicted, and measured."""
    found = {}
    busy, whole = predicted.simulated.busy_ns, predicted.makespan_ns
    runs = measured.events.kind == Kind.RUN
    for number, name in enumerate(measured.lanes):
        own = runs & (measured.events.lane == number)
        ran = int((measured.events.end_ns - measured.events.start_ns)[own].sum())
        found[name] = (busy[number] / whole if whole else 0.0, ran / measured.makespan_ns if len(own) else 0.0)
    return found
