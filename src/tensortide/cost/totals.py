"""Sums of costs that remember what they do not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tensortide.cost.evaluate import OpCost
from tensortide.cost.record import FREE, Cost, summed
from tensortide.expr import expr_of
from tensortide.graph.model import OUTSIDE, Branch
from tensortide.units import format_count

__all__ = ["Total", "chosen_arms", "total_of"]


class Total(msgspec.Struct, frozen=True):
    """The sum of the known costs of ``ops`` ops. With ``unknown`` ops among them it is a lower bound.

    The cost of an op in a loop is that of all its runs; among ``ops`` it is one.
    """

    cost: Cost = FREE
    ops: int = 0
    unknown: int = 0

    @property
    def macs(self) -> int:
        return self.cost.macs

    @property
    def flops(self) -> int:
        return self.cost.flops

    @property
    def bytes(self) -> int:
        return self.cost.bytes

    @property
    def is_lower_bound(self) -> bool:
        return self.unknown > 0

    def __add__(self, other: Total) -> Total:
        if not isinstance(other, Total):
            return NotImplemented
        return Total(self.cost + other.cost, self.ops + other.ops, self.unknown + other.unknown)

    def format(self, value: int, unit: str = "") -> str:
        """``value``, one of this total's figures, as text: with ``>=`` before it if ops are unknown."""
        return (">= " if self.unknown else "") + format_count(value, unit)

    def __str__(self) -> str:
        parts = f"{format_count(2 * self.cost.macs, 'FLOP')} in products"
        parts += f" + {format_count(self.cost.elementwise_flops, 'FLOP')} elementwise"
        return f"{self.format(self.flops, 'FLOP')} ({parts})"


def total_of(costs: Iterable[tuple[OpCost, int]]) -> Total:
    """The sum of the ``costs`` of ops, each times how often the op runs; equal ones are multiplied, not added."""
    kept = [(cost, trips, (id(cost), trips if type(trips) is int else expr_of(trips))) for cost, trips in costs]
    counted = Counter(key for _, _, key in kept)
    distinct = {key: (cost.cost, trips) for cost, trips, key in kept}
    times = [(*distinct[key], number) for key, number in counted.items()]
    total = summed(cost * (trips * number) for cost, trips, number in times if cost is not None)
    return Total(total, len(kept), sum(number for cost, _, number in times if cost is None))


def chosen_arms(branches: Sequence[Branch], arms: dict[int, Total]) -> tuple[frozenset[int], frozenset[int]]:
    """The branches that run in the most and in the least expensive case.

    ``arms`` has the total of the ops directly in each branch. Of the arms of one conditional one runs, and of a
    branch that does not run none does. The result includes OUTSIDE.
    """
    conditionals: dict[int, dict[int, list[int]]] = {}
    parents: dict[int, int] = {}
    for index, branch in enumerate(branches):
        conditionals.setdefault(branch.conditional, {}).setdefault(branch.arm, []).append(index)
        parents[branch.conditional] = branch.parent
    inner: dict[int, list[int]] = {}
    for conditional, parent in parents.items():
        inner.setdefault(parent, []).append(conditional)

    def run(branch: int, largest: bool) -> tuple[Total, frozenset[int]]:
        total, taken = arms.get(branch, Total()), frozenset({branch})
        for conditional in inner.get(branch, ()):
            cases = [
                _joined(run(index, largest) for index in indexes) for indexes in conditionals[conditional].values()
            ]
            case = (max if largest else min)(cases, key=lambda case: _size(case[0]))
            total, taken = total + case[0], taken | case[1]
        return total, taken

    return run(OUTSIDE, True)[1], run(OUTSIDE, False)[1]


def _joined(parts: Iterable[tuple[Total, frozenset[int]]]) -> tuple[Total, frozenset[int]]:
    total, taken = Total(), frozenset[int]()
    for part, branches in parts:
        total, taken = total + part, taken | branches
    return total, taken


def _size(total: Total) -> tuple[int, int, int]:
    return total.flops, total.unknown, total.bytes
