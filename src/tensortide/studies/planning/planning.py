"""``plan``: the fastest plan of a step under a budget, from what is known and what the search finds."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tensortide.errors import GraphError, PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.instance import Instance, instance
from tensortide.plans.model import Lane, Plan, Step
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.plans.transfers.least import least_with_transfers
from tensortide.plans.transfers.search import Moved
from tensortide.plans.under_budget.bound import EachOnce
from tensortide.plans.under_budget.gaps import gaps, least
from tensortide.plans.under_budget.planned import FirstRuns, Planned, Status
from tensortide.plans.under_budget.search import Incumbent, Known, Stopped, Watch
from tensortide.plans.under_budget.sequence import Played, play, steps_of
from tensortide.plans.under_budget.tables import Tables, tables
from tensortide.studies.planning.known import KNOWN, Asked
from tensortide.studies.planning.moving import moved
from tensortide.timing.machine import Link

EFFORT = 1000
"""Rounds of the neighbourhood search."""

RECOMPUTING = 0.5
"""Share of the time for plans without transfers, where there are links."""


def plan(
    step: Graph | Recording,
    budget_bytes: int,
    *,
    device: str | None = None,
    durations_ns: Sequence[int] | None = None,
    links: Iterable[Link] = (),
    order: FirstRuns = "recorded",
    effort: int = EFFORT,
    time_limit_s: float = 60.0,
    keep_random: bool = False,
    pinned: Container[int] = (),
    workspace: bool = True,
    watch: Watch | None = None,
) -> Planned:
    """The fastest plan found of ``step`` within ``budget_bytes`` on ``device`` (default: ``Index.main_device``).

    The result is never slower than any plan known before: the step as recorded, every online policy, static plans; and
    with ``links`` never slower than without. It
    depends on the arguments alone, unless ``time_limit_s`` or ``watch`` ends the search early. A budget of the peak of
    the step or more is no error: the plan is then the recorded order.

    Args:
        durations_ns: the time of each op; those of a Recording by default.
        links: links to the tiers that storages may move to.
        order: whether the ops run for the first time in recorded order, or in any that their dependencies allow.
        effort: rounds of the search.
        keep_random: ops that draw random numbers run only once.
        pinned: storages that are neither moved nor evicted.
        workspace: count what kernels take inside an op.
        watch: called with the best time so far (None: no plan yet) and the bound; ends the search by returning False.

    Raises PlanError for a negative budget, GraphError for durations that do not fit.
    """
    began = time.monotonic()
    recording = _recording(step, durations_ns)
    graph = recording.graph
    if budget_bytes < 0:
        raise PlanError(f"a budget of {budget_bytes} bytes is no budget: give 0 or more")
    if order not in ("recorded", "free"):
        raise PlanError(f"the order of first runs is 'recorded' or 'free', not {order!r}")
    device = graph.index.device(device or "")
    problem = instance(
        graph,
        device,
        recording.durations_ns,
        links=links,
        workspace=workspace,
        pinned=pinned,
        keep_random=keep_random,
    )
    t = tables(problem)
    as_recorded = play(problem, t, range(len(graph)))
    limit_s = time_limit_s * (RECOMPUTING if problem.links else 1.0)
    best = Incumbent(problem, t, budget_bytes, order == "free", watch, began + limit_s)
    best.bound_ns = problem.base_ns
    complete = True
    try:
        best.take_known(_known(Asked(recording, device, budget_bytes, workspace), as_recorded.peak_bytes))
    except Stopped:
        complete = False
    found = None if best.best is None else _of_sequence(t, best.best, best.source)
    work = best.work
    if problem.links:
        known = [] if best.best is None else [(best.source, best.best.sequence.tolist())]
        asked = Asked(recording, device, budget_bytes, workspace)
        moving = moved(problem, asked, known, as_recorded.peak_bytes, began + time_limit_s)
        work += moving.work
        if moving.best is not None and (found is None or moving.best.played.makespan_ns < found.time_ns):
            found = _of_moves(moving.best)
        needs = least_with_transfers(problem, recorded=order == "recorded")
        impossible = needs.nbytes > budget_bytes
    else:
        needs = least(problem, t, gaps(problem, t))
        impossible = needs.nbytes > budget_bytes and order == "recorded"
    status: Status = "fits" if found is not None else "infeasible" if impossible else "none found"
    return Planned(
        status=status,
        plan=None if found is None else Plan(graph.index.digest, (Lane(device, found.steps),), dict(found.home)),
        time_ns=None if found is None else found.time_ns,
        peak_bytes=None if found is None else found.peak_bytes,
        base_ns=problem.base_ns,
        bound_ns=best.bound_ns,
        plan_class=plan_class(problem, order),
        bound_name="every op once",
        proof=EachOnce(),
        least=needs,
        rivals=tuple(best.rivals.values()),
        budget_bytes=budget_bytes,
        recorded_peak_bytes=as_recorded.peak_bytes,
        device=device,
        source="" if found is None else found.source,
        work=work,
        complete=complete,
        seconds=time.monotonic() - began,
    )


class _Found(NamedTuple):
    """A plan as played, and where it comes from."""

    steps: tuple[Step, ...]
    home: Mapping[int, str]
    time_ns: int
    peak_bytes: int
    source: str


def _of_sequence(t: Tables, played: Played, source: str) -> _Found:
    return _Found(steps_of(t, played.sequence), {}, played.time_ns, played.peak_bytes, source)


def _of_moves(moved: Moved) -> _Found:
    played = moved.played
    return _Found(moved.steps, moved.home, played.makespan_ns, played.peak_bytes, f"{moved.source}, with transfers")


def plan_class(problem: Instance, order: FirstRuns) -> str:
    """The class of plans that a bound holds for, in words."""
    first = "first runs in recorded order" if order == "recorded" else "any order"
    moves = [f"moves over {link.name}" for link in problem.links]
    return ", ".join((first, "recomputation", *moves))


def _recording(step: Graph | Recording, durations_ns: Sequence[int] | None) -> Recording:
    if isinstance(step, Recording):
        if durations_ns is None:
            return step
        return recorded(step.graph, durations_ns)
    if durations_ns is None:
        raise GraphError("durations are missing: give durations_ns, one per op")
    return recorded(unrolled(step), durations_ns)


def _known(asked: Asked, peak_bytes: int) -> Iterator[Known]:
    """What is known of a step whose recorded order has that peak: if that fits, nothing is faster."""
    for maker in KNOWN.values():
        yield from maker(asked)
        if peak_bytes <= asked.budget_bytes:
            return
