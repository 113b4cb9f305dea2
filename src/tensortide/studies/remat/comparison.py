"""Plans made ahead against online policies, on one step and under the same budgets.

All are measured alike. A static schedule is written out as a Plan, checked and replayed; its time and peak are those
of the replay, with what kernels take as workspace where the simulator counts it. What planners think that their
schedules need differs: they know storages only in groups, and no workspace. So a planner that is given a budget is
given what it takes for the replay to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.errors import BudgetInfeasible, PlanError, RunError
from tensortide.executors import SERIAL, Where, run_all
from tensortide.plans import Compute, Lane, Plan, in_order
from tensortide.plans.checkpointing.optimum import TIME_LIMIT_S, optimum, rounded
from tensortide.plans.checkpointing.segments import no_recompute
from tensortide.plans.checkpointing.stages import to_plan
from tensortide.plans.checkpointing.static import static_graph
from tensortide.plans.instance import instance
from tensortide.plans.remat.choice import policy
from tensortide.plans.remat.policies import DEFAULT_POLICY
from tensortide.plans.under_budget.sequence import steps_of
from tensortide.plans.under_budget.tables import tables
from tensortide.replays.executed import replay
from tensortide.replays.remat.simulator import AUTO, play
from tensortide.search_limit import SearchLimit
from tensortide.shown import Show
from tensortide.studies.planning.partitioner import NAME as PARTITIONER
from tensortide.studies.planning.partitioner import sequences
from tensortide.studies.remat.contenders import contenders, why_no_program, within
from tensortide.studies.remat.results import Step
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.plans.checkpointing.stages import StaticPlan
    from tensortide.replays.remat.simulation import Deallocation, Simulation
    from tensortide.studies.remat.subject import Subject

OPTIMUM, ROUNDING = "Checkmate", "LP rounding"
ATTEMPTS = 4
"""Calls of a planner per budget. Each retry lowers its budget by the overshoot of its last plan when replayed."""


Kind: TypeAlias = Literal["static", "program", "online"]
"""Kinds of strategies: planned without a budget; an integer program for each budget; decided while the step runs."""
Verdict: TypeAlias = Literal["ok", "oom", "thrash", "no fit", "infeasible", "none found"]
"""``ok``: it fits, perhaps beyond the allowed time; ``oom`` and ``thrash``: as the ``Status`` of a run; ``no fit``:
no plan of a static strategy fits; ``infeasible``: a planner has proved that its node model of the step has no plan;
``none found``: it has found none in time."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was played.

    ``detail``: the strategy with its setting, or the policy that was best. ``overhead`` and ``peak_share``: its time
    over that of the step without recomputation, its peak over that without a budget. ``planned_ns``, ``planned_bytes``:
    time and peak as its planner has them, where there is one.
    """

    detail: Annotated[str, Show("detail", fold=True)]
    clock_ns: Annotated[int, Show("time")]
    peak_bytes: Annotated[int, Show("peak")]
    overhead: Annotated[float, Show("overhead")]
    peak_share: Annotated[float, Show("of all")]
    planned_ns: Annotated[int | None, Show("planned time")] = None
    planned_bytes: Annotated[int | None, Show("planned peak")] = None

    @property
    def planned_more_bytes(self) -> Annotated[int | None, Show("planned more", zero="the same")]:
        """Bytes that its planner counts more."""
        return None if self.planned_bytes is None else self.planned_bytes - self.peak_bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy under a budget, whose ``ratio`` is to the peak without one: its fastest schedule that fits, if
    ``verdict`` is ``ok``.

    ``planner_bytes``: the budget that a planner was given. ``bound``: overhead that no schedule in stages has less
    than, whose peak as the planner counts is at most that; ``proved``: the schedule has no more.
    """

    verdict: Annotated[Verdict, Show("verdict")]
    point: Point | None = None
    planner_bytes: Annotated[int | None, Show("given to the planner")] = None
    bound: Annotated[float | None, Show("at least")] = None
    proved: Annotated[bool, Show("proved")] = False
    budget_bytes: Annotated[int, Show("budget")] = 0
    ratio: Annotated[float, Show("ratio")] = 0.0


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """All that was played of one, and what is left of it under each budget. ``skipped``: why nothing was played;
    ``cut``: the sweep of its settings took too long."""

    name: Annotated[str, Show("Strategy")]
    kind: Annotated[Kind, Show("kind")]
    points: tuple[Point, ...] = ()
    entries: tuple[Entry, ...] = ()
    skipped: str = ""
    cut: bool = False

    @property
    def schedules(self) -> Annotated[int, Show("schedules")]:
        """The number of those that were played."""
        return len(self.points)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """``strategies`` on ``step``, whose values are ``nodes`` for planners. ``budgets``: bytes and ratio to the peak
    without one, the largest first; ``overhead_limit``: what takes more is not in the contest."""

    step: Step
    nodes: int
    workspace: bool
    overhead_limit: float
    budgets: tuple[tuple[int, float], ...]
    strategies: tuple[Strategy, ...]

    def best_ns(self, budget: int) -> int | None:
        """The least time under the budget of that number; None if nothing fits in the time that is allowed."""
        entries = (strategy.entries[budget] for strategy in self.strategies if strategy.entries)
        points = (entry.point for entry in entries if entry.verdict == "ok" and entry.point is not None)
        return min((p.clock_ns for p in points if p.overhead <= self.overhead_limit), default=None)


def compare(
    subject: Subject,
    budgets: Sequence[tuple[int, float]],
    policies: Iterable[str] = (DEFAULT_POLICY, AUTO),
    *,
    deallocation: Deallocation = "eager",
    overhead_limit: float = 2.0,
    optimum_time_s: float | None = None,
    work_limit: float | None = None,
    where: Where = SERIAL,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Play ``subject`` by every static strategy and each of ``policies`` (names, or ``auto``) under ``budgets``.

    ``optimum_time_s``: how long a sweep of settings may take, and for each budget the search for the optimum and each
    linear relaxation; 0 leaves these two out. ``work_limit``: the same in steps of schedules that are made; then there
    is no limit in time unless one is given (by default 60 s), and the result is the same on any machine. Online
    policies and these two run on the workers of ``where``; the result is the same but where time ends a search. Raises
    PlanError for what is no policy, limit or time, RunError as ``executors.run_all``.
    """
    policies = list(dict.fromkeys(policies))
    for name in policies:
        if name != AUTO:
            policy(name)
    if optimum_time_s is not None and not optimum_time_s >= 0:
        raise PlanError(f"{optimum_time_s} seconds are no time to plan in")
    limits = _Limits(optimum_time_s, work_limit)
    say = progress or (lambda message: None)
    contest = _Contest(subject, budgets, deallocation, overhead_limit)
    reason = why_no_program(contest.nodes) if optimum_time_s != 0 else "no time was given to it"
    programs = () if reason else (OPTIMUM, ROUNDING)
    trials = [_Trial(name, number) for name in policies for number in range(len(budgets))]
    trials += [_Trial(name, number, limits) for name in programs for number in range(len(budgets))]
    entries: dict[_Trial, Entry] = {}
    for place, entry in run_all(contest.entry, trials, where):
        entries[trials[place]] = entry
        say(f"{len(entries)} of {len(trials)} plays and plans; {trials[place].name}")
    static = contest.static(limits, say)
    static += [contest.programmed(name, entries, reason) for name in (OPTIMUM, ROUNDING)]
    online = [contest.online(name, entries) for name in policies]
    return Comparison(
        step=subject.step,
        nodes=len(contest.nodes),
        workspace=bool(contest.simulator.workspace),
        overhead_limit=overhead_limit,
        budgets=tuple(budgets),
        strategies=(*static, *online),
    )


def optimum_plan(subject: Subject, budget_bytes: int, time_s: float) -> Plan:
    """Checkmate's optimum within ``budget_bytes``, or the best found in ``time_s`` seconds.

    Raises PlanError for a step that is too long for it, BudgetInfeasible if there is no plan, and RunError if none was
    found in time.
    """
    contest = _Contest(subject, (), "eager", math.inf)
    if reason := why_no_program(contest.nodes):
        raise PlanError(f"{OPTIMUM} does not plan this step: {reason}")
    made, entry = contest.planned(OPTIMUM, budget_bytes, _Limits(time_s, None))
    if made is None:
        if entry.verdict == "infeasible":
            raise BudgetInfeasible(f"there is no plan of {OPTIMUM} within {format_bytes(budget_bytes)}")
        raise RunError(f"no plan of {OPTIMUM} within {format_bytes(budget_bytes)} was found in {time_s:g} s")
    return to_plan(made, contest.nodes, contest.graph, contest.device)


class _Limits(NamedTuple):
    """Limits of a sweep, of a search and of a relaxation each."""

    time_s: float | None
    work: float | None


class _Trial(NamedTuple):
    """A strategy under the budget of that number: an online policy, or a program within ``limits``."""

    name: str
    budget: int
    limits: _Limits | None = None


class _Contest:
    """A step with its budgets, on which strategies are tried."""

    def __init__(
        self, subject: Subject, budgets: Sequence[tuple[int, float]], deallocation: Deallocation, limit: float
    ) -> None:
        self.subject, self.budgets, self.deallocation, self.limit = subject, budgets, deallocation, limit
        self.simulator = subject.simulator(deallocation)
        self.graph, self.durations = self.subject.recording.graph, self.subject.recording.durations_ns
        self.device, self.model_ns = self.simulator.schedule.device, self.simulator.schedule.model_ns
        self.nodes = static_graph(self.graph, self.durations, self.device)

    def __reduce__(self) -> tuple[type[_Contest], tuple[object, ...]]:
        """Pickle for another process, without what can be derived again in it."""
        return _Contest, (self.subject, self.budgets, self.deallocation, self.limit)

    def entry(self, trial: _Trial) -> Entry:
        """The result of ``trial`` by itself."""
        budget = self.budgets[trial.budget][0]
        if trial.limits is not None:
            return self.planned(trial.name, budget, trial.limits)[1]
        run = play(self.simulator, trial.name, budget, overhead_limit=self.limit)[0]
        return Entry(verdict=run.status, point=self._ran(run) if run.status == "ok" else None)

    def static(self, limits: _Limits, say: Callable[[str], None]) -> list[Strategy]:
        """The strategies that plan ahead for no budget; first of all the step as it was recorded."""
        recorded = self._replayed(in_order(self.graph, range(len(self.graph)), self.device))
        found = [self._strategy("no recomputation", (recorded,))]
        for name, plans, skipped in contenders(self.nodes):
            say(f"planning: {name}")
            time_s = None if limits.time_s is None else max(limits.time_s, 1.0)
            kept, complete = within(plans, SearchLimit.given(time_s, limits.work, otherwise_s=TIME_LIMIT_S))
            points = unbeaten(map(self.played, kept))
            found.append(self._strategy(name, points, skipped, cut=not complete))
        say(f"planning: {PARTITIONER}")
        return [*found, self.partitioned()]

    def partitioned(self) -> Strategy:
        """PyTorch's partitioner at each of its settings."""
        problem = instance(self.graph, self.device, self.durations, workspace=self.simulator.workspace)
        t, points, skipped = tables(problem), [], ""
        for made in sequences(self.graph, problem, t):
            if made.sequence is None:
                skipped = made.reason
                continue
            plan = Plan(self.graph.index.digest, (Lane(self.device, steps_of(t, map(Compute, made.sequence))),))
            points.append(self._replayed(plan, made.name))
        return self._strategy(PARTITIONER, unbeaten(points), "" if points else skipped)

    def _strategy(self, name: str, points: tuple[Point, ...], skipped: str = "", *, cut: bool = False) -> Strategy:
        if skipped:
            return Strategy(name=name, kind="static", skipped=skipped, cut=cut)
        entries = [_fitting(points, budget, "no fit") for budget, _ in self.budgets]
        return self._made(name, "static", points, entries, cut=cut)

    def _made(
        self, name: str, kind: Kind, points: Iterable[Point], entries: Sequence[Entry], *, cut: bool = False
    ) -> Strategy:
        placed = (
            msgspec.structs.replace(entry, budget_bytes=budget, ratio=ratio)
            for entry, (budget, ratio) in zip(entries, self.budgets, strict=True)
        )
        return Strategy(name=name, kind=kind, points=tuple(dict.fromkeys(points)), entries=tuple(placed), cut=cut)

    def played(self, made: StaticPlan) -> Point:
        """``made`` as a Plan, checked and replayed."""
        point = self._replayed(to_plan(made, self.nodes, self.graph, self.device), _setting(made))
        planned_ns = made.cost_ns + self.nodes.fixed_ns
        return msgspec.structs.replace(point, planned_ns=planned_ns, planned_bytes=made.peak_bytes)

    def _replayed(self, plan: Plan, detail: str = "") -> Point:
        timeline = replay(self.graph, plan, workspace=self.simulator.workspace)
        clock = sum(self.durations[step.op] for step in plan.lanes[0].steps if isinstance(step, Compute))
        return self._point(detail, clock, timeline.peak_bytes)

    def _point(self, detail: str, clock_ns: int, peak_bytes: int) -> Point:
        overhead, share = self._overhead(clock_ns), peak_bytes / (self.subject.baseline_bytes or 1)
        return Point(detail=detail, clock_ns=clock_ns, peak_bytes=peak_bytes, overhead=overhead, peak_share=share)

    def _overhead(self, clock_ns: int) -> float:
        return clock_ns / self.model_ns if self.model_ns else 1.0

    @cached_property
    def _offset(self) -> int:
        """Bytes by which planners count more than replays."""
        plain = self.played(no_recompute(self.nodes))
        return (plain.planned_bytes or 0) - plain.peak_bytes

    def programmed(self, name: str, tried: Mapping[_Trial, Entry], reason: str) -> Strategy:
        """A strategy that was given each of the budgets, the largest first. What it found for one counts for others."""
        if reason:
            return Strategy(name=name, kind="program", skipped=reason)
        points: list[Point] = []
        entries: list[Entry] = []
        for entry in _of(name, tried):
            points += [entry.point] if entry.point is not None else []
            entries.append(_at_least(entry, entries))
        pooled = [_pooled(entry, points, budget) for entry, (budget, _) in zip(entries, self.budgets, strict=True)]
        return self._made(name, "program", points, pooled)

    def planned(self, name: str, budget: int, limits: _Limits) -> tuple[StaticPlan | None, Entry]:
        """Ask for a plan within ``budget``, and for one within less as long as the replay exceeds it."""
        given = budget + self._offset
        for _ in range(ATTEMPTS):
            made, bound_ns, verdict = self._solved(name, given, limits)
            bound = None if bound_ns is None else self._overhead(bound_ns + self.nodes.fixed_ns)
            if made is None:
                return None, Entry(verdict=verdict, planner_bytes=given, bound=bound)
            point = self.played(made)
            if point.peak_bytes <= budget:
                return made, Entry(verdict="ok", point=point, planner_bytes=given, bound=bound)
            given = min(given, made.peak_bytes) - (point.peak_bytes - budget)
        return None, Entry(verdict="no fit", planner_bytes=given)

    def _solved(self, name: str, given: int, limits: _Limits) -> tuple[StaticPlan | None, int | None, Verdict]:
        if name == ROUNDING:
            return rounded(self.nodes, given, limits.time_s, work_limit=limits.work), None, "none found"
        found = optimum(self.nodes, given, limits.time_s, work_limit=limits.work)
        return found.plan, found.bound_ns, "infeasible" if found.status == "infeasible" else "none found"

    def online(self, name: str, tried: Mapping[_Trial, Entry]) -> Strategy:
        """The policy ``name`` under each budget."""
        entries = _of(name, tried)
        return self._made(name, "online", (entry.point for entry in entries if entry.point is not None), entries)

    def _ran(self, run: Simulation) -> Point:
        clock = run.clock_ns - int(self.simulator.compat)  # DTR's simulator starts at 1 ns
        return self._point(run.policy, clock, run.peak_bytes)


def _of(name: str, tried: Mapping[_Trial, Entry]) -> list[Entry]:
    """The entries of a strategy, by the number of their budget."""
    return [tried[trial] for trial in sorted(tried, key=lambda trial: trial.budget) if trial.name == name]


def _setting(made: StaticPlan) -> str:
    if made.strategy.startswith("Chen greedy"):
        return f"{made.strategy}, segments of {made.segment_bytes:.0f} bytes"
    return "" if made.strategy == "optimum" else made.strategy


def unbeaten(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other beats in time and peak, the fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.clock_ns, point.peak_bytes)):
        if not front or point.peak_bytes < front[-1].peak_bytes:
            front.append(point)
    return tuple(front)


def _fitting(points: Iterable[Point], budget: int, otherwise: Verdict) -> Entry:
    """The fastest of ``points`` within ``budget``, of equals that of the lower peak."""
    fitting = (point for point in points if point.peak_bytes <= budget)
    found = min(fitting, key=lambda point: (point.clock_ns, point.peak_bytes), default=None)
    return Entry(verdict=otherwise if found is None else "ok", point=found)


def _at_least(entry: Entry, others: Iterable[Entry]) -> Entry:
    """``entry``, whose bound is no less than that of any of ``others`` that had more memory."""
    known = [other.bound for other in others if (other.planner_bytes or 0) >= (entry.planner_bytes or 0)]
    bound = max((bound for bound in (entry.bound, *known) if bound is not None), default=None)
    return msgspec.structs.replace(entry, bound=bound)


def _pooled(own: Entry, points: Iterable[Point], budget: int) -> Entry:
    """Return the best plan for ``budget``, or a faster one for another budget, with the proof for this budget."""
    found = _fitting(points, budget, own.verdict)
    if found.point is None or own.bound is None:
        return msgspec.structs.replace(found, planner_bytes=own.planner_bytes, bound=own.bound)
    bound = min(own.bound, found.point.overhead)  # a faster one fits only as it is replayed
    proved = found.point.overhead <= bound
    return msgspec.structs.replace(found, planner_bytes=own.planner_bytes, bound=bound, proved=proved)
