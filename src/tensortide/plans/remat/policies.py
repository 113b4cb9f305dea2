"""Online policies, small objects that choose the storage to evict, and their table: a new policy is one row.

A policy sees the storages that may be evicted and a ``State``, and names the one to evict. The named ones are the cells
of one grid (Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021, section 4): the work that an eviction may
cause, divided by the bytes that it frees and by the time since the storage was last used.
"""

from __future__ import annotations

import enum
import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tensortide.errors import PlanError


class State(Protocol):
    """The questions a policy may ask. Storages are numbers; all lists are indexed by them."""

    clock_ns: int
    storage_bytes: list[int]
    last_access_ns: list[int]
    work_ns: list[int]
    """Sum of the durations of the ops that made what is in the storage."""

    def evicted_ancestors(self, storage: int) -> Collection[int]:
        """Storages that are not resident and reach ``storage`` through such storages only."""

    def evicted_descendants(self, storage: int) -> Collection[int]:
        """Storages that are not resident and are reached from ``storage`` through such storages only."""

    def evicted_classes_ns(self, storage: int) -> int:
        """Sum of the work of the classes of evicted storages that ``storage`` is next to."""


class Policy(Protocol):
    """Chooses the storage to evict."""

    @property
    def name(self) -> str:
        """Its name in tables and files."""

    def begin(self) -> None:
        """Forget earlier runs; called once before each."""

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        """Choose the storage to evict from ``pool``, which is not empty and in order of entry.

        Returns it and the number of storages looked at.
        """


class Work(enum.IntEnum):
    """Numerator of a cost: the work that an eviction may cause to be recomputed."""

    ONE = 0
    """No data that depends on the storage."""
    LOCAL = 1
    """What made the storage."""
    CLASSES = 2
    """That, and the classes of evicted storages next to it (union-find: h_DTR_eq)."""
    ANCESTORS = 3
    """That, and its evicted ancestors (MSPS)."""
    NEIGHBOURHOOD = 4
    """That, its evicted ancestors and its evicted descendants (h_DTR)."""
    UNION = 5
    """As NEIGHBOURHOOD, each storage once; the time since the last use is that of the youngest in it."""
    LAST_ACCESS = 6
    """The time of the last use itself (LRU)."""


@dataclass(frozen=True)
class Heuristic:
    """Evicts what has the least ``work / (bytes * staleness)``, of equals the one that entered last.

    ``size`` and ``staleness`` say which factors divide. A divisor of 0 makes a cost infinite.
    """

    name: str
    work: Work
    size: bool = False
    staleness: bool = False

    def begin(self) -> None:
        """Do nothing: no state is kept between runs."""

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        best, found, looked = math.inf, NOTHING, 0
        for storage in pool:
            looked += 1
            cost = self.cost(storage, state)
            if cost <= best:
                best, found = cost, storage
            if cost == 0:
                break
        return found, looked

    def cost(self, storage: int, state: State) -> float:
        """Cost of evicting ``storage`` now."""
        last = state.last_access_ns[storage]
        if self.work is Work.LAST_ACCESS:
            return last
        work = 1 if self.work is Work.ONE else state.work_ns[storage]
        if self.work is Work.CLASSES:
            work += state.evicted_classes_ns(storage)
        elif self.work >= Work.ANCESTORS:
            around = [*state.evicted_ancestors(storage)]
            if self.work is not Work.ANCESTORS:
                around += state.evicted_descendants(storage)
            if self.work is Work.UNION:
                around = [*{*around}]
                last = max(last, *(state.last_access_ns[s] for s in (storage, *around)))
            work += sum(state.work_ns[s] for s in around)
        divisor = (state.storage_bytes[storage] if self.size else 1) * (state.clock_ns - last if self.staleness else 1)
        return work / divisor if divisor > 0 else math.inf


NOTHING = -1


@dataclass
class Random:
    """Evicts any storage, each with the same probability: Python's generator, seeded with ``seed``."""

    seed: int = 0
    _dice: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    @property
    def name(self) -> str:
        return "random" if self.seed == 0 else f"random:{self.seed}"

    def begin(self) -> None:
        self._dice = random.Random(self.seed)

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        return self._dice.choice(pool), 1


@dataclass
class Sampled:
    """``of`` on a sample: from the front of the pool on in random strides of 1 to the square root of its length.

    ``small``: storages below 1 % of the mean size of the pool are passed over, as long as there are others.
    """

    of: Heuristic
    sqrt: bool = True
    small: bool = False
    seed: int = 0
    _dice: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.of.name + ("+sqrt" if self.sqrt else "") + ("+large" if self.small else "")

    def begin(self) -> None:
        self._dice = random.Random(self.seed)

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        sample = list(self._strides(pool)) if self.sqrt else pool
        if self.small:
            floor = sum(state.storage_bytes[s] for s in pool) / (100 * len(pool))
            sample = [s for s in sample if state.storage_bytes[s] >= floor] or sample
        return self.of.choose(sample, state)

    def _strides(self, pool: Sequence[int]) -> Iterator[int]:
        longest, at = max(1, math.isqrt(len(pool))), 0
        while at < len(pool):
            yield pool[at]
            at += self._dice.randint(1, longest)


@dataclass(frozen=True)
class Row:
    """A row of the table of policies.

    ``make`` returns the policy, for a seed if it draws lots (``seeded``). ``prototype``: its names in files of the DTR
    prototype. ``contender``: compared by default, and drawn alike in all figures. ``cell``: part of the ablation.
    ``banishes``: playable by DTR's first runtime, which keeps neither classes nor regions of evicted storages.
    """

    make: Callable[[int], Policy]
    prototype: tuple[str, ...] = ()
    contender: bool = False
    cell: bool = False
    banishes: bool = False
    seeded: bool = False


def _row(found: Heuristic, *prototype: str, **columns: bool) -> dict[str, Row]:
    return {found.name: Row(lambda seed: found, prototype, **columns)}


CELL_ROWS = {"e": Work.NEIGHBOURHOOD, "eq": Work.CLASSES, "local": Work.LOCAL, "one": Work.ONE}
"""Rows of the ablation: the work in the numerator."""
CELL_COLUMNS = {"size-stale": (True, True), "size": (True, False), "stale": (False, True), "": (False, False)}
"""Columns of the ablation: the factors in the denominator, size and staleness."""


def _cells() -> dict[str, Row]:
    """The cells of the ablation. The one with nothing in it is drawing lots."""
    cells: dict[str, Row] = {}
    for (row, work), (column, factors) in itertools.product(CELL_ROWS.items(), CELL_COLUMNS.items()):
        name = f"{row}-{column}".rstrip("-")
        theirs = "Ab" + "".join(word.capitalize() for word in name.removeprefix("one-").split("-"))
        cells |= _row(Heuristic(name, work, *factors), theirs, cell=True)
    del cells["one"]
    return cells


POLICIES: dict[str, Row] = {
    **_row(Heuristic("dtr", Work.NEIGHBOURHOOD, True, True), "DTR", contender=True),
    **_row(Heuristic("dtr-eq", Work.CLASSES, True, True), "DTREqClass", contender=True),
    **_row(Heuristic("dtr-local", Work.LOCAL, True, True), "DTRLocal", contender=True, banishes=True),
    **_row(Heuristic("dtr-unopt", Work.UNION, True, True), "DTRUnopt", banishes=True),
    **_row(Heuristic("msps", Work.ANCESTORS, True), "MSPS", contender=True),
    **_row(Heuristic("lru", Work.LAST_ACCESS), "LRU", contender=True, banishes=True),
    **_row(Heuristic("size", Work.ONE, True), "LargestStorage", contender=True, banishes=True),
    "random": Row(Random, ("RandomStorage", "AbRandom"), contender=True, banishes=True, seeded=True),
    **_cells(),
}
"""The policies by name."""
DEFAULT_POLICY = "dtr-eq"
"""The policy that is used unless another is asked for."""


def contenders(*, seeded: bool = True) -> tuple[str, ...]:
    """Names of the policies that are compared by default, those that draw lots only if ``seeded``."""
    return tuple(name for name, row in POLICIES.items() if row.contender and (seeded or not row.seeded))


def policy(name: str) -> Policy:
    """The policy called ``name``: ``dtr``, ``dtr-eq``, ``dtr-local``, ``dtr-unopt``, ``msps``, ``lru``, ``size``,
    ``random`` or ``random:SEED``, a cell of the ablation such as ``eq-size``, or a name of the DTR prototype
    (``DTREqClass``). ``+sqrt`` samples the pool, ``+large`` passes over small storages: ``dtr-eq+sqrt``.

    Raises PlanError for any other name.
    """
    base, *marks = name.split("+")
    word, colon, seed = base.partition(":")
    row = POLICIES.get(word) or next((row for row in POLICIES.values() if word in row.prototype), None)
    if row is not None and (not colon or (row.seeded and (not seed or seed.isdecimal()))):
        found = row.make(int(seed or 0))
        if not marks:
            return found
        if isinstance(found, Heuristic) and {*marks} <= {"sqrt", "large"} and len({*marks}) == len(marks):
            return Sampled(found, "sqrt" in marks, "large" in marks)
    raise PlanError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
