"""Search for the fastest sequence within a budget, from those that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.instance import Instance
from tensortide.plans.under_budget.bound import EachOnce, Exhausted, IdleCover, RecomputeProof
from tensortide.plans.under_budget.exhaustive import MOST_OPS, WORK, optimum
from tensortide.plans.under_budget.known import Known, Rival
from tensortide.plans.under_budget.local_search import LocalSearch
from tensortide.plans.under_budget.sequence import Evaluated, evaluate
from tensortide.plans.under_budget.tables import Ints, Tables
from tensortide.progress import detail
from tensortide.search_limit import SearchLimit

Watch: TypeAlias = "Callable[[int | None, int], bool]"
"""Called with the time of the best plan so far (None: there is none yet) and the bound, in nanoseconds, whenever one of
them improves, and now and then; returns whether to go on."""

EFFORT = 100
"""Default effort: so many million ops are played at most while plans are improved."""
SMALL_EFFORT = 0.2
"""Effort before a small step is searched for the optimum."""
_PER_EFFORT = 1_000_000
_STATES = WORK // EFFORT
"""States that the search for the optimum looks at, by effort."""
_OPS_PER_STATE = _PER_EFFORT // _STATES
"""A state counts as playing so many ops."""
_EXHAUSTING = 0.5
"""Share of the limit that is left for the search for the optimum."""
SHARPNESS = (1.0, 0.5, 0.0, 2.0)
"""How repairs from the recorded order weigh what is over the budget."""
EXCHANGE = "exchange"
"""The source of plans that keep smaller sources resident in exchange for what they restore."""
_TRIES = 12
"""Repairs with random weights, where those do not help."""
_CHUNK = 200_000
"""Ops that are played between two looks at the limit, about."""
_PHASES = 40
_HEAT = 0.02
"""Part of the added time by which a plan may get worse for a while, at first."""
_SEED = 20


class Stopped(Exception):
    """The limit is reached, or the listener has had enough."""


class _Late(Exception):
    """The search for the optimum has had its share of the time."""


@dataclass
class Search:
    """A search: the best plan so far, the bound, and the ``limit``, whose work is counted in ops played."""

    instance: Instance
    t: Tables
    budget_bytes: int
    free: bool
    watch: Watch | None = None
    limit: SearchLimit = field(default_factory=SearchLimit)
    best: Evaluated | None = None
    source: str = ""
    bound_ns: int = 0
    proof: RecomputeProof = field(default_factory=EachOnce)
    is_infeasible: bool = False
    rivals: dict[str, Rival] = field(default_factory=dict)
    starts: list[Evaluated] = field(default_factory=list)
    is_patient: bool = False
    """Whether the limit holds only once there is a plan."""

    def __post_init__(self) -> None:
        self.local = LocalSearch(self.t, self.budget_bytes, self.limit.spend)

    def bound(self, bound_ns: int | None, proof: RecomputeProof) -> None:
        """Take the bound if it is better; None: there is no plan."""
        if bound_ns is None:
            self.is_infeasible, self.proof = True, proof
        elif bound_ns > self.bound_ns:
            self.bound_ns, self.proof = bound_ns, proof

    @property
    def is_proved(self) -> bool:
        return self.is_infeasible or (self.best is not None and self.best.time_ns <= self.bound_ns)

    def offer(self, played: Evaluated, source: str) -> bool:
        """Take ``played`` if it fits and is better; of equals in time the one of the lower peak."""
        if played.peak_bytes > self.budget_bytes:
            return False
        best = self.best
        if best is not None and (played.time_ns, played.peak_bytes) >= (best.time_ns, best.peak_bytes):
            return False
        self.best, self.source = played, source
        self.look()
        return True

    def look(self) -> None:
        """Raise Stopped if the search is to end."""
        goes_on = self.watch is None or self.watch(None if self.best is None else self.best.time_ns, self.bound_ns)
        waits = self.is_patient and self.best is None
        if not goes_on or (not waits and self.limit.spent):
            raise Stopped

    def take_known(self, known: Iterable[Known]) -> None:
        """Play every known plan; each name keeps its best one as a rival."""
        for plan in known:
            rival = self._rival(plan)
            if plan.sequence is None:
                detail("skipped", f"{plan.name}: {plan.reason}")
            before = self.rivals.get(plan.name)
            if before is None or _rank(rival) < _rank(before):
                self.rivals[plan.name] = rival
            self.look()

    def _rival(self, plan: Known) -> Rival:
        if plan.sequence is None:
            return Rival(plan.name, plan.kind, reason=plan.reason)
        self.limit.spend(len(plan.sequence))
        try:
            found = evaluate(self.instance, self.t, plan.sequence, free=self.free)
        except PlanError as error:
            return Rival(plan.name, plan.kind, reason=str(error))
        over = found.peak_bytes - self.budget_bytes
        if over <= 0:
            self.starts.append(found)
            self.offer(found, plan.name)
        reason = f"{over:,} bytes over the budget" if over > 0 else ""
        return Rival(plan.name, plan.kind, found.time_ns, found.peak_bytes, reason)

    def repair(self, order: Ints, ways: Iterable[float] = SHARPNESS, source: str = "greedy") -> None:
        """Recompute at the peaks of ``order`` until it fits, in each of the ``ways``, which are values of its
        ``sharpness``."""
        for sharpness in ways:
            self._start(self.local.repaired(order, np.ones(len(self.t.nbytes)), sharpness, self.look), source)

    def repair_by_prices(self, order: Ints) -> None:
        """Recompute at the peaks of ``order`` what the bound says is cheapest, of all that it weighs."""
        if not isinstance(self.proof, IdleCover) or not self.proof.weights:
            return
        ops, weights = np.array(self.proof.weights, float).T
        self.local.prices[ops.astype(np.int64)] = weights / weights.max(initial=1.0)
        self.repair(order, (-1.0,))

    def repair_by_exchange(self, order: Ints) -> None:
        """Recompute at the peaks of ``order`` what sources restore that are smaller, and stay resident for it."""
        self.local.exchange(True)
        self.repair(order, (*SHARPNESS, -1.0), EXCHANGE)
        self.local.exchange(self.source == EXCHANGE)

    def repair_at_random(self, order: Ints) -> None:
        """Recompute at the peaks of ``order`` with random weights."""
        random, ones = np.random.Generator(np.random.PCG64(_SEED)), np.ones(len(self.t.nbytes))
        for _ in range(_TRIES):
            noise = np.exp(random.normal(0, 1, len(ones)))
            self._start(self.local.repaired(order, noise, float(random.random()), self.look))

    def _start(self, played: Evaluated | None, source: str = "greedy") -> None:
        if played is not None:
            self.starts.append(played)
            self.offer(played, source)
        self.look()

    def prune(self) -> None:
        """Leave out superfluous recomputations of the starts."""
        for number, start in enumerate(self.starts):
            shorter = self.local.pruned(start.sequence, self.look)
            if shorter is not None and shorter.time_ns < start.time_ns:
                self.starts[number] = shorter
                self.offer(shorter, "search")
            self.look()

    def exhaust(self, effort: float) -> None:
        """Search a small step for the optimum, as far as ``effort`` allows."""
        if len(self.instance.ops) > MOST_OPS or self.is_proved:
            return
        below = None if self.best is None else self.best.time_ns
        limit = self.limit.part(_EXHAUSTING)
        states = int(min(effort * _STATES, limit.work_left / _OPS_PER_STATE))

        def look() -> None:
            self.look()
            if not limit.seconds_left:
                raise _Late

        try:
            found = optimum(self.instance, self.budget_bytes, free=self.free, below_ns=below, work=states, look=look)
        except _Late:
            return
        limit.spend(found.states * _OPS_PER_STATE)
        if found.sequence is not None:
            self.offer(evaluate(self.instance, self.t, found.sequence, free=self.free), "exhaustive search")
        self.bound(found.bound_ns, Exhausted(self.budget_bytes, self.free, found.bound_ns))

    def improve(self, effort: float, start: Evaluated | None = None) -> None:
        """Ruin and repair ``start``, by default the best plan, as long as ``effort`` allows."""
        if self.best is None:
            return
        start = start or self.best
        dice = np.array([_SEED], np.int64)
        total, begin = int(effort * _PER_EFFORT), self.local.work
        current, best = start.sequence, start.sequence
        while (spent := (self.local.work - begin) * len(self.t.ns)) < total and not self.is_proved:
            phase = (spent * _PHASES // total) / _PHASES
            heat = _HEAT * (start.time_ns - self.instance.base_ns) * max(0.0, 1 - 1.25 * phase)
            count = max(1, _CHUNK // (100 * len(self.t.ns)))
            current, best = self.local.searched(current, best, dice, count, heat, self.look)
            if not heat:
                current = best
            played = self.local.evaluate(best)
            if played is not None:
                self.offer(played, "search")
            self.look()


def _rank(rival: Rival) -> tuple[bool, bool, int, int]:
    """The fastest that fits before all others, of those the one of the lowest peak."""
    over = bool(rival.reason)
    time_ns, peak = rival.step_ns or 0, rival.peak_bytes or 0
    return over, rival.step_ns is None, peak if over else time_ns, time_ns if over else peak
