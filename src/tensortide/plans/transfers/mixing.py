"""Recomputations in place of moves: in a plan that fits, some of what moves stays, ops run again instead, and the rest
moves as before.

Where ops wait, the engines have no time left. What is moved near such an op is left on the device; what then exceeds
the budget is recomputed; other intervals move as far as that is not enough. Now and then recomputations are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tensortide.plans.transfers.choosing import PRICES, Choosing
from tensortide.plans.transfers.decoder import Made
from tensortide.plans.transfers.joint import Joint
from tensortide.plans.transfers.kernels.arrays import HERE
from tensortide.plans.transfers.kernels.placing import NEVER
from tensortide.plans.transfers.kernels.replayed import replayed
from tensortide.plans.under_budget.moves import chance
from tensortide.plans.under_budget.tables import Ints

OPS_PER_TURN = 60
"""A turn takes about as long as playing its sequence so many times."""
_STEPS = 32
"""Changes of what moves that are tried for each new sequence."""
_MOST, _AMONG = 4, 12
"""Intervals left out in a turn at most, and out of how many that are nearest to an op that waits."""
_RUINED = 0.3
"""Share of the turns that leave out recomputations."""
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

    def __init__(self, joint: Joint) -> None:
        self.joint, self.decoder = joint, joint.decoder
        self.dice = np.array([_SEED], np.int64)

    def improve(self, start: Mixed, turns: int) -> Iterator[Made]:
        """Change ``start`` in so many turns; yield each plan that is the fastest so far."""
        now, best_ns = start, start.made.time_ns
        for turn in range(turns):
            found = self._turn(now)
            self.decoder.look()
            if found is None:
                continue
            heat = _HEAT * start.made.least_ns * (1 - turn / turns)
            if found.made.time_ns <= now.made.time_ns - heat * math.log(1 - chance(self.dice)):
                now = found
            if found.made.time_ns < best_ns:
                best_ns = found.made.time_ns
                yield found.made

    def _turn(self, now: Mixed) -> Mixed | None:
        """``now`` with other recomputations; None if there are none, or if they do not fit."""
        choosing, noise = now.choosing, np.array([0.5 + chance(self.dice) for _ in self.decoder.t.nbytes])
        if chance(self.dice) < _RUINED:
            kept = now.choice
            sequence = self.joint.local.ruined(choosing.x.sequence, self.dice, self.decoder.look)
        else:
            kept = self._less(now)
            away = choosing.away(kept)
            _, sequence, _ = self.joint.local.relieved(
                choosing.x.sequence, away, noise, chance(self.dice), self.decoder.look
            )
        if len(sequence) == len(choosing.x.sequence):
            return None
        longer = Choosing(self.decoder, sequence, self.joint.budget)
        choice = longer.covered(longer.carried(choosing, kept), PRICES[int(len(PRICES) * chance(self.dice))])
        for better in longer.improved(choice, _STEPS):
            choice = better
        made = longer.made(choice)
        return None if made.time_ns == NEVER else Mixed(longer, choice, made)

    def _less(self, now: Mixed) -> Ints:
        """The choice of ``now`` without a few intervals that begin or end near an op that waits."""
        v, kept = now.choosing.v, now.choice.copy()
        moved = np.flatnonzero(kept != HERE)
        waits = self._waits(now)
        if not len(moved) or not waits.any():
            return kept
        at = int(np.searchsorted(np.cumsum(waits), waits.sum() * chance(self.dice), side="right"))
        distance = np.minimum(np.abs(v.before[moved] - at), np.abs(v.after[moved] - at))
        near = moved[np.argsort(distance, kind="stable")[:_AMONG]]
        for _ in range(1 + int(_MOST * chance(self.dice))):
            kept[near[int(len(near) * chance(self.dice))]] = HERE
        return kept

    def _waits(self, now: Mixed) -> Ints:
        """The nanoseconds that each op of a plan waits, and those that transfers go on after the last."""
        d, sequence = self.decoder, now.choosing.x.sequence
        starts = np.zeros(len(sequence) + 1, np.int64)
        d.spend(len(sequence))
        replayed(d.t, d.links, now.made.tokens, self.joint.budget, starts)
        ends = np.concatenate(([0], starts[:-1] + d.t.ns[sequence]))
        return np.maximum(0, starts - ends)
