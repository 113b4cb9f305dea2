"""Recomputation and transfers together: sequences are changed, and decoded again, as long as plans become faster.

What can move unnoticed moves; at the peaks that remain storages are recomputed, which makes time for more to move; and
so on until all fits. Then some recomputations are left out, and the rest is fitted again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tensortide.plans.transfers.decoder import Decoder, Made
from tensortide.plans.under_budget.local_search import LocalSearch
from tensortide.plans.under_budget.moves import chance
from tensortide.plans.under_budget.tables import Floats, Ints

ROUNDS = 8
"""How often moves and recomputations alternate until a sequence fits."""
_HEAT = 0.02
"""Part of the added time by which a plan may get worse for a while, at first."""
_SEED = 20


class Joint:
    """Fits sequences within a budget."""

    def __init__(self, decoder: Decoder, budget_bytes: int) -> None:
        self.decoder, self.budget = decoder, budget_bytes
        self.local = LocalSearch(decoder.t, budget_bytes, decoder.spend)
        self.dice = np.array([_SEED], np.int64)

    def fit(self, sequence: Ints, noise: Floats | None = None, sharpness: float = 1.0) -> tuple[Made, Ints]:
        """``sequence`` with recomputations and moves until it fits, and what is made of it; ops wait where all else
        fails. ``noise``, ``sharpness``: see ``moves.repair``."""
        noise = np.ones(len(self.decoder.t.nbytes)) if noise is None else noise
        best: tuple[Made, Ints] | None = None
        for _ in range(ROUNDS):
            made = self.decoder.decode(sequence, self.budget, noise=noise, waits=False)
            if made.short_bytes:
                _, changed, _ = self.local.relieved(sequence, made.away, noise, sharpness, self.decoder.look)
            else:
                best = made, sequence
                changed = self.local.trimmed(sequence, made.away, self.decoder.look)
                self.decoder.look()
            if len(changed) == len(sequence):
                break
            sequence = changed
        return best or (self.decoder.decode(sequence, self.budget, noise=noise), sequence)

    def improve(self, start: tuple[Made, Ints], fits: int) -> Iterator[Made]:
        """Ruin and fit ``start`` so many times; yield each plan that is the best so far."""
        t = self.decoder.t
        made, sequence = start
        best, added = made.time_ns, made.time_ns - int(t.ns.sum())
        for turn in range(fits):
            strength = chance(self.dice)
            noise = np.array([(0.5 + chance(self.dice)) ** strength for _ in range(len(t.nbytes))])
            ruined = self.local.ruined(sequence, self.dice, self.decoder.look)
            found, longer = self.fit(ruined, noise, chance(self.dice))
            if found.short_bytes:
                continue
            heat = _HEAT * added * max(0.0, 1 - 1.25 * turn / fits)
            if found.time_ns <= made.time_ns - heat * math.log(1 - chance(self.dice)):
                made, sequence = found, longer
            if found.time_ns < best:
                best = found.time_ns
                yield found
