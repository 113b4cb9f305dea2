"""Local search on sequences of an instance under a budget, with the room that its compiled functions need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensortide.compiled import IS_COMPILED
from tensortide.plans.under_budget.kernels import BLOCK, EVALUATED, EXCHANGE, LEAST_NS, STOP, Survey
from tensortide.plans.under_budget.moves import FITS, MORE, evaluated, prune, repair, rounds, ruin
from tensortide.plans.under_budget.sequence import Evaluated
from tensortide.plans.under_budget.tables import Floats, Ints, Tables
from tensortide.search_limit import Look, attended, no_look

_GROWTH = 4
"""The longest sequence that is searched is this many times the step."""
_SMALL = 16
"""A move counts as taking at least this part of the mean duration of an op."""
_STACK, _BURST = 3 * 256, 512
"""Deepest nesting of what is restored for other things, in numbers; longest list of ops that restores a storage."""

_STEPS = 200_000
"""Ops that a repair plays between two looks at the limit, about."""
_QUICK = 2_000 if IS_COMPILED else 20
"""Longest step, in ops, of which no call of a function takes long."""


class LocalSearch:
    """Repairs and moves on sequences of one instance under one budget.

    ``spend`` is told how many ops are played. Where a method has ``look``, it is called now and then, and may raise.
    ``prices``: how much a byte over the budget counts at each op, 1 at most; all 0 if that is not known.
    """

    def __init__(self, t: Tables, budget_bytes: int, spend: Callable[[int], None]) -> None:
        self.t, self.budget, self.spend = t, budget_bytes, spend
        self.prices = np.zeros(max(1, len(t.ns)))
        storages, places = len(t.nbytes), _GROWTH * len(t.ns) + 64
        events = _GROWTH * (len(t.touched) + len(t.made)) + storages + 64
        sizes = [storages] * 2 + [events] * 6 + [places, places // BLOCK + 1] + [storages] * 4 + [_STACK, _BURST, 6]
        self.room = Survey(*(np.zeros(size, np.int64) for size in sizes))
        self.room.counts[LEAST_NS] = 1 + int(t.ns.sum()) // (_SMALL * max(1, len(t.ns)))

    def exchange(self, does: bool) -> None:
        """Set whether smaller sources stay resident in exchange for what they restore."""
        self.room.counts[EXCHANGE] = does

    @property
    def work(self) -> int:
        """Return how many sequences were evaluated."""
        return int(self.room.counts[EVALUATED])

    def evaluate(self, sequence: Ints) -> Evaluated | None:
        """``sequence`` with its time and bytes; None if it is not legal."""
        most, _, level = self._call(evaluated, no_look, sequence)
        return None if most < 0 else Evaluated(sequence, int(self.t.ns[sequence].sum()), level)

    def repaired(self, sequence: Ints, noise: Floats, sharpness: float, look: Look) -> Evaluated | None:
        """``sequence`` with recomputations until it fits, and without superfluous ones; None if that fails."""
        outcome, sequence, _ = self.relieved(sequence, np.zeros(len(sequence), np.int64), noise, sharpness, look)
        return self.pruned(sequence, look) if outcome == FITS else None

    def relieved(
        self, sequence: Ints, away: Ints, noise: Floats, sharpness: float, look: Look
    ) -> tuple[int, Ints, Ints]:
        """``sequence`` with recomputations until it fits beside what is ``away`` at each place: see ``repair``."""
        outcome, left = MORE, 8 * len(self.t.ns) + 64
        steps = max(8, _STEPS // len(self.t.ns))
        while outcome == MORE and left > 0:
            limits = self.budget, noise, sharpness, self.prices, min(steps, left)
            outcome, sequence, away = self._call(repair, look, sequence, away, *limits)
            left -= steps
            look()
        return outcome, sequence, away

    def pruned(self, sequence: Ints, look: Look) -> Evaluated | None:
        """``sequence``, which fits, without superfluous recomputations."""
        return self.evaluate(self.trimmed(sequence, np.zeros(len(sequence), np.int64), look))

    def trimmed(self, sequence: Ints, away: Ints, look: Look) -> Ints:
        """``sequence``, which fits beside what is ``away`` at each place, without superfluous recomputations."""
        shorter: Ints = self._call(prune, look, sequence, away, self.budget)[0]
        return shorter

    def ruined(self, sequence: Ints, dice: Ints, look: Look) -> Ints:
        """``sequence`` without some recomputations, whatever the bytes."""
        found: Ints = self._call(ruin, look, sequence, dice)
        return found

    def searched(
        self, sequence: Ints, best: Ints, dice: Ints, count: int, heat: float, look: Look
    ) -> tuple[Ints, Ints]:
        """``sequence``, which fits, after so many rounds of ruin and repair; and the best found on the way."""
        found: tuple[Ints, Ints] = self._call(rounds, look, sequence, best, self.budget, dice, count, heat, self.prices)
        return found

    def _call(self, function: Callable[..., Any], look: Look, *arguments: object) -> Any:
        """Call a compiled function, attended where it may take long, and count what it plays."""
        before = self.work
        try:
            if len(self.t.ns) <= _QUICK:
                return function(self.t, self.room, *arguments)
            return attended(lambda: function(self.t, self.room, *arguments), look, self._stop)
        finally:
            self.room.counts[STOP] = 0
            self.spend((self.work - before) * len(self.t.ns))

    def _stop(self) -> None:
        self.room.counts[STOP] = 1
