"""Local search on sequences of an instance under a budget, with the room that its compiled functions need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensortide.plans.under_budget.kernels import BLOCK, EVALUATED, LEAST_NS, Survey
from tensortide.plans.under_budget.moves import FITS, MORE, evaluated, prune, repair, rounds
from tensortide.plans.under_budget.sequence import Evaluated
from tensortide.plans.under_budget.tables import Floats, Ints, Tables

_GROWTH = 4
"""The longest sequence that is searched is this many times the step."""
_SMALL = 16
"""A move counts as taking at least this part of the mean duration of an op."""
_STACK, _BURST = 3 * 256, 512
"""Deepest nesting of what is restored for other things, in numbers; longest list of ops that restores a storage."""

_STEPS = 200_000
"""Ops that a repair plays between two looks at the clock, about."""


class LocalSearch:
    """Repairs and moves on sequences of one instance under one budget.

    ``prices``: how much a byte over the budget counts at each op, 1 at most; all 0 if that is not known.
    """

    def __init__(self, t: Tables, budget_bytes: int) -> None:
        self.t, self.budget = t, budget_bytes
        self.prices = np.zeros(max(1, len(t.ns)))
        storages, places = len(t.nbytes), _GROWTH * len(t.ns) + 64
        events = _GROWTH * (len(t.touched) + len(t.made)) + storages + 64
        sizes = [storages] * 2 + [events] * 6 + [places, places // BLOCK + 1] + [storages] * 4 + [_STACK, _BURST, 3]
        self.room = Survey(*(np.zeros(size, np.int64) for size in sizes))
        self.room.counts[LEAST_NS] = 1 + int(t.ns.sum()) // (_SMALL * max(1, len(t.ns)))

    @property
    def work(self) -> int:
        """Return how many sequences were evaluated."""
        return int(self.room.counts[EVALUATED])

    def evaluate(self, sequence: Ints) -> Evaluated | None:
        """``sequence`` with its time and bytes; None if it is not legal."""
        most, _, level = evaluated(self.t, self.room, sequence)
        return None if most < 0 else Evaluated(sequence, int(self.t.ns[sequence].sum()), level)

    def repaired(
        self, sequence: Ints, noise: Floats, sharpness: float, look: Callable[[], None] = lambda: None
    ) -> Evaluated | None:
        """``sequence`` with recomputations until it fits, and without superfluous ones; None if that fails.

        ``look`` is called now and then; it may raise.
        """
        outcome, sequence, _ = self.relieved(sequence, np.zeros(len(sequence), np.int64), noise, sharpness, look)
        return self.pruned(sequence) if outcome == FITS else None

    def relieved(
        self, sequence: Ints, away: Ints, noise: Floats, sharpness: float, look: Callable[[], None]
    ) -> tuple[int, Ints, Ints]:
        """``sequence`` with recomputations until it fits beside what is ``away`` at each place: see ``repair``."""
        outcome, left = MORE, 8 * len(self.t.ns) + 64
        steps = max(8, _STEPS // len(self.t.ns))
        while outcome == MORE and left > 0:
            outcome, sequence, away = repair(
                self.t, self.room, sequence, away, self.budget, noise, sharpness, self.prices, min(steps, left)
            )
            left -= steps
            look()
        return outcome, sequence, away

    def pruned(self, sequence: Ints) -> Evaluated | None:
        """``sequence``, which fits, without superfluous recomputations."""
        return self.evaluate(self.trimmed(sequence, np.zeros(len(sequence), np.int64)))

    def trimmed(self, sequence: Ints, away: Ints) -> Ints:
        """``sequence``, which fits beside what is ``away`` at each place, without superfluous recomputations."""
        shorter: Ints = prune(self.t, self.room, sequence, away, self.budget)[0]
        return shorter

    def searched(self, sequence: Ints, best: Ints, dice: Ints, count: int, heat: float) -> tuple[Ints, Ints]:
        """``sequence``, which fits, after so many rounds of ruin and repair; and the best found on the way."""
        found: tuple[Ints, Ints] = rounds(
            self.t, self.room, sequence, best, self.budget, dice, count, heat, self.prices
        )
        return found
