"""Ordering problems of steps with loops: the loops written out, and kept together where that is too much.

Every iteration's ops take part in the order as long as there are no more than ``FREE`` ops. Beyond that each outermost
loop runs in one stretch, its own ops as recorded, and counts as one op. What it needs is the highest level within it;
what it leaves is what it allocates and others use. A storage from outside that it is the last to touch goes within it,
as soon as that is through; where others may run before or after, it is taken to go, so that bounds hold. Levels of the
contracted problem are thus never above those of the ops themselves, and below them only in that case.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tensortide.graph.model import Graph
from tensortide.graph.unroll import written_out
from tensortide.plans.order.problem import START, Problem, problem

__all__ = ["FREE", "Stated", "stated"]

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
    """The ordering problem of ``graph`` on ``device``, loops written out; kept together beyond ``FREE`` ops.

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
