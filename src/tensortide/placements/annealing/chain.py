"""One chain of annealing: its state, and the two halves of a step, between which a placement is simulated.

All randomness comes in as numbers drawn by the caller, so a chain takes the same path compiled or not, and whatever the
pieces are in which it is run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.compiled import compiled, entry
from tensortide.placements.annealing.estimate import OVER as OVER_USE
from tensortide.placements.annealing.estimate import TIME, Estimate, estimate
from tensortide.placements.annealing.moves import DRAWS, Neighbourhood, move
from tensortide.placements.annealing.table import Table, add, find
from tensortide.placements.arrays import Floats, Ints, Placements

(
    ENERGY,
    BEST_MS,
    BEST_OVER,
    HOT,
    COLD,
    SOFTENING,
    SCORE,
    OVER,
    BOUND,
    PENALTY,
    STATE_ESTIMATE,
    NEW_ESTIMATE,
    CHARGED,
) = range(13)
"""Places of ``Chain.numbers``: energy of the state; score and over-use of the best placement; temperatures, ms, at the
first and the last step; ms that a byte of over-use counts more in an energy than in a score; score and over-use of the
proposal; a bound that ends the chain; ms that a byte of over-use counts in a score; energies, estimated, of the state
and of the proposal; what the proposal's estimate was already held against it, ms."""
STEP, STEPS, EVALUATED, MOST, DRAWN, IMPROVED, REDRAWS, NUMBER, SCREENS = range(9)
"""Places of ``Chain.counts``: steps taken and to take; placements in ``own``, and how many at most; numbers drawn that
are used up; improvements; how often a placement is drawn again that is known or screened out; the number of the
proposal in a table (-1: it has to be simulated); 1 if estimates screen proposals."""
WIDE = 1.5
"""Temperature of screening, as a multiple of the chain's: an estimate alone decides little."""
ROOM = 64
"""Improvements that a chain notes before they are read."""


class Chain(NamedTuple):
    """State of a chain; every array is changed in place.

    Placements in ``shared`` (of earlier rounds) and ``own`` (of this chain in this round) are drawn again. ``known``
    (of a file) and ``others`` (of other chains in this round) spare simulations, and change nothing else. ``least`` is
    the proposal of least estimate among those screened out.
    ``improvements`` [ROOM, 2] are the counts of steps and of placements in ``own`` at each, ``improved_ms`` its score.
    """

    row: Placements
    new: Placements
    least: Placements
    best: Placements
    numbers: Floats
    counts: Ints
    draws: Floats
    near: Neighbourhood
    estimate: Estimate
    own: Table
    shared: Table
    known: Table
    others: Table
    improvements: Ints
    improved_ms: Floats


@entry
def propose(c: Chain) -> bool:
    """Draw the next placement into ``new``: again, up to ``REDRAWS`` times, where it is known or screened out.

    False if the chain is at its end, or needs its caller first: for more numbers or more room. ``counts[NUMBER]`` is
    then -2; else it is -1 if ``new`` has to be simulated.
    """
    counts = c.counts
    counts[NUMBER] = -2
    if counts[STEP] >= counts[STEPS] or counts[EVALUATED] >= counts[MOST] or counts[IMPROVED] >= ROOM:
        return False
    if c.numbers[BEST_MS] <= c.numbers[BOUND]:
        return False
    most = counts[DRAWN] + (counts[REDRAWS] + 1) * (DRAWS + 1) + 1
    if c.own.size[0] >= len(c.own.scores) or most > len(c.draws):
        return False
    _draw(c)
    if counts[NUMBER] == -1:
        _look_up(c)
    return True


@compiled
def _draw(c: Chain) -> None:
    """Draw ``new``: the first placement that is new and passes the screen; else the least estimate among new ones, else
    the last."""
    counts, numbers, least = c.counts, c.numbers, math.inf
    screens = counts[SCREENS] == 1
    for _ in range(counts[REDRAWS] + 1):
        _copy(c.row, c.new)
        move(c.new, c.draws, counts[DRAWN], c.near)
        chance = c.draws[counts[DRAWN] + DRAWS]
        counts[DRAWN] += DRAWS + 1
        if _is_known(c):
            continue
        if not screens:
            break
        numbers[NEW_ESTIMATE] = estimated_energy(c, c.new)
        if _passes(c, chance):
            return
        if numbers[NEW_ESTIMATE] < least:
            least = numbers[NEW_ESTIMATE]
            _copy(c.new, c.least)
    numbers[CHARGED] = 0.0
    if least < math.inf:
        _copy(c.least, c.new)
        numbers[NEW_ESTIMATE], counts[NUMBER] = least, -1
    elif screens:
        numbers[NEW_ESTIMATE] = estimated_energy(c, c.new)


@compiled
def _copy(source: Placements, target: Placements) -> None:
    for gene in range(len(source)):
        target[gene] = source[gene]


@compiled
def _is_known(c: Chain) -> bool:
    """True if ``new`` was seen before; its score is taken over."""
    c.counts[NUMBER] = find(c.own, c.new)
    if c.counts[NUMBER] >= 0:
        c.numbers[SCORE], c.numbers[OVER] = c.own.scores[c.counts[NUMBER]], c.own.over[c.counts[NUMBER]]
        return True
    c.counts[NUMBER] = find(c.shared, c.new)
    if c.counts[NUMBER] >= 0:
        c.numbers[SCORE], c.numbers[OVER] = c.shared.scores[c.counts[NUMBER]], c.shared.over[c.counts[NUMBER]]
        return True
    return False


@entry
def estimated_energy(c: Chain, row: Placements) -> float:
    """The energy of ``row``, estimated, ms."""
    estimate(c.estimate, row)
    found = c.estimate.found
    return float(found[TIME] + (c.numbers[SOFTENING] + c.numbers[PENALTY]) * found[OVER_USE])


@compiled
def _passes(c: Chain, chance: float) -> bool:
    """Decide by the estimate of ``new``, relative to that of the state, whether it is worth a simulation.

    The first of two decisions (Christen and Fox 2005, "Markov chain Monte Carlo using an approximation"): the second,
    in ``decide``, asks for what the first has not charged.
    """
    numbers = c.numbers
    if not numbers[STATE_ESTIMATE] < math.inf:
        numbers[CHARGED] = 0.0
        return True
    worse = (numbers[NEW_ESTIMATE] / numbers[STATE_ESTIMATE] - 1.0) * numbers[ENERGY]
    numbers[CHARGED] = max(0.0, worse) / WIDE
    return math.log(chance + 1e-300) * temperature(c) < -numbers[CHARGED]


@compiled
def temperature(c: Chain) -> float:
    """The temperature of the step to be taken, ms: it falls by the same factor at every step."""
    share = c.counts[STEP] / c.counts[STEPS]
    return float(c.numbers[HOT] * (c.numbers[COLD] / c.numbers[HOT]) ** share)


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


@entry
def simulated(c: Chain, score: float, over: float) -> None:
    """Note the score (ms) and over-use (bytes) of ``new``."""
    c.numbers[SCORE], c.numbers[OVER] = score, over
    c.counts[NUMBER] = add(c.own, c.new, score, over)
    c.counts[EVALUATED] += 1


@entry
def decide(c: Chain) -> None:
    """Accept ``new`` or keep the state, by the rule of Metropolis; note an improvement."""
    numbers, counts = c.numbers, c.counts
    heat = temperature(c)
    counts[STEP] += 1
    if numbers[SCORE] < numbers[BEST_MS]:
        numbers[BEST_MS], numbers[BEST_OVER] = numbers[SCORE], numbers[OVER]
        c.improvements[counts[IMPROVED], 0] = counts[STEP]
        c.improvements[counts[IMPROVED], 1] = counts[EVALUATED]
        c.improved_ms[counts[IMPROVED]] = numbers[SCORE]
        counts[IMPROVED] += 1
        _copy(c.new, c.best)
    energy = numbers[SCORE] + numbers[SOFTENING] * numbers[OVER]
    chance = c.draws[counts[DRAWN]]
    counts[DRAWN] += 1
    if math.log(chance + 1e-300) * heat < numbers[ENERGY] - energy + numbers[CHARGED]:
        numbers[ENERGY], numbers[STATE_ESTIMATE] = energy, numbers[NEW_ESTIMATE]
        _copy(c.new, c.row)
