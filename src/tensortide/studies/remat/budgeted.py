"""Runs of a step under a memory budget, of a policy or of a plan, with what a reader wants to know of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tensortide.errors import ExitStatus
from tensortide.plans import Plan
from tensortide.plans.planned import Planned
from tensortide.replays import replay
from tensortide.replays.remat import Simulation, Simulator
from tensortide.replays.remat.simulator import Demand, least_bytes
from tensortide.replays.remat.telemetry import Telemetry, telemetry
from tensortide.shown import Show, Shown
from tensortide.timelines import Timeline, timeline
from tensortide.timelines.events import Events, Kind

if TYPE_CHECKING:
    from tensortide.graph.model import Graph

RULES = {
    "eager": "what the program drops is evicted at once",
    "none": "what the program drops is left to the policy",
    "banish": "what the program drops is released for good when nothing evicted depends on it",
    "ignore": "what the program drops is never heard of",
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Budgeted(Shown):
    """One run of the step of ``simulator``: of a policy, with ``telemetry``, or of a plan, which has none.

    ``outcome``: ``ok``, ``oom`` (out of memory), ``thrash`` (over the limit of recomputation) or ``over`` (a plan that
    needs more than the budget). ``resident`` are the bytes during each op run, in parts that add up. ``evicted`` says
    how often a storage made room and how often it was recomputed. ``smallest`` is the run with the smallest budget
    found with which the policy ends, ``others`` are runs of other policies under this budget (``auto``: all tried).
    ``plan`` is the plan that was played, ``least_plan`` one for the least budget for which a plan was made ahead.
    """

    SECTION = "simulation"

    simulator: Simulator
    policy: str
    outcome: str
    budget_bytes: Annotated[int | None, Show("budget", level=1, if_any=True)]
    peak_bytes: Annotated[int, Show("Peak")]
    clock_ns: Annotated[int, Show("Time")]
    line: Timeline
    resident: Mapping[str, Sequence[int]]
    evicted: Mapping[int, tuple[int, int]]
    simulation: Simulation | None = None
    telemetry: Telemetry | None = None
    smallest: Simulation | None = None
    others: Sequence[Simulation] = ()
    plan: Plan | None = None
    least_plan: Planned | None = None

    @property
    def graph(self) -> Graph:
        return self.line.recorded

    @property
    def rules(self) -> str:
        """The rules that the policy played by ("" for a plan)."""
        compat = "; the rules of DTR's simulator" if self.simulator.compat else ""
        return RULES[self.simulator.deallocation] + compat if self.telemetry else ""

    @property
    def model_ns(self) -> int:
        """Time of the step without recomputation."""
        return self.simulator.schedule.model_ns

    @property
    def overhead(self) -> float:
        """Time of the run divided by that without recomputation."""
        return self.clock_ns / self.model_ns if self.model_ns else 1.0

    @property
    def status(self) -> ExitStatus:
        """The answer to whether the step fits."""
        return ExitStatus.HOLDS if self.outcome == "ok" else ExitStatus.FAILS

    @property
    def ended(self) -> bool:
        """True unless the run was given up."""
        return self.outcome in ("ok", "over")

    @cached_property
    def recomputed(self) -> Annotated[tuple[int, ...], Show(unit="count", data=True)]:
        """The op of each recomputation."""
        return tuple(self.line.run_op[self.line.is_recompute].tolist())

    @property
    def remat_ns(self) -> Annotated[int, Show("recomputation", level=1)]:
        """Time of recomputation."""
        return int(self.line.run_ns[self.line.is_recompute].sum())

    @cached_property
    def before_bytes(self) -> tuple[int, ...]:
        """For each op run, the bytes resident without a budget at the op of the step that is at hand."""
        schedule, workspace = self.simulator.schedule, self.simulator.workspace
        resident = timeline(self.graph, device=schedule.device, workspace=workspace).resident.tolist()
        return tuple(resident[op] for op in self.at_hand)

    @cached_property
    def at_hand(self) -> tuple[int, ...]:
        """For each op run, the op of the step that comes next or is this one."""
        own = ~self.line.is_recompute
        return tuple(np.minimum(own.cumsum() - own, len(self.graph) - 1).tolist())

    @cached_property
    def least(self) -> Demand:
        """The most demanding op, below whose bytes no policy goes."""
        return least_bytes(self.simulator.schedule)


def of_policy(
    simulator: Simulator,
    simulation: Simulation,
    *,
    smallest: Simulation | None = None,
    others: Sequence[Simulation] = (),
    name: str = "",
) -> Budgeted:
    """Make ``simulation``, a run of ``simulator``, ready to be shown; ``name`` is that of its policy if it has another.

    ``others``: those that did not play by the rules of the first one played with banishing.
    """
    found, graph = telemetry(simulator, simulation), simulator.recording.graph
    kinds, indexes = found.moments["kind"], found.moments["index"]
    rows = np.flatnonzero(kinds <= Kind.RECOMPUTE)
    rows = rows[simulation.schedule.origin[indexes[rows]] >= 0]
    ops, starts = simulation.schedule.origin[indexes[rows]], found.moments["clock_ns"][rows]
    ends = starts + np.array(simulator.recording.durations_ns, np.int64)[ops]
    columns = (kinds[rows], ops, np.zeros(len(rows), np.int64), starts, ends, found.moments["total_bytes"][rows])
    parts = {"pinned": "pinned_bytes", "in_use": "locked_bytes", "evictable": "evictable_bytes"}
    counts = zip(*(found.storages[name] for name in ("graph_storage", "forced", "remats")), strict=True)
    return Budgeted(
        simulator=simulator,
        policy=name or simulation.policy,
        outcome=simulation.status,
        budget_bytes=simulation.budget_bytes,
        peak_bytes=simulation.peak_bytes,
        clock_ns=simulation.clock_ns,
        line=Timeline(graph, simulation.schedule.device, lambda: Events(*columns)),
        resident={key: found.moments[name][rows].tolist() for key, name in parts.items()},
        evicted={storage: (forced, remats) for storage, forced, remats in counts if forced or remats},
        simulation=simulation,
        telemetry=found,
        smallest=smallest,
        others=others,
    )


def of_plan(
    simulator: Simulator, plan: Plan, name: str, *, budget_bytes: int | None, others: Sequence[Simulation] = ()
) -> Budgeted:
    """Play ``plan`` on the step of ``simulator``; ``others`` are runs of policies to stand beside it.

    Raises PlanError if it does not execute the step.
    """
    recording = simulator.recording
    played = replay(recording.graph, plan, durations_ns=recording.durations_ns, workspace=simulator.workspace)
    peak = int(played.resident.max(initial=0))
    evicted = {storage: (count, count) for storage, count in _returns(played).items()}
    return Budgeted(
        simulator=simulator,
        policy=name,
        outcome="ok" if budget_bytes is None or peak <= budget_bytes else "over",
        budget_bytes=budget_bytes,
        peak_bytes=peak,
        clock_ns=played.makespan_ns,
        line=played,
        resident={"resident": played.resident.tolist()},
        evicted=evicted,
        others=others,
        plan=plan,
    )


def _returns(played: Timeline) -> Counter[int]:
    """Count how often each storage is evicted and then recomputed."""
    gone: set[int] = set()
    returns: Counter[int] = Counter()
    for kind, index in zip(played.events.kind.tolist(), played.events.index.tolist(), strict=True):
        if kind == Kind.EVICT:
            gone.add(index)
        elif kind <= Kind.RECOMPUTE:
            back = gone.intersection(played.recorded.index.allocated[index])
            returns.update(back)
            gone -= back
    return returns
