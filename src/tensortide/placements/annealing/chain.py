"""One chain of annealing: its state, and the two halves of a step, between which a placement is simulated.

All randomness comes in as numbers drawn by the caller, so a chain takes the same path compiled or not, and whatever the
pieces are in which it is run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.placements.annealing.moves import DRAWS, Neighbourhood, move
from tensortide.placements.annealing.table import Floats, Ints, Placements, Table, add, find
from tensortide.plans.compiled import compiled

ENERGY, BEST_MS, BEST_OVER, HOT, COLD, SOFTENING, SCORE, OVER, BOUND = range(9)
"""Places of ``Chain.numbers``: energy of the state; score and over-use of the best placement; temperatures, ms, at the
first and the last step; ms that a byte of over-use counts more in an energy than in a score; score and over-use of the
proposal; a bound that ends the chain."""
STEP, STEPS, EVALUATED, MOST, DRAWN, IMPROVED, REDRAWS, NUMBER = range(8)
"""Places of ``Chain.counts``: steps taken and to take; placements in ``own``, and how many at most; numbers drawn that
are used up; improvements; how often a known placement is drawn again; the number of the proposal in a table (-1: it has
to be simulated)."""
ROOM = 64
"""Improvements that a chain notes before they are read."""


class Chain(NamedTuple):
    """State of a chain; every array is changed in place.

    Placements in ``shared`` (of earlier rounds) and ``own`` (of this chain in this round) are drawn again. ``known``
    (of a file) and ``others`` (of other chains in this round) spare simulations, and change nothing else.
    ``improvements`` [ROOM, 2] are the counts of steps and of placements in ``own`` at each, ``improved_ms`` its score.
    """

    row: Placements
    new: Placements
    best: Placements
    numbers: Floats
    counts: Ints
    draws: Floats
    near: Neighbourhood
    own: Table
    shared: Table
    known: Table
    others: Table
    improvements: Ints
    improved_ms: Floats


@compiled
def propose(c: Chain) -> bool:
    """Draw the next placement into ``new``; again where it was seen before, up to ``REDRAWS`` times.

    False if the chain is at its end, or needs its caller first: for more numbers or more room. ``counts[NUMBER]`` is
    then -2; else it is -1 if ``new`` has to be simulated.
    """
    counts, genes = c.counts, len(c.row)
    counts[NUMBER] = -2
    if counts[STEP] >= counts[STEPS] or counts[EVALUATED] >= counts[MOST] or counts[IMPROVED] >= ROOM:
        return False
    if c.numbers[BEST_MS] <= c.numbers[BOUND]:
        return False
    if c.own.size[0] >= len(c.own.scores) or counts[DRAWN] + (counts[REDRAWS] + 1) * DRAWS + 1 > len(c.draws):
        return False
    for _ in range(counts[REDRAWS] + 1):
        for gene in range(genes):
            c.new[gene] = c.row[gene]
        move(c.new, c.draws, counts[DRAWN], c.near)
        counts[DRAWN] += DRAWS
        counts[NUMBER] = find(c.own, c.new)
        if counts[NUMBER] >= 0:
            c.numbers[SCORE], c.numbers[OVER] = c.own.scores[counts[NUMBER]], c.own.over[counts[NUMBER]]
            continue
        shared = find(c.shared, c.new)
        if shared < 0:
            break
        counts[NUMBER] = shared
        c.numbers[SCORE], c.numbers[OVER] = c.shared.scores[shared], c.shared.over[shared]
    if counts[NUMBER] == -1:
        _look_up(c)
    return True


@compiled
def _look_up(c: Chain) -> None:
    """Take the score of ``new`` from where it was simulated before, if it was."""
    number = find(c.known, c.new)
    if number >= 0:
        simulated(c, c.known.scores[number], c.known.over[number])
        return
    number = find(c.others, c.new)
    if number >= 0:
        simulated(c, c.others.scores[number], c.others.over[number])


@compiled
def simulated(c: Chain, score: float, over: float) -> None:
    """Note the score (ms) and over-use (bytes) of ``new``."""
    c.numbers[SCORE], c.numbers[OVER] = score, over
    c.counts[NUMBER] = add(c.own, c.new, score, over)
    c.counts[EVALUATED] += 1


@compiled
def decide(c: Chain) -> None:
    """Accept ``new`` or keep the state, by the rule of Metropolis; note an improvement."""
    numbers, counts = c.numbers, c.counts
    share = counts[STEP] / counts[STEPS]
    temperature = numbers[HOT] * (numbers[COLD] / numbers[HOT]) ** share
    counts[STEP] += 1
    if numbers[SCORE] < numbers[BEST_MS]:
        numbers[BEST_MS], numbers[BEST_OVER] = numbers[SCORE], numbers[OVER]
        c.improvements[counts[IMPROVED], 0] = counts[STEP]
        c.improvements[counts[IMPROVED], 1] = counts[EVALUATED]
        c.improved_ms[counts[IMPROVED]] = numbers[SCORE]
        counts[IMPROVED] += 1
        for gene in range(len(c.new)):
            c.best[gene] = c.new[gene]
    energy = numbers[SCORE] + numbers[SOFTENING] * numbers[OVER]
    chance = c.draws[counts[DRAWN]]
    counts[DRAWN] += 1
    if math.log(chance + 1e-300) * temperature < numbers[ENERGY] - energy:
        numbers[ENERGY] = energy
        for gene in range(len(c.new)):
            c.row[gene] = c.new[gene]
