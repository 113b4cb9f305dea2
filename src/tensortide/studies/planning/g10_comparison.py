"""G10's policies beside our plan on the same machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from tensortide.compiled import compiling_s
from tensortide.errors import ExitStatus
from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.model import Plan
from tensortide.plans.planned import Planned
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.under_budget.search import EFFORT, Stopped, Watch
from tensortide.replays.g10 import G10Machine, G10Outcome, Trace, Traffic, outcomes
from tensortide.replays.g10.overlap import overlap_ns
from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.planning import plan
from tensortide.studies.planning.warm import warm_up_policies
from tensortide.timing.links import Link

OURS = "ours"
"""The name of our plan in a comparison."""
STOPPED = "interrupted before it was played"
LATE = "the time limit was reached before it was played"
"""Reasons for which a policy has no outcome."""
TIME_LIMIT_S = 60.0
"""Seconds after which a search ends that is given no limit."""
_POLICIES = 0.5
"""Share of the time limit for the policies."""


class Compared(msgspec.Struct, frozen=True):
    """Policies and, as ``OURS``, our plan on ``machine``. ``planned`` is that plan, found for the ``links`` of a way to
    use the wire, ``way``; None if none was found, and ``excluded`` if it is proved that there is none."""

    machine: G10Machine
    outcomes: tuple[G10Outcome, ...]
    planned: Planned | None
    way: str = ""
    links: tuple[Link, ...] = ()
    excluded: bool = False

    @property
    def status(self) -> ExitStatus:
        """The answer to whether there is a plan of ours."""
        return ExitStatus.HOLDS if self.planned else ExitStatus.FAILS if self.excluded else ExitStatus.UNDECIDED

    def of(self, policy: str) -> G10Outcome:
        """The outcome of a policy, or of ``OURS``."""
        return next(outcome for outcome in self.outcomes if outcome.policy == policy)


def compare_policies(
    recording: Recording,
    trace: Trace,
    machine: G10Machine,
    names: Sequence[str],
    *,
    device: str = "",
    compat: bool = False,
    recompute: bool = True,
    effort: float = EFFORT,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
    known: Mapping[str, Plan] = MappingProxyType({}),
    watch: Watch | None = None,
) -> Compared:
    """Play the policies called ``names`` and plan on the same machine.

    The host has the wire for itself, or shares it with the drive: the fastest of the plans for these is ours, which may
    also ``recompute``. ``compat`` as for the policies. ``known``: plans that ours is no slower than.
    ``time_limit_s``, ``work_limit`` and ``watch`` are those of ``plan``; policies are played in half of the time, and
    count no work.
    """
    warm_up_policies()
    limit = SearchLimit.given(time_limit_s, work_limit, otherwise_s=TIME_LIMIT_S, apart_s=compiling_s)
    playing = SearchLimit(seconds=_POLICIES * limit.seconds_left)
    found = [_outcome(trace, machine, name, compat, watch, playing) for name in names]
    best: tuple[Planned, str, tuple[Link, ...]] | None = None
    is_stopped, excluded = False, True
    device = recording.graph.index.device(device)
    ways = machine.links()
    for number, (way, links) in enumerate(ways.items()):
        is_stopped = watch is not None and not watch(None if best is None else best[0].step_ns, trace.ideal_ns)
        if is_stopped:
            break
        planned = plan(
            recording,
            machine.device_bytes,
            device=device,
            links=links,
            recompute=recompute,
            effort=effort,
            time_limit_s=limit.seconds_left / (len(ways) - number),
            work_limit=limit.work_left / len(ways),
            known={**known, **_known(best)},
            watch=watch,
        )
        excluded = excluded and planned.status == "infeasible"
        if planned.step_ns is not None and (best is None or planned.step_ns < (best[0].step_ns or 0)):
            best = planned, way, links
        if best is not None and best[0].step_ns == best[0].base_ns:
            break
    if best is None:
        reason = STOPPED if is_stopped else f"no plan fits {machine.device_bytes:,} bytes"
        nothing = G10Outcome(policy=OURS, ideal_ns=trace.ideal_ns, reason=reason)
        return Compared(machine, (*found, nothing), None, excluded=excluded and not is_stopped)
    planned, way, links = best
    return Compared(machine, (*found, _ours(recording, planned, links)), planned, way, links)


def _known(best: tuple[Planned, str, tuple[Link, ...]] | None) -> dict[str, Plan]:
    """The best plan so far, from which the next way to use the wire begins."""
    return {} if best is None or best[0].plan is None else {f"{best[0].source} ({best[1]})": best[0].plan}


def _outcome(
    trace: Trace, machine: G10Machine, name: str, compat: bool, watch: Watch | None, limit: SearchLimit
) -> G10Outcome:
    """The outcome of a policy; none once ``watch`` has ended the search, or at the end of ``limit``."""

    def look() -> None:
        if watch is not None and not watch(None, trace.ideal_ns):
            raise Stopped(STOPPED)
        if limit.spent:
            raise Stopped(LATE)

    try:
        look()
        (found,) = outcomes(trace, machine, (name,), compat=compat, look=look)
    except Stopped as stopped:
        return G10Outcome(policy=name, ideal_ns=trace.ideal_ns, reason=str(stopped))
    return found


def _ours(recording: Recording, planned: Planned, links: tuple[Link, ...]) -> G10Outcome:
    """The plan as an outcome: what it moves, and how long it computes while something moves."""
    assert planned.plan is not None
    problem = instance(recording.graph, planned.device, recording.durations_ns, links=links)
    steps = planned.plan.lanes[0].steps
    played = play(problem, steps, home=planned.plan.home, budget_bytes=planned.budget_bytes)
    spans = list(zip(played.start_ns, played.end_ns, played.engine, strict=True))
    runs = [(float(start), float(end)) for start, end, engine in spans if engine == "device"]
    busy = [(float(start), float(end)) for start, end, engine in spans if engine not in ("device", "")]
    moved = played.moved_bytes
    return G10Outcome(
        policy=OURS,
        ideal_ns=played.base_ns,
        step_ns=played.makespan_ns,
        overlap_ns=overlap_ns(runs, busy),
        traffic=Traffic(*(moved.get(f"{tier} {way}", 0) for tier in ("host", "ssd") for way in ("in", "out"))),
    )
