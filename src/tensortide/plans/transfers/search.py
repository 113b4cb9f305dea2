"""The fastest plan with transfers that is found for some sequences of ops: by choosing what moves."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tensortide.errors import PlanError
from tensortide.plans.events import Played, play
from tensortide.plans.instance import DEVICE, Instance
from tensortide.plans.model import Compute, Step
from tensortide.plans.transfers.choosing import PRICES, Choosing, Made, Setting
from tensortide.plans.transfers.kernels.placing import NEVER
from tensortide.plans.transfers.mixing import Mixed, Mixing
from tensortide.plans.under_budget.search import Stopped, Watch
from tensortide.plans.under_budget.sequence import Token, steps_of
from tensortide.plans.under_budget.tables import Ints
from tensortide.search_limit import SearchLimit

Planner: TypeAlias = "Callable[[Choosing], Ints]"
"""Makes a choice of what moves in a sequence."""


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """A plan with transfers, as played. ``source`` says in words where it comes from."""

    steps: tuple[Step, ...]
    home: Mapping[int, str]
    played: Played
    source: str

    @property
    def rank(self) -> tuple[int, int]:
        """The faster plan is better, of equals that which moves less."""
        return self.played.makespan_ns, sum(self.played.moved_bytes.values())


@dataclass
class Transfers:
    """Search for plans of ``instance`` within ``budget_bytes``, until ``limit`` is reached, its work in ops played, or
    until ``watch`` ends it: then Stopped is raised.

    ``reason``: why the last plan did not fit. ``bound_ns``: a time that none undercuts, if known.
    """

    instance: Instance
    budget_bytes: int
    limit: SearchLimit = field(default_factory=SearchLimit)
    best: Moved | None = None
    work: int = 0
    reason: str = ""
    bound_ns: int = 0
    watch: Watch | None = None
    is_patient: bool = False
    """Whether the limit holds only once there is a plan."""

    def offer(self, tokens: Iterable[Token], home: Mapping[int, str], source: str) -> Moved | None:
        """Play a plan; keep it if it fits and is better. Returns it if it fits."""
        return self.offer_steps(steps_of(self.setting.t, tokens), home, source)

    def offer_steps(self, steps: Sequence[Step], home: Mapping[int, str], source: str) -> Moved | None:
        """Play the steps of a plan; keep it if it fits and is better. Returns it if it fits."""
        self.work += 1
        self.spend(len(steps))
        try:
            played = play(self.instance, steps, home=home, budget_bytes=self.budget_bytes)
        except PlanError as error:
            self.reason = str(error)
            return None
        found = Moved(tuple(steps), dict(home), played, source)
        if self.best is None or found.rank < self.best.rank:
            self.best = found
        return found

    @functools.cached_property
    def setting(self) -> Setting:
        """The instance as choices of what moves need it."""
        return Setting(self.instance, self.look, self.spend)

    @functools.cached_property
    def mixing(self) -> Mixing:
        """The search of sequences with recomputations and moves."""
        return Mixing(self.setting, self.budget_bytes)

    def spend(self, ops: int) -> None:
        """Count ops that are played."""
        self.limit.spend(ops)

    def look(self) -> None:
        """Raise Stopped if the search is to end."""
        best = None if self.best is None else self.best.played.makespan_ns
        goes_on = self.watch is None or self.watch(best, self.bound_ns)
        if not goes_on or self.is_late:
            raise Stopped

    def fit(self, sequence: Sequence[int], source: str) -> Mixed:
        """Recompute and move in a sequence until it fits."""
        found = self.mixing.fit(np.array(sequence, np.int64))
        self.work += 1
        self._offer_choice(found.made, source)
        return found

    def offer_made(self, made: Made, source: str) -> Moved | None:
        """Play what was decoded, if it may be better than the best plan."""
        if self.best is not None and made.time_ns > self.best.played.makespan_ns:
            return None
        return self.offer(self.setting.told(made), self.homes(self.setting.homes(made)), source)

    def done(self) -> bool:
        """Tell whether the limit is reached, or no plan can be faster."""
        least = self.best is not None and self.best.played.makespan_ns <= max(self.bound_ns, self.instance.base_ns)
        return least or self.is_late

    @property
    def is_late(self) -> bool:
        """True once the limit is reached."""
        return self.limit.spent and not (self.is_patient and self.best is None)

    def sequence(self, sequence: Sequence[int], steps: int, source: str, moves: Iterable[Planner] = ()) -> None:
        """Move in a sequence what exceeds the budget: what stalls nothing, what ``moves`` say, and whatever makes room
        besides; improve the fastest of that in so many steps. Everything moves where nothing else fits."""
        choosing = Choosing(self.setting, np.array(sequence, np.int64), self.budget_bytes)
        start, best = choosing.nothing(), NEVER
        for planned in itertools.chain((Choosing.nothing, _hidden), moves):
            moved = planned(choosing)
            for price in PRICES:
                choice = choosing.covered(moved, price)
                made = choosing.made(choice)
                self.work += 1
                if made.time_ns < best or best == NEVER:
                    start, best = choice, made.time_ns
                self._offer_choice(made, source)
                self.look()
        for link in self.instance.links if self.best is None else ():
            self._offer_choice(choosing.made(choosing.everything(link.name)), source)
        self._improve(choosing, start, steps, source)

    def polish(self, steps: int) -> None:
        """Change what moves in the best plan, in so many steps."""
        if self.best is not None and not self.done():
            self._improve(*self._chosen(self.best), steps, self.best.source)

    def mix(self, turns: int, source: str, start: Mixed | None = None) -> None:
        """Recompute in ``start``, by default the best plan, some of what moves, and move some of what is recomputed, in
        so many turns."""
        if start is None and self.best is not None:
            choosing, choice = self._chosen(self.best)
            start = Mixed(choosing, choice, choosing.made(choice))
        if start is None or self.done():
            return
        for made in self.mixing.improve(start, turns):
            self.offer_made(made, source)
            if self.done():
                break
        self.work += turns

    def _chosen(self, plan: Moved) -> tuple[Choosing, Ints]:
        """The sequence of a plan, and the choice of what it moves."""
        sequence = [step.op for step in plan.steps if isinstance(step, Compute)]
        choosing = Choosing(self.setting, np.array(sequence, np.int64), self.budget_bytes)
        return choosing, choosing.of_steps(plan.steps, plan.home)

    def _improve(self, choosing: Choosing, start: Ints, steps: int, source: str) -> None:
        for choice in choosing.improved(start, steps):
            self.work += 1
            self._offer_choice(choosing.made(choice), source)
            if self.done():
                return

    def _offer_choice(self, made: Made, source: str) -> None:
        if made.time_ns < NEVER:
            self.offer_made(made, source)

    def homes(self, chosen: Mapping[int, str]) -> dict[int, str]:
        """The homes of all persistent storages that can have one anywhere: the device unless one is chosen."""
        movable = (s for s in self.instance.home if self.instance.storages[s].persistent)
        return {s: DEVICE for s in movable if not self.instance.storages[s].pinned} | dict(chosen)


def _hidden(choosing: Choosing) -> Ints:
    return choosing.hidden(np.ones(len(choosing.setting.t.nbytes))).choice
