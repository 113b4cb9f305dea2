"""A run to be shown, be it of a policy or of a plan: what was executed, the memory it took, and what was evicted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from tensortide.plans import Compute, Evict, Plan
from tensortide.replays import replay
from tensortide.reports.simulation.records import Curves
from tensortide.timelines import timeline
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.remat.recording import Recording
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Run:
    """What was executed of ``graph``, with ``durations_ns``; ``evicted``: per storage how often it made room and how
    often it came back."""

    graph: Graph
    durations_ns: tuple[int, ...]
    curves: Curves
    evicted: dict[int, tuple[int, int]]


def run_of(recording: Recording, schedule: Schedule, told: Telemetry, *, workspace: bool) -> Run:
    """The run that ``told`` tells of."""
    moments, origin = told.moments, schedule.origin
    rows = moments.ran
    ops = origin[moments.indexes[rows]]
    rows, ops = rows[ops >= 0], ops[ops >= 0]
    again = [int(kind == Kind.RECOMPUTE) for kind in moments.kinds[rows].tolist()]
    curves = Curves(
        op=tuple(ops.tolist()),
        again=tuple(again),
        start_ns=tuple(moments.clock_ns[rows].tolist()),
        before_bytes=_before(recording.graph, schedule.device, again, workspace=workspace),
        after_bytes=tuple(moments.total_bytes[rows].tolist()),
        pinned_bytes=tuple(moments.pinned_bytes[rows].tolist()),
        locked_bytes=tuple(moments.locked_bytes[rows].tolist()),
    )
    evicted = {s.graph_storage: (s.forced, s.remats) for s in told.storages if s.forced or s.remats}
    return Run(recording.graph, recording.durations_ns, curves, evicted)


def run_of_plan(recording: Recording, plan: Plan, *, workspace: bool) -> Run:
    """``plan`` played. Raises PlanError if it does not execute the step."""
    graph, durations = recording.graph, recording.durations_ns
    played = replay(graph, plan, workspace=workspace)
    ops = [step.op for step in plan.lanes[0].steps if isinstance(step, Compute)]
    first = {op: at for at, op in reversed(list(enumerate(ops)))}
    again = [int(first[op] != at) for at, op in enumerate(ops)]
    starts = [0, *accumulate(durations[op] for op in ops)][: len(ops)]
    curves = Curves(
        op=tuple(ops),
        again=tuple(again),
        start_ns=tuple(starts),
        before_bytes=_before(graph, played.device, again, workspace=workspace),
        after_bytes=tuple(played.resident.tolist()),
    )
    return Run(graph, durations, curves, _returns(graph, plan))


def _before(graph: Graph, device: str, again: Iterable[int], *, workspace: bool) -> tuple[int, ...]:
    """Bytes resident without a budget at the op of the step that is at hand, for each op that is executed."""
    resident = timeline(graph, device=device, workspace=workspace).resident.tolist()
    before, at = [], 0
    for is_again in again:
        before.append(resident[min(at, len(resident) - 1)])
        at += not is_again
    return tuple(before)


def _returns(graph: Graph, plan: Plan) -> dict[int, tuple[int, int]]:
    """How often ``plan`` evicts what it then computes again, for each such storage."""
    gone: set[int] = set()
    returns: dict[int, int] = {}
    for step in plan.lanes[0].steps:
        if isinstance(step, Evict):
            gone.add(step.storage)
        elif isinstance(step, Compute):
            for storage in gone.intersection(graph.index.allocated[step.op]):
                returns[storage] = returns.get(storage, 0) + 1
                gone.remove(storage)
    return {storage: (count, count) for storage, count in returns.items()}
