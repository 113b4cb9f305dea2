"""Sums of costs that remember what they do not know, and their tree by module."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec

from tensortide.cost.evaluate import OpCost
from tensortide.cost.record import FREE, Cost, summed
from tensortide.expr import expr_of
from tensortide.graph.model import OUTSIDE, OUTSIDE_PATH, ROOT_PATH, Branch, Graph
from tensortide.shown import Show
from tensortide.units import format_count


class Total(msgspec.Struct, frozen=True):
    """The sum of the known costs of ``ops`` ops. With ``unknown_ops`` among them it is a lower bound.

    The cost of an op in a loop is that of all its runs; among ``ops`` it is one.
    """

    cost: Cost = FREE
    ops: Annotated[int, Show("Ops")] = 0
    unknown_ops: int = 0

    @property
    def unknown(self) -> bool:
        """True if the cost of an op is unknown, so that the total is a lower bound."""
        return self.unknown_ops > 0

    @property
    def macs(self) -> int:
        return self.cost.macs

    @property
    def flops(self) -> Annotated[int, Show("FLOPs")]:
        return self.cost.flops

    @property
    def accessed_bytes(self) -> Annotated[int, Show("Bytes")]:
        return self.cost.bytes

    @property
    def intensity_flops_per_byte(self) -> Annotated[float | None, Show("FLOP/byte")]:
        """FLOPs per byte accessed."""
        return self.flops / self.accessed_bytes if self.accessed_bytes else None

    @property
    def is_lower_bound(self) -> bool:
        return self.unknown_ops > 0

    def __add__(self, other: Total) -> Total:
        return joint((self, other))

    def format(self, value: int, unit: str = "") -> str:
        """``value``, one of this total's figures, as text: with ``>=`` before it if ops are unknown."""
        return (">= " if self.unknown_ops else "") + format_count(value, unit)

    def __str__(self) -> str:
        parts = f"{format_count(2 * self.cost.macs, 'FLOP')} in products"
        parts += f" + {format_count(self.cost.elementwise_flops, 'FLOP')} elementwise"
        return f"{self.format(self.flops, 'FLOP')} ({parts})"


def joint(totals: Sequence[Total]) -> Total:
    """The sum of ``totals``, at least one."""
    cost = summed(total.cost for total in totals) if len(totals) > 1 else totals[0].cost
    return Total(cost, sum(total.ops for total in totals), sum(total.unknown_ops for total in totals))


def total_of(costs: Iterable[tuple[OpCost, int]]) -> Total:
    """The sum of the ``costs`` of ops, each times how often the op runs; equal ones are multiplied, not added."""
    kept = [(cost, trips, (id(cost), trips if type(trips) is int else expr_of(trips))) for cost, trips in costs]
    counted = Counter(key for _, _, key in kept)
    distinct = {key: (cost.cost, trips) for cost, trips, key in kept}
    times = [(*distinct[key], number) for key, number in counted.items()]
    total = summed(cost * (trips * number) for cost, trips, number in times if cost is not None)
    return Total(total, len(kept), sum(number for cost, _, number in times if cost is None))


Case: TypeAlias = tuple[Total, frozenset[int]]
"""What the branches that run cost, and which they are."""


def chosen_arms(branches: Sequence[Branch], arms: dict[int, Total]) -> tuple[frozenset[int], frozenset[int]]:
    """The branches that run in the most and in the least expensive case.

    ``arms`` has the total of the ops directly in each branch. Of the arms of one conditional one runs, and of a
    branch that does not run none does. The result includes OUTSIDE.
    """
    inner: dict[int, dict[int, dict[int, list[int]]]] = {}  # branches by parent, conditional and arm
    for index, branch in enumerate(branches):
        conditionals = inner.setdefault(branch.parent, {})
        conditionals.setdefault(branch.conditional, {}).setdefault(branch.arm, []).append(index)

    def run(branch: int, choose: Callable[..., Case]) -> Case:
        case = arms.get(branch, Total()), frozenset({branch})
        for conditional in inner.get(branch, {}).values():
            cases = [functools.reduce(_joined, (run(i, choose) for i in arm)) for arm in conditional.values()]
            case = _joined(case, choose(cases, key=_size))
        return case

    return run(OUTSIDE, max)[1], run(OUTSIDE, min)[1]


def _joined(one: Case, other: Case) -> Case:
    return one[0] + other[0], one[1] | other[1]


def _size(case: Case) -> tuple[int, int, int]:
    total, _ = case
    return total.flops, total.unknown_ops, total.accessed_bytes


# -- by module --------------------------------------------------------------------------------------


class ModuleTotal(msgspec.Struct, frozen=True):
    """One module: what its own ops cost, and what they cost with those of the modules inside it.

    ``path`` is the module's dotted path, ``""`` for the root of a single model, ``(outside)`` for ops that ran
    outside any module. ``type`` is its class, empty for a path on which there is no module.
    """

    path: str
    type: str
    exclusive: Total
    inclusive: Total
    children: tuple[ModuleTotal, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2] or ROOT_PATH

    def walk(self) -> Iterator[ModuleTotal]:
        """This module and all inside it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def parent_path(path: str, known: Mapping[str, object]) -> str | None:
    """The path that contains ``path``, None at the top. The unnamed root contains everything if there is one."""
    if path in ("", OUTSIDE_PATH):
        return None
    head, dot, _ = path.rpartition(".")
    return head if dot else ("" if "" in known else None)


def module_tree(graph: Graph, exclusive: Mapping[int, Total]) -> tuple[ModuleTotal, ...]:
    """The trees of ``graph``'s modules from each module's own totals, in the order of the model."""
    types: dict[str, str] = {}
    own: dict[str, list[Total]] = {}
    for index, module in enumerate(graph.modules):
        types.setdefault(module.path, module.type)
        if index in exclusive:
            own.setdefault(module.path, []).append(exclusive[index])
    if OUTSIDE in exclusive:
        own[OUTSIDE_PATH] = [exclusive[OUTSIDE]]
    children: dict[str | None, dict[str, None]] = {}

    def place(path: str) -> None:
        """Put ``path`` and every path that contains it under its parent."""
        parent = parent_path(path, types)
        if path not in children.setdefault(parent, {}):
            if parent is not None:
                place(parent)
            children[parent][path] = None

    def node(path: str) -> ModuleTotal:
        inside = tuple(map(node, children.get(path, ())))
        total = joint(own.get(path, [Total()]))
        return ModuleTotal(path, types.get(path, ""), total, joint([total, *(c.inclusive for c in inside)]), inside)

    for path in [*types, *own]:
        place(path)
    return tuple(map(node, children.get(None, ())))
