"""Cost of a Graph with expressions for sizes: one row of expressions per kind of op, and the step's footprint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.cost import Count, count
from tensortide.cost.count import RECOMPUTE
from tensortide.cost.coverage import shown
from tensortide.cost.evaluate import OpCost, Resolver
from tensortide.expr import Condition, Expr, conditions, constant, expr_of, total
from tensortide.formulas.vectors import Solver
from tensortide.graph.model import Graph

__all__ = ["HELD", "MEASURES", "Group", "Measured", "agrees", "grouped", "measure"]

MEASURES = ("macs", "elementwise_flops", "bytes_read", "bytes_written")
"""What a row sums up, by the names of a Cost."""

HELD = ("trainable", "io_bytes")
"""What the step holds and is fed, by the names of ModelSizes."""


class Group(NamedTuple):
    """Properties that the ops of one row share."""

    phase: str
    module: str
    op: str


@dataclass(slots=True)
class Measured:
    """Exact expressions of one structure.

    ``rows`` have the number of ops, then ``MEASURES``, summed over the ops of a group; None where one of them has no
    expression. ``held`` are the figures of ``HELD``. ``asked``: what the rules relied on. ``unknown``: ops without a
    cost rule, which add nothing, by name.
    """

    rows: dict[Group, list[Expr | None]] = field(default_factory=dict)
    held: dict[str, Expr | None] = field(default_factory=dict)
    asked: dict[Condition, None] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)


def measure(lifted: Graph, counts: Sequence[Count], solver: Solver, resolver: Resolver | None) -> Measured:
    """The costs of ``lifted``; ``counts`` are those of the captures it was lifted from, in order.

    An expression is kept only if it has the captures' own figures at their settings.
    """
    with conditions() as asked:
        traced = count(lifted, resolver=resolver)
        sizes = traced.sizes
    measured = Measured(asked=asked)
    for name in HELD:
        values = tuple(getattr(c.sizes, name) for c in counts)
        measured.held[name] = agrees(expr_of(getattr(sizes, name)), values, solver)
    checked: dict[Hashable, list[Expr | None]] = {}
    groups: dict[Group, Counter[Hashable]] = {}
    for index in traced.running:
        key = tuple([id(c.costs[index]) for c in (traced, *counts)]), expr_of(lifted.trips(index))
        if key not in checked:
            costs = _checked(traced.costs[index], [c.costs[index] for c in counts], solver)
            checked[key] = [constant(1), *(cost and cost * key[1] for cost in costs)]
        if traced.costs[index].cost is None:
            measured.unknown[lifted.calls[lifted.ops[index].call].op] += 1
        groups.setdefault(_group(lifted, index), Counter())[key] += 1
    for group, keys in groups.items():
        columns = zip(*([e and e * times for e in checked[key]] for key, times in keys.items()), strict=True)
        measured.rows[group] = [None if None in column else total(filter(None, column)) for column in columns]
    return measured


def grouped(captured: Count) -> dict[Group, list[int]]:
    """The rows of one capture in numbers: number of ops, then ``MEASURES``."""
    rows: dict[Group, list[int]] = {}
    for index in captured.running:
        row = rows.setdefault(_group(captured.graph, index), [0] * (1 + len(MEASURES)))
        cost, trips = captured.costs[index].cost, captured.graph.trips(index)
        row[0] += trips
        if cost is not None:
            for column, name in enumerate(MEASURES, 1):
                row[column] += trips * getattr(cost, name)
    return rows


def _group(graph: Graph, index: int) -> Group:
    op = graph.ops[index]
    phase = RECOMPUTE if op.recompute else op.phase.value
    return Group(phase, graph.module_path(op.module), shown(graph.calls[op.call].op))


def _checked(traced: OpCost, captured: Sequence[OpCost], solver: Solver) -> list[Expr | None]:
    """The measures of one op; 0 for an op without a rule."""
    if traced.cost is None:
        return [constant(0)] * len(MEASURES)
    found: list[Expr | None] = []
    for name in MEASURES:
        values = [getattr(cost.cost, name) for cost in captured if cost.cost is not None]
        complete = len(values) == len(captured)
        found.append(agrees(expr_of(getattr(traced.cost, name)), values, solver) if complete else None)
    return found


def agrees(expr: Expr, values: Sequence[int], solver: Solver) -> Expr | None:
    """``expr`` if it has the ``values`` at the solver's points, else an expression that has, else None."""
    try:
        if all(expr.evaluate(point) == value for point, value in zip(solver.points, values, strict=True)):
            return expr
    except ArithmeticError:
        pass
    return solver.solve(tuple(values)) or solver.settle(tuple(values))
