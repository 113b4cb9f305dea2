"""Contiguous splits: the genes in order, cut into stages, each stage on a device of its own; by dynamic programming.

The tables of work, transfers and memory stand for the simulator; every split that they suggest is then simulated. A
pipeline takes the sum of its stages for the first batch and the longest stage for each one more, so splits of least sum
are found for several limits of the longest stage. In a *looped* pipeline every device has several stages, in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensortide.compiled import entry_making_arrays, making_arrays
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.problem import Problem
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Session
from tensortide.search_limit import Look, no_look

ROOMS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
"""Shares of each device's memory that stages may fill, tried in turn: memory adds up only roughly."""
LIMITS = (1.0, 1.05, 1.15, 1.3, 1.6)
"""Limits of the longest stage, as multiples of the least possible."""
LOOPS = (2, 3, 4, 8, 16)
"""Stages per device of looped pipelines."""
MOST_STAGES = 64
"""Stages of looped pipelines, at most."""
MOST_SETS = 256
"""Sets of devices up to which their order is free; with more, they are taken in the order of their speed."""
MOST_CUTS = 200
"""Cuts that are tried; more genes are cut between blocks of them."""


@dataclass(frozen=True)
class Contiguous(Search):
    """Splits of least longest stage and of least sum, plain and looped, for several limits of memory.

    ``loops``: stages per device, at most. With 1 no device has several, as a pipeline of other tools may need it.
    """

    name: ClassVar[str] = "contiguous"
    about: ClassVar[str] = "contiguous stages by dynamic programming"
    loops: int = LOOPS[-1]

    def run(self, session: Session) -> None:
        """Propose the splits."""
        found = [*splits(session.problem, session.allowed, self.loops, session.check)]
        if found:
            session.score(np.array(found))


def splits(problem: Problem, allowed: Ints, most_loops: int = LOOPS[-1], look: Look = no_look) -> Iterator[Placements]:
    """Yield distinct splits [genes] for each share of memory, looped ones with at most ``most_loops`` stages per
    device. ``look`` is called now and then; it may raise."""
    seen: set[bytes] = set()
    by_speed = allowed[np.argsort(problem.work[:, allowed].sum(axis=0), kind="stable")]
    several = sorted({2, len(allowed)}) if len(allowed) > 1 else []
    most = min(MOST_STAGES, len(problem.names))
    looped = [(by_speed[:count], loops) for count in several for loops in LOOPS if count * loops <= most]
    looped = [(devices, loops) for devices, loops in looped if loops <= most_loops]
    for devices, loops in [(by_speed, 1), *looped]:
        stages = _Stages(problem, devices, loops, look)
        for room in ROOMS:
            for row in stages.splits(room):
                if row.tobytes() not in seen:
                    seen.add(row.tobytes())
                    yield row


class _Stages:
    """Tables of ``problem`` for stages, each on the next of ``devices``.

    Stages are found from the last one on: of each *set* of devices, those of the stages found so far, only the cost
    counts. Devices that are alike enter sets in one order. With ``loops``, every device stands in ``devices`` so often,
    in turn, and all of them have a stage.
    """

    def __init__(self, problem: Problem, devices: Ints, loops: int, look: Look) -> None:
        genes, self.look = len(problem.names), look
        self.devices, self.loops = np.tile(devices, loops)[::-1], loops
        self.at = np.unique(np.linspace(0, genes, min(genes, MOST_CUTS) + 1).astype(np.int64))
        self.work = _added_up(problem.work[:, self.devices])[self.at]
        self.memory = _added_up(problem.memory)[self.at]
        self.activations = _added_up(problem.activations)[self.at]
        self.across = _across(problem, self.devices, look)[self.at]
        self.capacity = problem.capacity[self.devices] / loops
        chain = np.arange(-1, len(self.devices) - 1)
        sets = _sets(_twins(problem, self.devices)) if loops == 1 else []
        self.rest, sizes = _rests(sets or _sets(chain), len(self.devices))
        if loops > 1:
            sizes = [len(devices)] * len(sizes)
        self.more = np.array([problem.in_flight(size) - 1 for size in sizes], np.float64)
        self.batches = problem.batches

    def splits(self, room: float) -> Iterator[Placements]:
        """Yield the splits of least longest stage, and of least sum within limits of the longest stage."""
        least, row = self._solved(room, np.inf, False)
        if row is None:
            return
        yield row
        for limit in (*(least * each for each in LIMITS if self.batches > 1), np.inf):
            _, row = self._solved(room, limit, True)
            if row is not None:
                yield row

    def _solved(self, room: float, limit: float, is_sum: bool) -> tuple[float, Placements | None]:
        """The cost and the devices [genes] of the best split whose stages take at most ``limit`` ms."""
        self.look()
        tables = (self.work, self.memory, self.activations, self.across, self.capacity * room, self.rest, self.more)
        cost, back = _costs(*tables, limit * (1 + 1e-9), is_sum)
        first = cost[-1:, :, 0] if self.loops > 1 else cost[:, :, 0]
        if not np.isfinite(first).any():
            return np.inf, None
        one, device = divmod(int(np.argmin(first)), len(self.devices))
        least, one = float(first[one, device]), len(cost) - len(first) + one
        row = np.empty(self.at[-1], np.int64)
        start, last = 0, len(self.at) - 1
        while start < last:
            end, after = divmod(int(back[one, device, start]), len(self.devices) + 1)
            row[self.at[start] : self.at[end]] = self.devices[device]
            one, device, start = int(self.rest[one, device]), after, end
        return least, row


def _added_up(values: Floats) -> Floats:
    """Sums of the first genes, from none to all, along the first axis."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def _across(problem: Problem, devices: Ints, look: Look) -> Floats:
    """Time across the cut before each gene, and behind the last one [genes + 1, devices, devices]."""
    found = np.zeros((len(problem.names) + 1, len(devices), len(devices)))
    between = problem.transfers[:, devices[:, None], devices]
    last: dict[int, int] = {}
    # an output crosses a cut once, however many genes behind the cut read it
    for number, (producer, consumer) in sorted(enumerate(problem.edges.tolist()), key=lambda item: item[1]):
        look()
        start = max(producer + 1, last.get(producer, 0))
        if consumer >= start:
            found[start : consumer + 1] += between[number]
            last[producer] = consumer + 1
    return found


def _twins(problem: Problem, devices: Ints) -> Ints:
    """For each device the last one before it that is alike in everything the tables tell, or -1 [devices]."""
    found = np.full(len(devices), -1)
    for number, one in enumerate(devices.tolist()):
        for before in reversed(range(number)):
            if _alike(problem, one, int(devices[before])):
                found[number] = before
                break
    return found


def _alike(problem: Problem, one: int, two: int) -> bool:
    """True if exchanging two devices changes no table."""
    swapped = np.arange(problem.devices)
    swapped[[one, two]] = two, one
    times = problem.transfers
    return bool(
        problem.capacity[one] == problem.capacity[two]
        and np.array_equal(problem.work[:, one], problem.work[:, two])
        and np.array_equal(times, times[:, swapped[:, None], swapped])
    )


def _sets(before: Ints) -> list[int]:
    """The sets of devices, as bits, in which each device comes with the one ``before`` it, smaller sets first; none if
    there are more than MOST_SETS."""
    found, last = list[int](), [0]
    while last:
        larger = {
            one | 1 << device
            for one in last
            for device, earlier in enumerate(before.tolist())
            if not one >> device & 1 and (earlier < 0 or one >> earlier & 1)
        }
        last = sorted(larger)
        found += last
        if len(found) > MOST_SETS:
            return []
    return found


def _rests(sets: Sequence[int], devices: int) -> tuple[Ints, list[int]]:
    """For each set and each of its devices that may have entered last, the number of the set without it (-1: none
    left, -2: it may not) [sets, devices]; and the sizes of the sets."""
    numbers = {one: number for number, one in enumerate(sets)} | {0: -1}
    found = [
        [numbers.get(one & ~(1 << device), -2) if one >> device & 1 else -2 for device in range(devices)]
        for one in sets
    ]
    return np.array(found, np.int64).reshape(-1, devices), [one.bit_count() for one in sets]


@entry_making_arrays
def _costs(
    work: Floats,
    memory: Floats,
    activations: Floats,
    across: Floats,
    capacity: Floats,
    rest: Ints,
    more: Floats,
    limit: float,
    is_sum: bool,
) -> tuple[Floats, Ints]:
    """Least cost of the genes from each cut on [sets, device of the first stage, cut], and where that stage ends and
    which device follows, in one number. ``more``: batches in flight beyond the first, by set."""
    cuts, count = work.shape
    last = cuts - 1
    cost = np.full((len(rest), count, cuts), np.inf)
    back = np.zeros((len(rest), count, cuts), np.int64)
    for one in range(len(rest)):
        for device in range(count):
            if rest[one, device] == -2:
                continue
            later, follows = _later(cost, across, rest[one, device], device, limit, is_sum)
            for start in range(last):
                for end in range(start + 1, cuts):
                    stage = work[end, device] - work[start, device]
                    needs = memory[end] - memory[start] + more[one] * (activations[end] - activations[start])
                    if stage > limit or needs > capacity[device]:
                        break
                    value = later[end] + stage if is_sum else max(later[end], stage)
                    if value < cost[one, device, start]:
                        cost[one, device, start] = value
                        back[one, device, start] = end * (count + 1) + follows[end]
    return cost, back


@making_arrays
def _later(cost: Floats, across: Floats, rest: int, device: int, limit: float, is_sum: bool) -> tuple[Floats, Ints]:
    """Least cost of all behind a stage on ``device`` that ends at each cut, and the device that follows."""
    cuts, count = across.shape[0], across.shape[1]
    least = np.full(cuts, np.inf)
    follows = np.full(cuts, count, np.int64)
    if rest < 0:
        least[cuts - 1] = 0.0
        return least, follows
    for end in range(1, cuts - 1):
        for after in range(count):
            cut = across[end, device, after]
            if cost[rest, after, end] == np.inf or cut > limit:
                continue
            value = cost[rest, after, end] + cut if is_sum else max(cost[rest, after, end], cut)
            if value < least[end]:
                least[end], follows[end] = value, after
    return least, follows
