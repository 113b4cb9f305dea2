"""``plan``: the fastest plan of a step under a budget, from what is known and what the search finds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import Any

import msgspec

from tensortide.compiled import compiling_s
from tensortide.errors import PlanError, check_argument
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.graph.validate import require_graph
from tensortide.importers.door import as_text
from tensortide.plans.model import Plan
from tensortide.plans.planned import FirstRuns, Planned
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.plans.under_budget.idle import least_of_one_op
from tensortide.plans.under_budget.search import EFFORT, Watch
from tensortide.replays.plan_actions import followed_peak_bytes
from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.budget import typed_bytes
from tensortide.studies.planning.infeasible import may_help, too_large
from tensortide.studies.planning.least_budget import least_budget
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.recomputation import RECORDED, any_order, as_followed, without_links
from tensortide.studies.planning.warm import warm_up
from tensortide.studies.planning.with_links import with_links
from tensortide.targets.durations import predicted_on
from tensortide.targets.keywords import request_of
from tensortide.targets.machines import device_named
from tensortide.targets.recordings import recorded_step
from tensortide.targets.requests import TimedRequest
from tensortide.timing.catalogue import DEFAULT_DEVICE
from tensortide.timing.links import Link
from tensortide.units import printed_bytes

TIME_LIMIT_S = 60.0
"""Seconds of the processor's time after which a search ends that is given no limit."""
_FOLLOWED = 0.5
"""Part of the limit, on top of it, for a plan with which a run of the program fits, where that found first does not."""
_REST, _LEAST = 0.5, 0.2
"""Parts of the limit, of what is left of it or on top of it, for the least budget that is enough where there is no
plan."""
_AT_ONCE = 0.05
"""The same part where one op needs more than the budget, which takes no search."""


def plan(
    step: Any,
    budget: float | str,
    *,
    device: str | None = None,
    durations_ns: Sequence[int] | None = None,
    links: Iterable[Link] = (),
    order: FirstRuns = "recorded",
    recompute: bool = True,
    effort: float = EFFORT,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
    keep_random: bool = False,
    pinned: Container[int] = (),
    workspace: bool = True,
    known: Mapping[str, Plan] = MappingProxyType({}),
    followed: bool = True,
    watch: Watch | None = None,
    **options: Any,
) -> Planned:
    """The fastest plan found of ``step`` within ``budget`` on ``device`` (default: ``Index.main_device``).

    >>> tensortide.plan("gpt2", "80%", machine="t4")  # doctest: +SKIP

    ``step`` is a Graph, a Recording, or any other target, for which ``options`` are those of its capture and its times.
    The result is never slower than any plan known before (the step as recorded, every online policy, static plans), or
    if the plan is to be ``followed`` than those that the program can follow within the budget; nor with ``links`` than
    without. It depends on the arguments alone, unless a limit in seconds or ``watch`` ends the search early. With a
    budget of its peak or more the plan is the recorded order.

    Args:
        budget: bytes, ``"8GiB"``, a part of the step's peak (``"80%"``, 0.8), or ``"auto"``: what is free here.
        durations_ns: the time of each op (default: those of a Recording; of a Graph as predicted for its machine).
        links: links to the tiers that storages may move to.
        order: whether ops run for the first time in recorded order, or in any that dependencies allow.
        recompute: ops may run again.
        effort: how long to improve plans, in millions of ops played.
        time_limit_s: seconds after which the search ends; by default ``TIME_LIMIT_S`` of the processor's time for this
            process, without a ``work_limit``.
        work_limit: ops played after which the search ends: the same plan on any machine, however loaded.
        keep_random: ops that draw random numbers run only once.
        pinned: storages that are neither moved nor evicted.
        workspace: count what kernels take inside an op.
        known: plans by name that the result is to be no slower than, if they fit.
        followed: the program of a captured step is to run the plan, so what it cannot evict counts.
        watch: called with the best time so far (None: no plan yet) and the bound; ends the search by returning False.

    Raises PlanError for what is no budget, GraphError for durations that do not fit.
    """
    if options or not isinstance(step, Graph | Recording):
        step = recorded_step(as_text(step), request_of("plan", TimedRequest, {"device": device, **options}))
    recording, links = recording_of(step, durations_ns, "plan"), tuple(links)
    on = recording.graph.index.device(device or "")
    warm_up(moves=bool(links))
    nbytes = typed_bytes(budget, recording.graph, on)
    problem = Problem(recording=recording, device=on, budget_bytes=nbytes, links=links, known=known, watch=watch)
    problem = replace(problem, order=order, recompute=recompute, keep_random=keep_random, pinned=pinned)
    problem = replace(problem, workspace=workspace, effort=effort)
    made = _planned(problem, time_limit_s, work_limit, followed=followed and problem.is_run)
    return msgspec.structs.replace(made, step=recording, links=links, run_bytes=_run_bytes(problem, made))


def _run_bytes(problem: Problem, found: Planned) -> int | None:
    """The peak of a run that follows the plan, if the program can."""
    if found.plan is None or not problem.is_run:
        return None
    try:
        return followed_peak_bytes(problem.recording.graph, found.plan)
    except PlanError:  # it recomputes what the program cannot
        return None


def _planned(problem: Problem, time_limit_s: float | None, work_limit: float | None, *, followed: bool) -> Planned:
    """The fastest plan within these limits. A part of the limits on top of them goes to one that can be ``followed``,
    or where there is none at all to the least budget that is enough."""

    def limit(share: float = 1.0) -> SearchLimit:
        given = SearchLimit.given(time_limit_s, work_limit, otherwise_s=TIME_LIMIT_S, apart_s=compiling_s)
        return given.part(share)

    first = replace(problem, limit=limit())
    found = fastest(first)
    if followed:
        found = as_followed(first.under(problem.budget_bytes, limit=limit(_FOLLOWED)), found)
    if found.status != "fits":
        found = msgspec.structs.replace(found, may_help=may_help(problem))
    if found.status == "fits" or problem.links or not problem.recompute:
        return found
    rest = limit(_AT_ONCE) if found.one_op else first.limit.part(_REST)
    left = rest if found.one_op else max(rest, limit(_LEAST), key=lambda each: (each.seconds_left, each.work_left))
    enough = _enough(first.under(problem.budget_bytes, limit=left), found)
    return msgspec.structs.replace(found, enough_bytes=enough, complete=found.complete and not left.spent)


def _enough(problem: Problem, found: Planned) -> int:
    """The least budget for which a plan is found, where there is none for that which was asked for."""
    peaks = (rival.peak_bytes for rival in found.rivals if rival.peak_bytes is not None)
    high = printed_bytes(min(peaks, default=problem.recorded_peak_bytes))
    return least_budget(problem, fastest, max(problem.budget_bytes, problem.least.nbytes - 1), high)


def fastest(problem: Problem) -> Planned:
    """The fastest plan found of what is asked for. Raises PlanError for a negative budget or an unknown order, and
    RequestError for what is no effort."""
    check_argument("effort", problem.effort, (Real,), "a number of millions of ops, 0 or more", least=0)
    if problem.budget_bytes < 0:
        raise PlanError(f"a budget of {problem.budget_bytes} bytes is no budget: give 0 or more")
    if problem.order not in ("recorded", "free"):
        raise PlanError(f"the order of first runs is 'recorded' or 'free', not {problem.order!r}")
    if problem.recording.durations_ns and not any(problem.recording.durations_ns):
        raise PlanError("every op takes 0 ns: durations of another source are needed (--machine, --measure)")
    if (least := least_of_one_op(problem.instance)).nbytes > problem.budget_bytes:
        return too_large(problem, least)
    if problem.links:
        return with_links(problem)
    if problem.order == "recorded":
        return without_links(problem)
    first = without_links(problem.in_recorded_order(share=RECORDED))
    return any_order(problem, first)


def recording_of(step: Graph | Recording, durations_ns: Sequence[int] | None, function: str) -> Recording:
    """``step`` with its durations, for a public ``function``. Raises GraphError if they do not fit, or if it is no
    step."""
    if isinstance(step, Recording):
        if durations_ns is None:
            return step
        return recorded(step.graph, durations_ns)
    require_graph(step, function)
    graph = unrolled(step)
    if durations_ns is None:
        found = predicted_on(graph, device_named(graph.meta.machine or DEFAULT_DEVICE))
        return recorded(graph, found.ns, found.source)
    return recorded(graph, durations_ns)
