"""Ordering problem of a step, in plain integers: ops with their dependencies, storages with their users.

An order is a permutation of the ops that respects the dependencies. Between two ops the step has done a *down-set*: a
set of ops that holds every dependency of its members. The bytes resident then depend on that set alone,

    held(D) = base + sum of nbytes[b] over the blocks b with birth[b] in D and not all of users[b] in D

(the start of the step counts as in every D),
and while op v runs from D there are ``held(D) + needs[v]``. ``held`` is submodular, held(A | B) + held(A & B) <=
held(A) + held(B): what running an op adds can only shrink as more other ops are done. Safe moves (``orders``), minimum
cuts (``cuts``) and the exact search (``search``) rest on that.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import written_out
from tensortide.memory.lifetimes import Residence, residences
from tensortide.memory.workspace import workspace_bytes

START = -1
"""Birth of a block that exists before the step, which releases it."""


class Problem:
    """The ordering problem of a graph on ``device``; ``problem`` makes it.

    ``before[v]`` and ``after[v]`` are direct dependencies and dependents of op v. A *block* is a storage whose life the
    order decides: ``storage[b]`` is its index in the graph, ``birth[b]`` the op that allocates it or ``START``,
    ``users[b]`` all ops that touch it, that one included, ascending; the number of ops stands for a user that never
    runs, which is how what the step leaves behind stays. ``uses[v]`` are the blocks that op v touches, ``born[v]`` the
    bytes it allocates, ``needs[v]`` those and its workspace. ``persistent`` are the storages resident throughout,
    ``base`` their bytes, ``start`` and ``end`` those and the blocks resident before and after the step, ``footprint``
    the sum of all storages.
    """

    def __init__(self, device: str, before: Sequence[Collection[int]], workspace: Iterable[int]) -> None:
        self.device = device
        self.before = list(map(list, before))
        self.after: list[list[int]] = [[] for _ in before]
        for op, earlier in enumerate(before):
            for dependency in earlier:
                self.after[dependency].append(op)
        self.needs = [int(extra) for extra in workspace]
        self.born = [0] * len(before)
        self.uses: list[list[int]] = [[] for _ in before]
        self.storage: list[int] = []
        self.birth: list[int] = []
        self.users: list[tuple[int, ...]] = []
        self.nbytes: list[int] = []
        self.persistent: list[int] = []
        self.base = self.start = self.end = self.footprint = 0

    def __len__(self) -> int:
        return len(self.before)

    def keep(self, storages: Iterable[int], nbytes: int) -> None:
        """Add storages that are resident throughout, with their bytes."""
        self.persistent += storages
        self.base += nbytes
        self.start += nbytes
        self.end += nbytes

    def add(self, storage: int, nbytes: int, users: Sequence[int], *, given: bool, kept: bool) -> None:
        """Add a storage whose life the order decides: there at the start if ``given``, else allocated by the first of
        ``users``; left behind by the step if ``kept``."""
        for op in users:
            self.uses[op].append(len(self.birth))
        if given:
            self.start += nbytes
        else:
            self.born[users[0]] += nbytes
            self.needs[users[0]] += nbytes
        if kept:
            self.end += nbytes
        self.storage.append(storage)
        self.birth.append(START if given else users[0])
        self.users.append((*users, len(self)) if kept else tuple(users))
        self.nbytes.append(nbytes)

    def levels(self, order: Sequence[int]) -> list[int]:
        """Bytes resident during each op of ``order``."""
        left = [len(touching) for touching in self.users]
        held, series = self.start, []
        for op in order:
            series.append(held + self.needs[op])
            held += self.born[op]
            for block in self.uses[op]:
                left[block] -= 1
                if not left[block]:
                    held -= self.nbytes[block]
        return series

    def peak(self, order: Sequence[int]) -> int:
        """Most bytes resident during any op of ``order``; ``start`` if there is none."""
        return max(self.levels(order), default=self.start)

    def resident_at(self, order: Sequence[int], position: int) -> list[int]:
        """The storages of the graph that are resident during the op at ``position`` of ``order``, ascending."""
        done, begun = set(order[:position]), {START, *order[: position + 1]}
        blocks = [b for b, birth in enumerate(self.birth) if birth in begun and not done.issuperset(self.users[b])]
        return sorted(self.persistent + [self.storage[block] for block in blocks])

    def ancestors(self, op: int) -> set[int]:
        """The ops that ``op`` must follow, directly or not."""
        return _reached(op, self.before)

    def descendants(self, op: int) -> set[int]:
        """The ops that must follow ``op``, directly or not."""
        return _reached(op, self.after)


def _reached(op: int, edges: Sequence[Sequence[int]]) -> set[int]:
    found: set[int] = set()
    stack = [op]
    while stack:
        for near in edges[stack.pop()]:
            if near not in found:
                found.add(near)
                stack.append(near)
    return found


def mask(members: Iterable[int]) -> int:
    """A set of small numbers as the bits of one."""
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


def problem(graph: Graph, device: str, *, workspace: bool = True) -> Problem:
    """The ordering problem of ``graph`` on ``device``, under the rule ``last_use`` of ``memory.lifetimes``.

    Ops on other devices take part in the order and hold nothing here. Raises PlanError for a graph with loops: the ops
    of a body run once per iteration, so they have no order before the loops are written out (``stated``).
    """
    if graph.loops:
        raise PlanError(f"the ops of a step with loops have no order: write out {graph.loops[0].name!r} first")
    extra = workspace_bytes(graph, device) if workspace else [0] * len(graph)
    made = Problem(device, graph.index.dependencies, extra)
    made.footprint = graph.index.devices.get(device, 0)
    for index, (storage, residence) in enumerate(zip(graph.storages, residences(graph), strict=True)):
        if storage.device != device or residence is Residence.NEVER:
            continue
        if residence is Residence.ALWAYS:
            made.keep([index], int(storage.nbytes))
        else:
            given, kept = storage.birth is None, residence is Residence.KEPT
            made.add(index, int(storage.nbytes), graph.index.users[index], given=given, kept=kept)
    return made


FREE = 20_000
"""Up to so many ops, loops written out, every op may move."""


class Stated(NamedTuple):
    """Problem of a graph: ``graph`` with its loops written out; ``ops``, the problem of all of its ops; and
    ``problem``, the one to solve: the same, or that of ``units``, stretches of ops that stay together."""

    graph: Graph
    ops: Problem
    problem: Problem
    units: tuple[range, ...]

    @property
    def is_contracted(self) -> bool:
        """True if some ops stay together."""
        return self.problem is not self.ops

    def spelled(self, order: Iterable[int]) -> list[int]:
        """An order of ``problem`` as an order of ops."""
        return [op for unit in order for op in self.units[unit]] if self.is_contracted else list(order)


def stated(graph: Graph, device: str, *, workspace: bool = True) -> Stated:
    """The ordering problem of ``graph`` on ``device``, loops written out, and kept together where that is too much.

    Every iteration's ops take part in the order as long as there are no more than ``FREE`` ops. Beyond that each
    outermost loop runs in one stretch, its own ops as recorded, and counts as one op. What it needs is the highest
    level within it; what it leaves is what it allocates and others use. A storage from outside that it is the last to
    touch goes within it, as soon as that is through; where others may run before or after, it is taken to go, so that
    bounds hold. Levels of the contracted problem are thus never above those of the ops themselves, and below them only
    in that case.

    Raises GraphError if the loops are too long to be written out.
    """
    flat, loops = written_out(graph)
    every = problem(flat, device, workspace=workspace)
    if not loops or len(flat) <= FREE:
        return Stated(flat, every, every, ())
    units = tuple(_units(len(flat), loops))
    return Stated(flat, every, _contracted(every, units), units)


def _units(count: int, loops: Sequence[range]) -> Iterator[range]:
    """All ops: those of a loop together, others one by one."""
    at = 0
    for loop in loops:
        yield from (range(op, op + 1) for op in range(at, loop.start))
        if loop:
            yield loop
        at = loop.stop
    yield from (range(op, op + 1) for op in range(at, count))


def _contracted(every: Problem, units: Sequence[range]) -> Problem:
    """The problem of ``units`` of ops of ``every``."""
    starts = [unit.start for unit in units]
    unit_of = [bisect.bisect_right(starts, op) - 1 for op in range(len(every))] + [len(units)]
    before = [sorted({unit_of[v] for op in unit for v in every.before[op]} - {i}) for i, unit in enumerate(units)]
    made = Problem(every.device, before, [0] * len(units))
    made.footprint = every.footprint
    made.keep(every.persistent, every.base)
    for block, users in enumerate(every.users):
        found = sorted({unit_of[op] for op in users})
        given = every.birth[block] == START
        if len(found) > 1 or given:
            kept = found[-1] == len(units)
            made.add(every.storage[block], every.nbytes[block], found[:-1] if kept else found, given=given, kept=kept)
    for index, unit in enumerate(units):
        later = {index, len(units), *made.descendants(index)} if len(unit) > 1 else {index}
        made.needs[index] = _highest(every, unit, unit_of, later)
    return made


def _highest(every: Problem, unit: range, unit_of: Sequence[int], later: set[int]) -> int:
    """The highest level within ``unit``, above what is held when it starts.

    What none of ``later``, the unit and those that must follow it, touches outside goes after its last use within."""
    last = {block: op for op in unit for block in every.uses[op]}
    level = highest = 0
    for op in unit:
        highest = max(highest, level + every.needs[op])
        level += every.born[op]
        for block in every.uses[op]:
            if last[block] == op and all(u in unit or unit_of[u] not in later for u in every.users[block]):
                level -= every.nbytes[block]
    return highest
