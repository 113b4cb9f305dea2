"""The peak of a step as an expression: the largest of the moments that could be it.

The bytes resident during each op of a fixed order are sums of storages, so the peak is the maximum of as many
expressions as there are ops. Almost all of them can be left out: those before an op that only allocates, and those
that are nowhere larger than another one.
"""

from __future__ import annotations

import itertools
import operator
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from tensortide.expr import Condition, Expr, Size, conditions, constant, expr_of, nonnegative, total
from tensortide.expr.atoms import MAX
from tensortide.expr.expr import Coefficient, Monomial, opaque
from tensortide.formulas.measure import agrees
from tensortide.formulas.vectors import Solver
from tensortide.graph.model import Graph
from tensortide.memory.lifetimes import Lifetimes, lifetimes
from tensortide.memory.workspace import workspace_of
from tensortide.plans.order.bounds import Moment as Together
from tensortide.plans.order.bounds import bounds_of
from tensortide.timelines import timeline

__all__ = ["SEARCHED_OPS", "Memory", "Moment", "falls_short", "largest", "memory", "pattern"]


class Moment(NamedTuple):
    """Position of an op in a step, described so that it can be found in a deeper or longer model.

    Numbers in the path may be ``*``; ``rank`` counts ops alike from the first (0, 1, ...) or from the last (-1, ...).
    From ``HEAVIEST`` on it says of which sizes this is the heaviest of them.
    """

    phase: str
    module: str
    op: str
    rank: int


SEARCHED_OPS = 3000
"""The least memory of a step with more ops than this is not looked for: it may take minutes."""
_RANKS = (*range(12), *range(-12, 0))
"""Of ops alike, those that are looked at where the structure changes: the peak is near an end of the repetition."""


HEAVIEST = 1 << 20
_MIXED = 40
"""Mixtures of small and large sizes to compare a peak with its moments at."""


@dataclass(slots=True)
class Memory:
    """``footprint`` of all storages on ``device``; ``resident`` bytes at the moments that may be the peak, without
    kernels' workspace and with it. None: some storage, or some workspace, has no expression (``unsolved`` names it).
    ``asked``: what the rules of workspace relied on.
    ``least``: the moments whose largest is a lower, and an upper, bound of the peak under any order of the ops."""

    device: str
    footprint: Expr | None
    resident: dict[Moment, tuple[Expr | None, Expr | None]]
    least: tuple[dict[Moment, Expr], dict[Moment, Expr]] = ({}, {})
    unsolved: list[str] = field(default_factory=list)
    asked: dict[Condition, None] = field(default_factory=dict)


def memory(lifted: Graph, graphs: Sequence[Graph], solver: Solver, usual: Mapping[str, int], *, fold: bool) -> Memory:
    """The moments of ``lifted``; ``graphs`` are the captures it was lifted from, in order.

    ``usual`` are sizes of interest. ``fold``: only moments that other structures have too; else all of them.
    """
    lines = [timeline(graph) for graph in graphs]
    device = lines[0].device
    lives = lifetimes(lifted)
    extra: dict[int, Expr | None] = {}
    with conditions() as asked:
        for index in lines[0].workspace.nonzero()[0].tolist():
            values = [int(line.workspace[index]) for line in lines]
            extra[index] = agrees(expr_of(workspace_of(lifted, index, device)), values, solver)
    on_device = [i for i, storage in enumerate(lifted.storages) if storage.device == device]
    unsolved = [_named(lifted, i) for i in on_device if _is_unsolved(lifted, graphs, i)]
    found: dict[tuple[str, str, str], list[tuple[Expr | None, Expr | None]]] = {}
    for index, resident in _levels(lifted, lives, on_device, extra):
        more = extra.get(index, constant(0))
        levels = (None, None) if unsolved else (resident, None if more is None else resident + more)
        found.setdefault(_place(lifted, index, fold), []).append(levels)
    moments: dict[Moment, tuple[Expr | None, Expr | None]] = {}
    heaviest = _heaviest(found.values(), usual) if fold else itertools.repeat([])
    for (place, group), most in zip(found.items(), heaviest, strict=False):
        for rank in _RANKS if fold else range(len(group)):
            if -len(group) <= rank < len(group):
                moments[Moment(*place, rank)] = group[rank]
        for number, index in enumerate(most):
            moments[Moment(*place, HEAVIEST + number)] = group[index]
    footprint = None if unsolved else total(expr_of(lifted.storages[i].nbytes) for i in on_device)
    return Memory(device, footprint, moments, ({}, {}) if unsolved else _least(lifted, device, fold), unsolved, asked)


def _heaviest(
    groups: Collection[Sequence[tuple[Expr | None, Expr | None]]], usual: Mapping[str, int]
) -> Iterator[list[int]]:
    """Yield the largest of each group at the usual sizes and where one size is much larger or 1: its position in the
    step may change with the step's length."""
    points = [dict(usual), *({**usual, name: size} for name in usual for size in (64 * usual[name], 1))]
    values = _values([level or constant(0) for group in groups for level, _ in group], points)
    start = 0
    for group in groups:
        yield [int(index) for index in values[start : start + len(group)].argmax(0)]
        start += len(group)


def falls_short(peaks: Iterable[Expr], moments: Iterable[Expr], usual: Mapping[str, int]) -> bool:
    """Return whether one of the ``moments`` exceeds all ``peaks`` at any of many sizes, usual ones and others."""
    dice = random.Random(0)
    points = [{**usual, name: size} for name in usual for size in (64 * usual[name], 1, usual[name])]
    shares = (Fraction(1, 32), Fraction(1, 8), Fraction(1, 2), Fraction(1), Fraction(8))
    points += [{n: max(1, int(v * dice.choice(shares))) for n, v in usual.items()} for _ in range(_MIXED)]
    values = [_values(list(exprs), points).max(0) for exprs in (peaks, dict.fromkeys(moments))]
    return bool((values[1] > values[0] * (1 + 1e-9)).any())


def _values(exprs: Sequence[Expr], points: Sequence[Mapping[str, int]]) -> Any:
    """The values of each expression at each point, in floating point."""
    import numpy as np

    known: dict[Monomial, Any] = {}
    values = np.zeros((len(exprs), len(points)))
    for row, expr in enumerate(exprs):
        for monomial, coefficient in expr.terms.items():
            if monomial not in known:
                known[monomial] = np.array([_value(monomial, point) for point in points])
            values[row] += float(coefficient) * known[monomial]
    return values


def _value(monomial: Monomial, point: Mapping[str, int]) -> float:
    value = 1.0
    for atom, exponent in monomial:
        base = point[atom] if isinstance(atom, str) else Expr({((atom, 1),): 1}).subs(point).value
        value *= float(base or 0) ** exponent if base or exponent > 0 else 0.0
    return value


def _least(graph: Graph, device: str, fold: bool) -> tuple[dict[Moment, Expr], dict[Moment, Expr]]:
    """The moments of the bounds of the minimal footprint; none for a step in which their search takes long."""
    if len(graph) > SEARCHED_OPS:
        return {}, {}
    bounds = bounds_of(graph, device=device, workspace=False)
    places = [_place(graph, op, fold) for op in range(len(graph))]
    count: Counter[tuple[str, str, str]] = Counter()
    rank: list[int] = []
    for place in places:
        rank.append(count[place])
        count[place] += 1

    def moments(found: tuple[Together, ...]) -> dict[Moment, Expr]:
        result: dict[Moment, Expr] = {}
        for moment in found:
            level = total(expr_of(graph.storages[storage].nbytes) for storage in moment.storages)
            place = places[moment.op]
            result[Moment(*place, rank[moment.op])] = level
            result[Moment(*place, rank[moment.op] - count[place])] = level
        return result

    return moments(bounds.lower), moments(bounds.upper)


def _is_unsolved(lifted: Graph, graphs: Sequence[Graph], index: int) -> bool:
    """Return whether the bytes of a storage change from capture to capture without an expression."""
    nbytes = {graph.storages[index].nbytes for graph in graphs}
    return len(nbytes) > 1 and not isinstance(lifted.storages[index].nbytes, Size)


def _named(graph: Graph, index: int) -> str:
    storage = graph.storages[index]
    if storage.birth is None:
        return storage.name or f"storage {index}"
    op = graph[storage.birth]
    return f"a result of {op.name} in {op.module}"


def _place(graph: Graph, index: int, fold: bool) -> tuple[str, str, str]:
    op = graph.ops[index]
    path = graph.module_path(op.module)
    return op.phase.value, pattern(path) if fold else path, graph.calls[op.call].op


def pattern(path: str) -> str:
    """A module path with the numbers of repeated modules as ``*``."""
    return re.sub(r"(?<![A-Za-z_])\d+", "*", path)


def _levels(
    graph: Graph, lives: Lifetimes, on_device: Sequence[int], extra: dict[int, Expr | None]
) -> Iterator[tuple[int, Expr]]:
    """Bytes resident during each op after which something is released, or which has workspace."""
    born: dict[int, list[int]] = {}
    released: dict[int, list[int]] = {}
    for storage in on_device:
        born.setdefault(max(int(lives.births[storage]), 0), []).append(storage)
        released.setdefault(int(lives.deaths[storage]), []).append(storage)
    level: dict[Monomial, Coefficient] = {}
    for index in range(len(graph)):
        if index in released:
            _add(level, graph, released[index], -1)
        _add(level, graph, born.get(index, ()), 1)
        if index + 1 in released or index in extra or index + 1 == len(graph):
            yield index, Expr(level)


def _add(level: dict[Monomial, Coefficient], graph: Graph, storages: Sequence[int], sign: int) -> None:
    for storage in storages:
        for monomial, coefficient in expr_of(graph.storages[storage].nbytes).terms.items():
            level[monomial] = level.get(monomial, 0) + sign * coefficient


def largest(moments: Iterable[Expr], typical: Mapping[str, int]) -> Expr:
    """The maximum of expressions, as ``tensortide.expr.maximum`` makes it, of very many in less time: one that is
    larger somewhere is not asked whether another one never falls short of it."""
    distinct = dict.fromkeys(moments)
    names = sorted({name for expr in distinct for name in expr.symbols})
    usual = {name: typical.get(name, 1) for name in names}
    points = [usual, dict.fromkeys(names, 1), *({**usual, name: 5 * usual[name] + 1} for name in names)]
    values: list[dict[Monomial, Coefficient]] = [{} for _ in points]
    levels: dict[Expr, list[Coefficient]] = {}
    for expr in distinct:
        for monomial in expr.terms:
            if monomial not in values[0]:
                for point, known in zip(points, values, strict=True):
                    known[monomial] = Expr({monomial: 1}).subs(point).value or 0
        levels[expr] = [sum(c * known[m] for m, c in expr.terms.items()) for known in values]
    kept: list[Expr] = []
    for expr in sorted(distinct, key=levels.__getitem__, reverse=True):
        own = levels[expr]
        above = (other for other in kept if all(map(operator.ge, levels[other], own)))
        if not any(nonnegative(other - expr) for other in above):
            kept.append(expr)
    return kept[0] if len(kept) == 1 else opaque(MAX, tuple(sorted(kept, key=str)))
