"""Recomputation and moves together: sequences of ops, and what moves in them, are changed as long as plans get faster.

Where ops wait, the engines have no time left. What is moved near such an op is left on the device; what then exceeds
the budget is recomputed; other intervals move as far as that is not enough. Now and then recomputations are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tensortide.plans.transfers.choosing import PRICES, Choosing, Made, Setting
from tensortide.plans.transfers.kernels.arrays import HERE
from tensortide.plans.transfers.kernels.placing import NEVER
from tensortide.plans.under_budget.local_search import LocalSearch
from tensortide.plans.under_budget.moves import FITS, chance
from tensortide.plans.under_budget.tables import Floats, Ints

OPS_PER_TURN = 60
"""A turn takes about as long as playing its sequence so many times."""
_ROUNDS = 8
"""How often moves and recomputations alternate until nothing waits, at most."""
_STEPS = 32
"""Changes of what moves that are tried for each new sequence."""
_MOST, _AMONG = 4, 12
"""Intervals left out in a turn at most, and out of how many that are nearest to an op that waits."""
_RUINED = 0.3
"""Share of the turns that leave out recomputations."""
_MOVED = 0.3
"""Share of those that move what is over the budget then, though ops wait for it."""
_HEAT = 0.001
"""Part of the time of the ops by which a plan may get slower for a while, at first."""
_SEED = 20


class Mixed(NamedTuple):
    """A choice of what moves in a sequence, and the plan made of it."""

    choosing: Choosing
    choice: Ints
    made: Made


class Mixing:
    """Search of sequences and choices together."""

    def __init__(self, setting: Setting, budget_bytes: int) -> None:
        self.setting, self.budget = setting, budget_bytes
        self.local = LocalSearch(setting.t, budget_bytes, setting.spend)
        self.dice = np.array([_SEED], np.int64)

    def fit(self, sequence: Ints, noise: Floats | None = None, sharpness: float = 1.0) -> Mixed:
        """Move what stalls nothing in a sequence, and recompute where that is not enough, which makes time for more to
        move; and so on until all fits. Where that fails, ops wait. ``noise``, ``sharpness``: see ``moves.repair``."""
        noise = np.ones(len(self.setting.t.nbytes)) if noise is None else noise
        best, rounds = None, 0
        while True:
            rounds += 1
            choosing = Choosing(self.setting, sequence, self.budget)
            found = choosing.hidden(noise)
            if found.made.short_bytes:
                _, changed, _ = self.local.relieved(sequence, found.away, noise, sharpness, self.setting.look)
            else:
                best = Mixed(choosing, found.choice, found.made)
                changed = self.local.trimmed(sequence, found.away, self.setting.look)
                self.setting.look()
            if len(changed) == len(sequence) or rounds == _ROUNDS:
                return best or self._made(choosing, choosing.covered(found.choice, PRICES[0]))
            sequence = changed

    def improve(self, start: Mixed, turns: int) -> Iterator[Made]:
        """Change ``start`` in so many turns; yield each plan that is the fastest so far."""
        now, best_ns = start, start.made.time_ns
        for turn in range(turns):
            found = self._turn(now)
            self.setting.look()
            if found is None:
                continue
            heat = _HEAT * start.choosing.least_ns * (1 - turn / turns)
            if found.made.time_ns <= now.made.time_ns - heat * math.log(1 - chance(self.dice)):
                now = found
            if found.made.time_ns < best_ns:
                best_ns = found.made.time_ns
                yield found.made

    def _turn(self, now: Mixed) -> Mixed | None:
        """``now`` with other recomputations; None if there are none, or if they do not fit. Where some are left out,
        either what stalls nothing moves and the rest is recomputed, or whatever is over the budget moves."""
        noise = np.array([0.5 + chance(self.dice) for _ in self.setting.t.nbytes])
        before = now.choosing.x.sequence
        if chance(self.dice) < _RUINED:
            ruined = self.local.ruined(before, self.dice, self.setting.look)
            if chance(self.dice) >= _MOVED:
                found = self.fit(ruined, noise, chance(self.dice))
                return None if found.made.short_bytes else found
            found = self._carried(now, now.choice, ruined)
        else:
            found = self._recomputed(now, self._less(now), noise, chance(self.dice))
        if len(found.choosing.x.sequence) == len(before):
            return None
        choice = found.choice
        for better in found.choosing.improved(choice, _STEPS):
            choice = better
        found = self._made(found.choosing, choice)
        return None if found.made.time_ns == NEVER else found

    def _recomputed(self, now: Mixed, kept: Ints, noise: Floats, sharpness: float) -> Mixed:
        """``now`` where the choice ``kept`` moves, and what exceeds the budget beside that is recomputed."""
        outcome, sequence, away = self.local.relieved(
            now.choosing.x.sequence, now.choosing.away(kept), noise, sharpness, self.setting.look
        )
        if outcome == FITS:
            sequence = self.local.trimmed(sequence, away, self.setting.look)
        return self._carried(now, kept, sequence)

    def _carried(self, now: Mixed, kept: Ints, sequence: Ints) -> Mixed:
        """Another ``sequence`` in which ``kept`` moves as in ``now``, and as much more as makes it fit."""
        longer = Choosing(self.setting, sequence, self.budget)
        price = PRICES[int(len(PRICES) * chance(self.dice))]
        return self._made(longer, longer.covered(longer.carried(now.choosing, kept), price))

    def _made(self, choosing: Choosing, choice: Ints) -> Mixed:
        return Mixed(choosing, choice, choosing.made(choice))

    def _less(self, now: Mixed) -> Ints:
        """The choice of ``now`` without a few intervals that begin or end near an op that waits."""
        kept = now.choice.copy()
        moved, waiting = np.flatnonzero(kept != HERE), now.choosing.waits(kept)
        if not len(moved) or not waiting.any():
            return kept
        at = int(np.searchsorted(np.cumsum(waiting), waiting.sum() * chance(self.dice), side="right"))
        v = now.choosing.v
        distance = np.minimum(np.abs(v.before[moved] - at), np.abs(v.after[moved] - at))
        near = moved[np.argsort(distance, kind="stable")[:_AMONG]]
        for _ in range(1 + int(_MOST * chance(self.dice))):
            kept[near[int(len(near) * chance(self.dice))]] = HERE
        return kept
