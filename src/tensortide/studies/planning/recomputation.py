"""Plans without links: every storage stays on the device, and ops run again."""

from __future__ import annotations

import contextlib
import time
from itertools import chain, islice

import msgspec
import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.plans.planned import Planned, Status
from tensortide.plans.proofs import NAMES
from tensortide.plans.under_budget.bound import EachOnce, IdleCover, idle_cover
from tensortide.plans.under_budget.held import followed
from tensortide.plans.under_budget.known import Known
from tensortide.plans.under_budget.moments import moments_bound
from tensortide.plans.under_budget.search import SMALL_EFFORT, Search, Stopped
from tensortide.plans.under_budget.sequence import Evaluated, evaluate, sequence_of, steps_of
from tensortide.studies.planning.known import MAKERS, as_recorded, given, online
from tensortide.studies.planning.problem import BOUND_WORK, Problem

_BOUND = 0.3
"""Share of the limit that is left for the linear programs of each bound."""
RECORDED = 0.5
"""Share of the limit for plans in recorded order, where any is allowed."""
IN_ORDER = "in recorded order"
"""The name of the plan in recorded order from which the search in any order starts."""


def without_links(problem: Problem) -> Planned:
    """The fastest plan found of a step whose storages all stay on the device."""
    free = problem.order == "free"
    search = Search(problem.instance, problem.tables, problem.budget_bytes, free, problem.watch, problem.limit)
    search.bound(problem.instance.base_ns, EachOnce())
    complete = True
    try:
        _look(search, problem)
    except Stopped:
        complete = False
    return _planned(search, problem, complete)


def any_order(problem: Problem, first: Planned) -> Planned:
    """The fastest plan found with first runs in any order, from ``first``, the one in recorded order."""
    if first.step_ns == first.base_ns:  # no order is faster
        return msgspec.structs.replace(
            first, plan_class=problem.plan_class, bound_name=NAMES[EachOnce], proof=EachOnce()
        )
    known = problem.known if first.plan is None else {**problem.known, IN_ORDER: first.plan}
    found = without_links(problem.under(problem.budget_bytes, known=known))
    rivals = {rival.name: rival for rival in (*first.rivals, *found.rivals) if rival.name != IN_ORDER}
    source = first.source if found.source == IN_ORDER else found.source
    return msgspec.structs.replace(
        found,
        rivals=tuple(rivals.values()),
        source=source,
        work=first.work + found.work,
        complete=first.complete and found.complete,
    )


def as_followed(problem: Problem, found: Planned) -> Planned:
    """``found``, unless a program cannot follow its plan, or exceeds the budget with what it cannot evict: then the
    fastest plan found with which it does not, if there is any. The bound is that on all plans."""
    if found.plan is None:
        return found
    held = problem.followed({**problem.known, "not followed": found.plan})
    with contextlib.suppress(PlanError):  # it recomputes what the program cannot
        if followed(held.instance, held.tables, found.plan).peak_bytes <= problem.budget_bytes:
            return found
    other = without_links(held)
    made = {"work": found.work + other.work, "complete": found.complete and other.complete}
    if other.plan is None:
        return msgspec.structs.replace(found, **made, unfollowed_ns=found.step_ns)
    played = evaluate(problem.instance, problem.tables, sequence_of(other.plan.lanes[0].steps))
    return msgspec.structs.replace(
        found,
        **made,
        plan=_plan(problem, played),
        step_ns=played.time_ns,
        peak_bytes=played.peak_bytes,
        source=other.source,
        unfollowed_ns=found.step_ns,
    )


def _look(search: Search, problem: Problem) -> None:
    """Take what is known, prove what can be proved, and search, as far as the limits allow."""
    search.is_patient = problem.order == "recorded"
    search.take_known(chain(as_recorded(problem), given(problem)))
    if search.is_proved:
        return
    search.is_infeasible = problem.least.nbytes > problem.budget_bytes
    if search.is_infeasible:
        return
    if problem.order == "free":
        _any_order(search, problem)
        return
    _first(search, problem)
    limit = search.limit.part(_BOUND, work=BOUND_WORK)
    search.bound(*idle_cover(problem.instance, problem.tables, problem.idle, problem.budget_bytes, limit, search.look))
    search.look()
    if not search.is_proved:
        _recorded_order(search, problem)


def _first(search: Search, problem: Problem) -> None:
    """Look for a first plan, whatever the limit."""
    search.repair(np.arange(len(problem.recording.graph)))
    if search.best is None:
        search.take_known(islice(online(problem), 1))
    search.is_patient = False


def _recorded_order(search: Search, problem: Problem) -> None:
    """Look for plans whose first runs are in recorded order; for the optimum of a small step."""
    search.repair_by_prices(np.arange(len(problem.recording.graph)))
    if not search.starts:
        search.repair_at_random(np.arange(len(problem.recording.graph)))
    search.take_known(chain.from_iterable(maker(problem) for maker in MAKERS.values()))
    search.repair_by_exchange(np.arange(len(problem.recording.graph)))
    search.prune()
    search.improve(min(problem.effort, SMALL_EFFORT))
    if isinstance(search.proof, IdleCover) and not search.is_proved:
        limit = search.limit.part(_BOUND, work=BOUND_WORK)
        search.bound(*moments_bound(problem.instance, problem.tables, problem.idle, search.proof, limit, search.look))
    search.exhaust(problem.effort)
    search.improve(problem.effort)


def _any_order(search: Search, problem: Problem) -> None:
    """Look for plans that begin with the order of the least peak; for the optimum of a small step."""
    search.look()
    order = problem.least_order
    search.starts.clear()
    search.take_known([Known("order of the least peak", "order", list(order))])
    search.repair(np.array(order, np.int64))
    search.exhaust(problem.effort)
    if search.starts:
        search.improve(problem.effort, min(search.starts, key=lambda start: start.time_ns))


def _planned(search: Search, problem: Problem, complete: bool) -> Planned:
    best = search.best
    status: Status = "fits" if best is not None else "infeasible" if search.is_infeasible else "none found"
    return Planned(
        status=status,
        plan=None if best is None else _plan(problem, best),
        step_ns=None if best is None else best.time_ns,
        peak_bytes=None if best is None else best.peak_bytes,
        base_ns=problem.instance.base_ns,
        bound_ns=search.bound_ns,
        plan_class=problem.plan_class,
        bound_name=NAMES[type(search.proof)],
        proof=search.proof,
        least=problem.least,
        rivals=tuple(search.rivals.values()),
        budget_bytes=problem.budget_bytes,
        recorded_peak_bytes=problem.recorded_peak_bytes,
        device=problem.device,
        source=search.source,
        work=search.local.work,
        complete=complete,
        search_s=time.monotonic() - problem.began,
    )


def _plan(problem: Problem, played: Evaluated) -> Plan:
    lane = Lane(problem.device, steps_of(problem.tables, map(Compute, played.sequence.tolist())))
    return Plan(problem.recording.graph.index.digest, (lane,))
