"""Which storage to evict: online policies, as small objects over one interface.

A policy sees the storages that may be evicted and a ``State``, and names the one to evict. The named ones are the cells
of one grid (Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021, section 4): the work that an eviction may
cause, divided by the bytes that it frees and by the time since the storage was last used.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tensortide.errors import PlanError


class State(Protocol):
    """What a policy may ask. Storages are numbers; all lists are indexed by them."""

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
    """Chooses what to evict."""

    @property
    def name(self) -> str:
        """What it is called in tables and files."""

    def begin(self) -> None:
        """Called once before a run: whatever the policy remembers of earlier ones is forgotten."""

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        """The storage to evict out of ``pool``, which is not empty and in order of entry; and how many storages were
        looked at."""


class Work(enum.IntEnum):
    """Numerator of a cost: what an eviction may cause to be computed again."""

    ONE = 0
    """Nothing that depends on the storage."""
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
        """Nothing is remembered."""

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
        work, last = self._work(storage, state, last)
        divisor = 1
        if self.size:
            divisor *= state.storage_bytes[storage]
        if self.staleness:
            divisor *= state.clock_ns - last
        return work / divisor if divisor > 0 else math.inf

    def _work(self, storage: int, state: State, last: int) -> tuple[int, int]:
        if self.work is Work.ONE:
            return 1, last
        work = state.work_ns[storage]
        if self.work is Work.CLASSES:
            work += state.evicted_classes_ns(storage)
        if self.work in (Work.ANCESTORS, Work.NEIGHBOURHOOD):
            work += sum(state.work_ns[s] for s in state.evicted_ancestors(storage))
        if self.work is Work.NEIGHBOURHOOD:
            work += sum(state.work_ns[s] for s in state.evicted_descendants(storage))
        if self.work is Work.UNION:
            around = {*state.evicted_ancestors(storage), *state.evicted_descendants(storage)}
            work += sum(state.work_ns[s] for s in around)
            last = max((last, *(state.last_access_ns[s] for s in around)))
        return work, last


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


def _grid() -> dict[str, Heuristic]:
    rows = {"e": Work.NEIGHBOURHOOD, "eq": Work.CLASSES, "local": Work.LOCAL, "one": Work.ONE}
    columns = {"size-stale": (True, True), "size": (True, False), "stale": (False, True), "": (False, False)}
    cells = {f"{row}-{column}".rstrip("-"): (rows[row], *columns[column]) for row in rows for column in columns}
    return {name: Heuristic(name, *cell) for name, cell in cells.items() if name != "one"}


NAMED: dict[str, Heuristic] = {
    "dtr": Heuristic("dtr", Work.NEIGHBOURHOOD, size=True, staleness=True),
    "dtr-eq": Heuristic("dtr-eq", Work.CLASSES, size=True, staleness=True),
    "dtr-local": Heuristic("dtr-local", Work.LOCAL, size=True, staleness=True),
    "dtr-unopt": Heuristic("dtr-unopt", Work.UNION, size=True, staleness=True),
    "msps": Heuristic("msps", Work.ANCESTORS, size=True),
    "lru": Heuristic("lru", Work.LAST_ACCESS),
    "size": Heuristic("size", Work.ONE, size=True),
}
"""The policies with names of their own."""

GRID = _grid()
"""The cells of the ablation: work (``e``: neighbourhood, ``eq``: classes, ``local``, ``one``), size, staleness."""

REFERENCE_KEYS = {
    "DTR": "dtr",
    "DTREqClass": "dtr-eq",
    "DTRLocal": "dtr-local",
    "DTRUnopt": "dtr-unopt",
    "MSPS": "msps",
    "LRU": "lru",
    "LargestStorage": "size",
    "RandomStorage": "random",
    "AbRandom": "random",
    "AbESizeStale": "e-size-stale",
    "AbESize": "e-size",
    "AbEStale": "e-stale",
    "AbE": "e",
    "AbEqSizeStale": "eq-size-stale",
    "AbEqSize": "eq-size",
    "AbEqStale": "eq-stale",
    "AbEq": "eq",
    "AbLocalSizeStale": "local-size-stale",
    "AbLocalSize": "local-size",
    "AbLocalStale": "local-stale",
    "AbLocal": "local",
    "AbSizeStale": "one-size-stale",
    "AbSize": "one-size",
    "AbStale": "one-stale",
}
"""Names in files of the DTR prototype, and ours."""


def policy(name: str) -> Policy:
    """The policy called ``name``: ``dtr``, ``dtr-eq``, ``dtr-local``, ``dtr-unopt``, ``msps``, ``lru``, ``size``,
    ``random`` or ``random:SEED``, a cell of the ablation such as ``eq-size``, or a name of the DTR prototype
    (``DTREqClass``). ``+sqrt`` samples the pool, ``+large`` passes over small storages: ``dtr-eq+sqrt``.

    Raises PlanError for any other name.
    """
    base, *marks = name.split("+")
    base = REFERENCE_KEYS.get(base, base)
    word, _, seed = base.partition(":")
    if word == "random" and not marks and (not seed or seed.isdecimal()):
        return Random(int(seed or 0))
    found = NAMED.get(base) or GRID.get(base)
    if found is None or not {*marks} <= {"sqrt", "large"} or len({*marks}) < len(marks):
        raise PlanError(f"there is no policy {name!r}; there are {', '.join([*NAMED, 'random', *GRID])}")
    return Sampled(found, "sqrt" in marks, "large" in marks) if marks else found
