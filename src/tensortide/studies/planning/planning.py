"""``plan``: the fastest plan of a step under a budget, from what is known and what the search finds."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType

import numpy as np

from tensortide.errors import GraphError, PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.instance import Instance, instance
from tensortide.plans.model import Lane, Plan
from tensortide.plans.order.minimal import WORK, footprint
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.plans.transfers.least import least_with_transfers
from tensortide.plans.under_budget.bound import NAMES, EachOnce, gap_cover
from tensortide.plans.under_budget.gaps import gaps, least
from tensortide.plans.under_budget.planned import FirstRuns, Planned, Status
from tensortide.plans.under_budget.search import EFFORT, SMALL_EFFORT, Incumbent, Stopped, Watch
from tensortide.plans.under_budget.sequence import sequence_of, steps_of
from tensortide.plans.under_budget.tables import tables
from tensortide.studies.planning.known import KNOWN, Asked, as_recorded
from tensortide.studies.planning.moving import Problem, planned_with_links
from tensortide.timing.machine import Link

_ORDER_WORK, _ORDER_S = WORK // 4, 30.0
"""Limits of the search for the order of the least peak."""


def plan(
    step: Graph | Recording,
    budget_bytes: int,
    *,
    device: str | None = None,
    durations_ns: Sequence[int] | None = None,
    links: Iterable[Link] = (),
    order: FirstRuns = "recorded",
    effort: float = EFFORT,
    time_limit_s: float = 60.0,
    keep_random: bool = False,
    pinned: Container[int] = (),
    workspace: bool = True,
    known: Mapping[str, Plan] = MappingProxyType({}),
    watch: Watch | None = None,
) -> Planned:
    """The fastest plan found of ``step`` within ``budget_bytes`` on ``device`` (default: ``Index.main_device``).

    The result is never slower than any plan known before: the step as recorded, every online policy, static plans; and
    with ``links`` never slower than without. It depends on the arguments alone, unless ``time_limit_s`` or ``watch``
    ends the search early. A budget of the peak of the step or more is no error: the plan is then the recorded order.

    Args:
        durations_ns: the time of each op; those of a Recording by default.
        links: links to the tiers that storages may move to.
        order: whether the ops run for the first time in recorded order, or in any that their dependencies allow.
        effort: how long to improve plans, in millions of ops played.
        keep_random: ops that draw random numbers run only once.
        pinned: storages that are neither moved nor evicted.
        workspace: count what kernels take inside an op.
        known: plans by name that the result is to be no slower than, if they fit.
        watch: called with the best time so far (None: no plan yet) and the bound; ends the search by returning False.

    Raises PlanError for a negative budget, GraphError for durations that do not fit.
    """
    began = time.monotonic()
    recording = recording_of(step, durations_ns)
    graph = recording.graph
    if budget_bytes < 0:
        raise PlanError(f"a budget of {budget_bytes} bytes is no budget: give 0 or more")
    if order not in ("recorded", "free"):
        raise PlanError(f"the order of first runs is 'recorded' or 'free', not {order!r}")
    device = graph.index.device(device or "")
    problem = instance(
        graph, device, recording.durations_ns, links=links, workspace=workspace, pinned=pinned, keep_random=keep_random
    )
    if problem.links:
        again = partial(
            plan,
            recording,
            device=device,
            order=order,
            effort=effort,
            keep_random=keep_random,
            pinned=pinned,
            workspace=workspace,
            watch=watch,
        )
        to_move = Problem(problem, budget_bytes, order, effort, began, time_limit_s)
        return planned_with_links(to_move, again, known)
    t = tables(problem)
    best = Incumbent(problem, t, budget_bytes, order == "free", watch, began + time_limit_s)
    asked = Asked(recording, device, budget_bytes, workspace)
    idle = gaps(problem, t)
    needs = least(problem, t, idle) if order == "recorded" else least_with_transfers(problem, recorded=False)
    best.bound(problem.base_ns, EachOnce())
    complete = True
    try:
        best.take_known(chain(as_recorded(asked), ((name, sequence_of(p.lanes[0].steps)) for name, p in known.items())))
        if not best.is_proved:
            best.is_infeasible = needs.nbytes > budget_bytes
            if not best.is_infeasible and order == "recorded":
                best.bound(*gap_cover(problem, t, idle, budget_bytes))
        if not best.is_proved:
            _search(best, asked, effort)
        if order == "free" and not best.is_proved:
            _reorder(best, asked, effort)
    except Stopped:
        complete = False
    found = best.best
    status: Status = "fits" if found is not None else "infeasible" if best.is_infeasible else "none found"
    steps = None if found is None else steps_of(t, found.sequence)
    return Planned(
        status=status,
        plan=None if steps is None else Plan(graph.index.digest, (Lane(device, steps),)),
        time_ns=None if found is None else found.time_ns,
        peak_bytes=None if found is None else found.peak_bytes,
        base_ns=problem.base_ns,
        bound_ns=best.bound_ns,
        plan_class=plan_class(problem, order),
        bound_name=NAMES[type(best.proof)],
        proof=best.proof,
        least=needs,
        rivals=tuple(best.rivals.values()),
        budget_bytes=budget_bytes,
        recorded_peak_bytes=int(idle.need.max(initial=0)),
        device=device,
        source=best.source,
        work=best.moves.work,
        complete=complete,
        seconds=time.monotonic() - began,
    )


def _search(best: Incumbent, asked: Asked, effort: float) -> None:
    """Look for plans whose first runs are in recorded order; for the optimum of a small step."""
    best.repair(np.arange(len(asked.recording.graph)))
    best.take_known(chain.from_iterable(maker(asked) for maker in KNOWN.values()))
    best.prune()
    best.improve(min(effort, SMALL_EFFORT))
    best.exhaust(effort)
    best.improve(effort)


def _reorder(best: Incumbent, asked: Asked, effort: float) -> None:
    """Look for plans that begin with the order of the least peak, once nothing better is known of the recorded one."""
    left_s = max(0.0, best.deadline - time.monotonic())
    graph, time_s = asked.recording.graph, min(_ORDER_S, left_s)
    found = footprint(graph, device=asked.device, workspace=asked.workspace, work=_ORDER_WORK, time_s=time_s)
    best.starts.clear()
    best.take_known([("order of the least peak", list(found.order))])
    best.repair(np.array(found.order, np.int64))
    if best.starts:
        best.improve(effort, min(best.starts, key=lambda start: start.time_ns))


def plan_class(problem: Instance, order: FirstRuns) -> str:
    """The class of plans that a bound holds for, in words."""
    first = "first runs in recorded order" if order == "recorded" else "any order"
    moves = [f"moves over {link.name}" for link in problem.links]
    return ", ".join((first, "recomputation", *moves))


def recording_of(step: Graph | Recording, durations_ns: Sequence[int] | None) -> Recording:
    """``step`` with its durations. Raises GraphError if there are none, or if they do not fit."""
    if isinstance(step, Recording):
        if durations_ns is None:
            return step
        return recorded(step.graph, durations_ns)
    if durations_ns is None:
        raise GraphError("durations are missing: give durations_ns, one per op")
    return recorded(unrolled(step), durations_ns)
