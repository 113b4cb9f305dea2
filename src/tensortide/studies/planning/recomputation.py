"""Plans without links: every storage stays on the device, and ops run again."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain, islice

import msgspec
import numpy as np

from tensortide.plans.model import Lane, Plan
from tensortide.plans.planned import Planned, Status
from tensortide.plans.proofs import NAMES
from tensortide.plans.under_budget.bound import EachOnce, idle_cover
from tensortide.plans.under_budget.known import Known
from tensortide.plans.under_budget.search import SMALL_EFFORT, Search, Stopped
from tensortide.plans.under_budget.sequence import with_evictions
from tensortide.studies.planning.known import MAKERS, as_recorded, given, online
from tensortide.studies.planning.request import BOUND_WORK, Request

_BOUND = 0.3
"""Share of the limit that is left for the linear program of the bound."""
RECORDED = 0.5
"""Share of the limit for plans in recorded order, where any is allowed."""
IN_ORDER = "in recorded order"
"""The name of the plan in recorded order from which the search in any order starts."""


def without_links(request: Request) -> Planned:
    """The fastest plan found of a step whose storages all stay on the device."""
    free = request.order == "free"
    search = Search(request.instance, request.tables, request.budget_bytes, free, request.watch, request.limit)
    search.bound(request.instance.base_ns, EachOnce())
    complete = True
    try:
        _look(search, request)
    except Stopped:
        complete = False
    return _planned(search, request, complete)


def any_order(request: Request, first: Planned) -> Planned:
    """The fastest plan found with first runs in any order, from ``first``, the one in recorded order."""
    if first.time_ns == first.base_ns:  # no order is faster
        return msgspec.structs.replace(
            first, plan_class=request.plan_class, bound_name=NAMES[EachOnce], proof=EachOnce()
        )
    known = request.known if first.plan is None else {**request.known, IN_ORDER: first.plan}
    found = without_links(replace(request, known=known))
    rivals = {rival.name: rival for rival in (*first.rivals, *found.rivals) if rival.name != IN_ORDER}
    source = first.source if found.source == IN_ORDER else found.source
    return msgspec.structs.replace(
        found,
        rivals=tuple(rivals.values()),
        source=source,
        work=first.work + found.work,
        complete=first.complete and found.complete,
    )


def _look(search: Search, request: Request) -> None:
    """Take what is known, prove what can be proved, and search, as far as the limits allow."""
    search.is_patient = request.order == "recorded"
    search.take_known(chain(as_recorded(request), given(request)))
    if search.is_proved:
        return
    search.is_infeasible = request.least.nbytes > request.budget_bytes
    if search.is_infeasible:
        return
    if request.order == "free":
        _any_order(search, request)
        return
    _first(search, request)
    limit = search.limit.part(_BOUND, work=BOUND_WORK)
    search.bound(*idle_cover(request.instance, request.tables, request.idle, request.budget_bytes, limit, search.look))
    search.look()
    if not search.is_proved:
        _recorded_order(search, request)


def _first(search: Search, request: Request) -> None:
    """Look for a first plan, whatever the limit."""
    search.repair(np.arange(len(request.recording.graph)))
    if search.best is None:
        search.take_known(islice(online(request), 1))
    search.is_patient = False


def _recorded_order(search: Search, request: Request) -> None:
    """Look for plans whose first runs are in recorded order; for the optimum of a small step."""
    search.repair_by_prices(np.arange(len(request.recording.graph)))
    if not search.starts:
        search.repair_at_random(np.arange(len(request.recording.graph)))
    search.take_known(chain.from_iterable(maker(request) for maker in MAKERS.values()))
    search.prune()
    search.improve(min(request.effort, SMALL_EFFORT))
    search.exhaust(request.effort)
    search.improve(request.effort)


def _any_order(search: Search, request: Request) -> None:
    """Look for plans that begin with the order of the least peak; for the optimum of a small step."""
    search.look()
    order = request.least_order
    search.starts.clear()
    search.take_known([Known("order of the least peak", "order", list(order))])
    search.repair(np.array(order, np.int64))
    search.exhaust(request.effort)
    if search.starts:
        search.improve(request.effort, min(search.starts, key=lambda start: start.time_ns))


def _planned(search: Search, request: Request, complete: bool) -> Planned:
    best = search.best
    status: Status = "fits" if best is not None else "infeasible" if search.is_infeasible else "none found"
    plan = None
    if best is not None:
        lane = Lane(request.device, with_evictions(request.tables, best.sequence))
        plan = Plan(request.recording.graph.index.digest, (lane,))
    return Planned(
        status=status,
        plan=plan,
        time_ns=None if best is None else best.time_ns,
        peak_bytes=None if best is None else best.peak_bytes,
        base_ns=request.instance.base_ns,
        bound_ns=search.bound_ns,
        plan_class=request.plan_class,
        bound_name=NAMES[type(search.proof)],
        proof=search.proof,
        least=request.least,
        rivals=tuple(search.rivals.values()),
        budget_bytes=request.budget_bytes,
        recorded_peak_bytes=request.recorded_peak_bytes,
        device=request.device,
        source=search.source,
        work=search.local.work,
        complete=complete,
        seconds=time.monotonic() - request.began,
    )
