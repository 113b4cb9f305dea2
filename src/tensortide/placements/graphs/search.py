"""A search for placements of units: contiguous stretches by dynamic programming, then moves of stretches.

It needs no library and gives an answer at once. The algorithms of ``placements.search`` run on the same problem.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tensortide.placements.graphs.problem import GraphProblem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.memory.lifetimes import Ints

    Floats = NDArray[np.float64]

_STARTS = 3
"""The best contiguous placements, from which moves start."""


def search(problem: GraphProblem, *, evaluations: int = 2_000, seed: int = 0) -> tuple[int, ...]:
    """The best placement found in at most ``evaluations`` of them: never worse than any single device or the best
    contiguous placement that was tried. The same seed gives the same placement."""
    import numpy as np

    genes, devices = len(problem.names), problem.devices
    if not genes:
        return ()
    tried: dict[tuple[int, ...], float] = {}

    def score(place: tuple[int, ...]) -> float:
        if place not in tried:
            tried[place] = float(problem.evaluate(np.array(place, np.int64))[0][0])
        return tried[place]

    for device in range(devices):
        score(problem.pinned((device,) * genes))
    for place in contiguous(problem):
        score(problem.pinned(place))
    starts = sorted(tried, key=lambda place: (tried[place], place))[:_STARTS]
    chance = random.Random(seed)
    best = starts[0]
    for turn, start in enumerate(starts):
        until = len(tried) + max(0, evaluations - len(tried)) // (len(starts) - turn)
        best = min(best, _improved(problem, start, score, tried, until, chance), key=lambda place: tried[place])
    return best


def _improved(
    problem: GraphProblem,
    start: tuple[int, ...],
    score: Callable[[tuple[int, ...]], float],
    tried: Mapping[tuple[int, ...], float],
    until: int,
    chance: random.Random,
) -> tuple[int, ...]:
    """The best placement after moves from ``start``, each kept if it is no worse, until ``until`` were tried."""
    here, idle = start, 0
    while len(tried) < until and idle < 50 * len(start) * problem.devices:
        before = len(tried)
        there = problem.pinned(_moved(here, problem.devices, chance))
        if score(there) <= score(here):
            here = there
        idle = 0 if len(tried) > before else idle + 1
    return here


def _moved(place: tuple[int, ...], devices: int, chance: random.Random) -> tuple[int, ...]:
    """Move a stretch to another device: one of any length, or what lies on one side of a border between devices."""
    genes = len(place)
    borders = [i for i in range(1, genes) if place[i] != place[i - 1]]
    if borders and chance.random() < 0.5:
        border = chance.choice(borders)
        length = 1 + int(chance.expovariate(0.5))
        if chance.random() < 0.5:
            begin, end, device = max(0, border - length), border, place[border]
        else:
            begin, end, device = border, min(genes, border + length), place[border - 1]
    else:
        length = min(genes, 1 + int(chance.expovariate(4 / genes)))
        begin = chance.randrange(genes - length + 1)
        end, device = begin + length, chance.randrange(devices)
    return (*place[:begin], *(device,) * (end - begin), *place[end:])


def contiguous(problem: GraphProblem) -> Iterator[tuple[int, ...]]:
    """Placements of one stretch of units per device, for every number of devices and a few orders of them.

    For each, one with the least time of the slowest stretch, and one with the least time in all, both within the memory
    of the devices as far as ``problem.memory`` tells.
    """
    for order in _orders(problem):
        for count in range(2, len(order) + 1):
            for slowest in (True, False):
                cuts = _cut(problem, order[:count], slowest=slowest)
                if cuts is not None:
                    place: list[int] = []
                    for device, end in zip(order, cuts, strict=False):
                        place += [device] * (end - len(place))
                    yield tuple(place)


def _orders(problem: GraphProblem) -> list[tuple[int, ...]]:
    """Orders of the devices: as numbered, reversed, the fastest first and last, those of most memory first and last."""
    devices = range(problem.devices)
    speed = problem.work.sum(axis=0).tolist()
    room = problem.capacity.tolist()
    fast = sorted(devices, key=lambda d: (speed[d], d))
    large = sorted(devices, key=lambda d: (-room[d], d))
    wanted = [tuple(each) for one in (list(devices), fast, large) for each in (one, one[::-1])]
    return list(dict.fromkeys(wanted))


def _cut(problem: GraphProblem, order: Sequence[int], *, slowest: bool) -> list[int] | None:
    """The ends of the stretches of the devices of ``order``; None if the memory does not suffice.

    ``best[j]``: the least cost of the first ``j`` units on the first ``k`` devices, by adding one device at a time.
    """
    import numpy as np

    genes = len(problem.names)
    memory = np.concatenate([[0.0], np.cumsum(problem.memory)])
    crossing = _crossing(problem, order)
    best = np.full(genes + 1, np.inf)
    best[0] = 0.0
    choices: list[Ints] = []
    for k, device in enumerate(order):
        time = np.concatenate([[0.0], np.cumsum(problem.work[:, device])])
        new, choice = np.full(genes + 1, np.inf), np.zeros(genes + 1, np.int64)
        enter = crossing[k - 1] if k else np.zeros(genes + 1)
        for j in range(1, genes + 1):
            stretch = time[j] - time[:j] + enter[:j]
            cost = np.maximum(best[:j], stretch) if slowest else best[:j] + stretch
            cost = np.where(memory[j] - memory[:j] <= problem.capacity[device], cost, np.inf)
            choice[j] = int(cost.argmin())
            new[j] = cost[choice[j]]
        best = new
        choices.append(choice)
    if not np.isfinite(best[genes]):
        return None
    ends = [genes]
    for choice in reversed(choices[1:]):
        ends.append(int(choice[ends[-1]]))
    return ends[::-1]


def _crossing(problem: GraphProblem, order: Sequence[int]) -> list[Floats]:
    """For each two neighbours of ``order`` the time of what crosses a border before each unit."""
    import numpy as np

    found = []
    for a, b in itertools.pairwise(order):
        change = np.zeros(len(problem.names) + 2)
        times = problem.transfers[:, a, b]
        np.add.at(change, problem.edges[:, 0] + 1, times)
        np.subtract.at(change, problem.edges[:, 1] + 1, times)
        found.append(np.cumsum(change)[: len(problem.names) + 1])
    return found
