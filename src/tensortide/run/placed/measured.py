"""The measured Timeline of a placed step: what the lanes of a Plan did when, beside the predicted one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans.model import Compute, Evict, Plan, Receive, Send
from tensortide.run.placed.groups import ExchangeSpan
from tensortide.run.placed.lane import Span
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.timeline import Timeline

_Row: TypeAlias = tuple[int, int, int, int, int, int]
"""Kind, op or storage, lane, start, end, bytes."""


def measured_timeline(
    graph: Graph,
    plan: Plan,
    spans: Sequence[Sequence[Span]],
    began_ns: Sequence[int] = (),
    exchanges: Mapping[str, Sequence[ExchangeSpan]] = MappingProxyType({}),
) -> Timeline:
    """The Timeline of a run of ``plan``, from the ``spans`` of each of its lanes.

    Its lanes are the devices, then every direction between two of them that has messages, then the links on which
    gradients leave: ``exchanges`` has by their names the all-reduces on each. Times are since the first
    lane began, by ``began_ns`` of each on one clock; without, since each began: let processes meet at a barrier before.
    An op that runs takes its time on the host. A message takes from when both sides were at it until it was received.
    Bytes are not measured, they are 0. Raises PlanError if the spans are not those of the lanes.
    """
    import numpy as np

    if [len(each) for each in spans] != [len(lane.steps) for lane in plan.lanes]:
        raise PlanError("the spans are of other lanes than the plan has")
    first = min(began_ns, default=0)
    late = [began - first for began in began_ns] or [0] * len(plan.lanes)
    times = [[(at + start, at + end) for _, start, end in each] for at, each in zip(late, spans, strict=True)]
    moves = list(_messages(plan, times))
    links = sorted({(source, target) for source, target, *_ in moves})
    apart = {op for runs in exchanges.values() for run in runs for op in run.ops}
    rows = [row for row in _own(plan, times) if row[0] != Kind.RUN or row[1] not in apart]
    for source, target, storage, start, end in moves:
        rows.append((Kind.SEND, storage, len(plan.lanes) + links.index((source, target)), start, end, 0))
    for number, runs in enumerate(exchanges.values(), len(plan.lanes) + len(links)):
        for run in runs:
            rows += [(Kind.RUN, op, number, run.start_ns - first, run.end_ns - first, 0) for op in run.ops]
    rows.sort(key=lambda row: (row[3], row[2]))
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    names = [lane.device for lane in plan.lanes]
    lanes = (*names, *(f"{names[source]} > {names[target]}" for source, target in links), *exchanges)
    return Timeline(graph, names[0], lambda: Events(*columns), lanes)


def _own(plan: Plan, times: Sequence[Sequence[tuple[int, int]]]) -> Iterator[_Row]:
    """Ops and evictions of each lane."""
    for number, lane in enumerate(plan.lanes):
        for step, (start, end) in zip(lane.steps, times[number], strict=True):
            if isinstance(step, Compute):
                yield Kind.RUN, step.op, number, start, end, 0
            elif isinstance(step, Evict):
                yield Kind.EVICT, step.storage, number, start, end, 0


def _messages(plan: Plan, times: Sequence[Sequence[tuple[int, int]]]) -> Iterator[tuple[int, int, int, int, int]]:
    """Source, target, storage, start and end of each message: sends of a storage from lane to lane arrive in order."""
    sent: defaultdict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    for source, lane in enumerate(plan.lanes):
        for step, (start, _) in zip(lane.steps, times[source], strict=True):
            if isinstance(step, Send):
                sent[source, step.lane, step.storage].append(start)
    for target, lane in enumerate(plan.lanes):
        for step, (start, end) in zip(lane.steps, times[target], strict=True):
            if isinstance(step, Receive):
                began = sent[step.lane, target, step.storage].popleft()
                yield step.lane, target, step.storage, min(end, max(began, start)), end


def busy_shares(line: Timeline, ranks: int) -> list[float]:
    """For each of the first lanes, so many ``ranks``, the share of the step in which it runs ops."""
    events, whole = line.events, line.makespan_ns or 1
    ns, runs = events.end_ns - events.start_ns, events.kind == Kind.RUN
    return [int(ns[runs & (events.lane == rank)].sum()) / whole for rank in range(ranks)]
