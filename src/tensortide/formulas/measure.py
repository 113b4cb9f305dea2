"""Figures of a step: costs of a Graph with expressions for sizes, by kind of op, and those of a capture in numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from tensortide.cost import Count, count
from tensortide.cost.count import phase_of
from tensortide.cost.coverage import shown
from tensortide.cost.evaluate import OpCost, Resolver
from tensortide.expr import Condition, Expr, conditions, constant, expr_of, total
from tensortide.formulas.vectors import Solver
from tensortide.graph.model import Graph

MEASURES = ("macs", "elementwise_flops", "read_bytes", "written_bytes")
"""Measures that a row sums up, by the names of a Cost."""

HELD = ("trainable", "io_bytes")
"""Sizes of what the step holds and is fed, by the names of ModelSizes."""

FOOTPRINT, EXPLAINED = "footprint", "explained"
"""The bytes of all storages; those of storages whose bytes have an expression, where not all have one."""


class Group(NamedTuple):
    """Properties that the ops of one row share."""

    phase: str
    module: str
    op: str

    def __str__(self) -> str:
        return f"{self.op} in {self.module} ({self.phase})"


class Moment(NamedTuple):
    """Position of an op in a step, described so that it can be found in a deeper or longer model.

    Numbers in the path may be ``*``; ``rank`` counts ops alike from the first (0, 1, ...) or from the last (-1, ...).
    From ``HEAVIEST`` on it says of which sizes this is the heaviest of them. ``within`` are the types of the modules
    around it: of layers of two kinds, each has its own moments.
    """

    phase: str
    module: str
    op: str
    within: str
    rank: int


class Column(IntEnum):
    """The numbers of a row: of ops, then ``MEASURES`` summed over these."""

    OPS = 0
    MACS = 1
    ELEMENTWISE = 2
    READ = 3
    WRITTEN = 4


class Level(IntEnum):
    """The bytes of a moment: resident ones without kernels' workspace, and with it; a lower and an upper bound of the
    peak under any order of the ops; of storages that have an expression, where not all have one."""

    RESIDENT = 0
    WITH_WORKSPACE = 1
    LEAST_LOWER = 2
    LEAST_UPPER = 3
    EXPLAINED = 4


class Figure(NamedTuple):
    """One number of a step: a ``Column`` of a row, a ``Level`` of a moment, one of ``HELD`` or the footprint."""

    of: Group | Moment | str
    column: int = 0

    @property
    def is_count(self) -> bool:
        """True if it is the number of ops of a row."""
        return isinstance(self.of, Group) and self.column == Column.OPS

    def __str__(self) -> str:
        return f"held {self.of}" if self.of in HELD else str(self.of)


Figures: TypeAlias = dict[Figure, Expr | None]
"""Exact expressions; None where there is none."""


class Listed(NamedTuple):
    """A step whose sizes are expressions: it as ``counted`` by the rules, and the costs of one run of each op that
    runs, in the order of ``MEASURES``; None: a measure without an expression."""

    counted: Count
    costs: dict[int, list[Expr | None]]


def measure(
    lifted: Graph, counts: Sequence[Count], solver: Solver, resolver: Resolver | None, *, fold: bool
) -> tuple[Figures, dict[Condition, None], Counter[str], Listed]:
    """The costs of ``lifted``, what the rules relied on, the ops without a rule, which add nothing, by name, and the
    costs op by op.

    ``counts`` are those of the captures it was lifted from, in order: an expression is kept only if it has the
    captures' own figures at their settings. ``fold`` puts modules together that differ in their numbers only.
    """
    with conditions() as asked:
        traced = count(lifted, resolver=resolver)
        sizes = traced.sizes
    unknown: Counter[str] = Counter()
    checked: dict[tuple[tuple[int, ...], Expr], list[Expr | None]] = {}
    listed = Listed(traced, {})
    groups: dict[Group, Counter[tuple[tuple[int, ...], Expr]]] = {}
    for index in traced.running:
        key = tuple([id(c.costs[index]) for c in (traced, *counts)]), expr_of(lifted.trips(index))
        if key not in checked:
            checked[key] = _checked(traced.costs[index], [c.costs[index] for c in counts], solver)
        listed.costs[index] = checked[key]
        if traced.costs[index].cost is None:
            unknown[lifted.calls[lifted.ops[index].call].op] += 1
        groups.setdefault(group_of(lifted, index, fold=fold), Counter())[key] += 1
    figures: Figures = {}
    for group, keys in groups.items():
        runs = ((checked[key], times, key[1] * times) for key, times in keys.items())
        columns = zip(*([constant(n), *(e and e * all_of for e in costs)] for costs, n, all_of in runs), strict=True)
        for number, column in enumerate(columns):
            figures[Figure(group, number)] = None if None in column else total(filter(None, column))
    for name in HELD:
        values = tuple(getattr(c.sizes, name) for c in counts)
        figures[Figure(name)] = agrees(expr_of(getattr(sizes, name)), values, solver)
    return figures, asked, unknown, listed


def numeric(captured: Count, footprint: int, *, fold: bool) -> dict[Figure, int]:
    """The figures of one capture in numbers, moments left out."""
    result: Counter[Figure] = Counter()
    for index in captured.running:
        group, cost = group_of(captured.graph, index, fold=fold), captured.costs[index].cost
        values = [1] if cost is None else [1, *(getattr(cost, name) for name in MEASURES)]
        for column, value in enumerate(values):
            result[Figure(group, column)] += captured.graph.trips(index) * value
    return {**result, **{Figure(name): getattr(captured.sizes, name) for name in HELD}, Figure(FOOTPRINT): footprint}


def counted_totals(counted: Count, footprint: int) -> dict[str, int]:
    """The totals of a counted step by their names, without its peaks; expressions where its sizes are."""
    costs, held = counted.total, counted.sizes
    return {
        "parameters": held.trainable,
        "flops": costs.flops,
        "product_flops": 2 * costs.macs,
        "elementwise_flops": costs.cost.elementwise_flops,
        "bytes": costs.accessed_bytes,
        "footprint_bytes": footprint,
        "io_bytes": held.io_bytes,
    }


def sums(figures: Mapping[Figure, int | None]) -> dict[str, int | None]:
    """The totals that are sums of figures, by their names; None where a figure has no value."""
    columns = [[value for of, value in figures.items() if isinstance(of.of, Group) and of.column == n] for n in Column]
    _, macs, elementwise, read, written = (_sum(column) for column in columns)
    trainable, io_bytes = (figures.get(Figure(name)) for name in HELD)
    return {
        "parameters": trainable,
        "flops": _sum([macs, macs, elementwise]),
        "product_flops": _sum([macs, macs]),
        "elementwise_flops": elementwise,
        "bytes": _sum([read, written]),
        "footprint_bytes": figures.get(Figure(FOOTPRINT)),
        "io_bytes": io_bytes,
    }


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def pattern(path: str) -> str:
    """A module path with the numbers of repeated modules as ``*``."""
    return re.sub(r"(?<![A-Za-z_])\d+", "*", path)


def group_of(graph: Graph, index: int, *, fold: bool) -> Group:
    """The row of an op; ``fold`` puts modules together that differ in their numbers only."""
    op = graph.ops[index]
    path = graph.module_path(op.module)
    return Group(phase_of(op), pattern(path) if fold else path, shown(graph.calls[op.call].op))


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
