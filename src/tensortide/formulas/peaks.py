"""The peak of a step as an expression: the largest of the moments that could be it.

The bytes resident during each op of a fixed order are sums of storages, so the peak is the maximum of as many
expressions as there are ops. Almost all of them can be left out: those before an op that only allocates, and those
that are nowhere larger than another one.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from tensortide.expr import Condition, Expr, Size, conditions, constant, expr_of, nonnegative, total
from tensortide.expr.atoms import MAX
from tensortide.expr.expr import Coefficient, Monomial, opaque
from tensortide.formulas.measure import EXPLAINED, FOOTPRINT, Figure, Figures, Level, Moment, agrees, pattern
from tensortide.formulas.vectors import Solver
from tensortide.graph.model import Graph
from tensortide.memory.lifetimes import Lifetimes, lifetimes
from tensortide.memory.workspace import workspace_of
from tensortide.plans.order.minimal import bounds_of
from tensortide.timelines import timeline

SEARCHED_OPS = 3000
"""The least memory of a step with more ops than this is not looked for: it may take minutes."""
LITTLE_WORK = 50_000
"""Limit of the search for the least memory of a step, in counted steps of about a microsecond."""
MORE_WORK = 1_000_000
"""The same where a little work does not decide whether a bound holds."""
_RANKS = (*range(12), *range(-12, 0))
"""Ranks sampled among identical ops where the structure changes: the peak is near an end of the repetition."""


HEAVIEST = 1 << 20
"""The first rank that stands for a heaviest op, at the usual sizes and then at others, and not for a position."""
_MIXED = 40
"""Number of mixtures of small and large sizes at which a peak is checked."""


MomentName: TypeAlias = tuple[str, str, str, str]
"""Phase, module and op of a moment, and the types of the modules around it."""
Levels: TypeAlias = tuple[Expr | None, Expr | None]
"""Bytes resident without kernels' workspace, and with it; None: some workspace has no expression."""


def memory(
    lifted: Graph, graphs: Sequence[Graph], solver: Solver, usual: Mapping[str, int], *, fold: bool
) -> tuple[Figures, dict[Condition, None], list[str]]:
    """The footprint of ``lifted`` and the moments that may be its peak; what the rules of workspace relied on; the
    storages whose bytes have no expression.

    Where there are such storages, the figures are those of the others: lower bounds.

    ``graphs`` are the captures it was lifted from, in order, ``usual`` sizes of interest. ``fold``: only moments that
    other structures have too; else all of them.
    """
    lines = [timeline(graph) for graph in graphs]
    device = lines[0].device
    extra: dict[int, Expr | None] = {}
    with conditions() as asked:
        for index in lines[0].workspace.nonzero()[0].tolist():
            values = [int(line.workspace[index]) for line in lines]
            extra[index] = agrees(expr_of(workspace_of(lifted, index, device)), values, solver)
    on_device = [i for i, storage in enumerate(lifted.storages) if storage.device == device]
    solved = [i for i in on_device if not _is_unsolved(lifted, graphs, i)]
    unsolved = [_named(lifted, i) for i in sorted(set(on_device) - set(solved))]
    found: dict[MomentName, list[Levels]] = {}
    types = _types(lifted)
    for index, resident in _levels(lifted, lifetimes(lifted), solved, extra):
        more = extra.get(index, constant(0))
        levels = (resident, None if more is None else resident + more)
        found.setdefault(_place(lifted, index, types, fold), []).append(levels)
    moments: dict[Moment, Levels] = {}
    heaviest = _heaviest(found.values(), usual) if fold else itertools.repeat([])
    for (place, group), most in zip(found.items(), heaviest, strict=False):
        for rank in _RANKS if fold else range(len(group)):
            if -len(group) <= rank < len(group):
                moments[Moment(*place, rank)] = group[rank]
        for number, index in enumerate(most):
            moments[Moment(*place, HEAVIEST + number)] = group[index]
    sizes = total(expr_of(lifted.storages[i].nbytes) for i in solved)
    figures: Figures = {Figure(FOOTPRINT): None, Figure(EXPLAINED): sizes} if unsolved else {Figure(FOOTPRINT): sizes}
    columns = (Level.EXPLAINED,) if unsolved else (Level.RESIDENT, Level.WITH_WORKSPACE)
    figures |= {
        Figure(m, column): level
        for m, levels in moments.items()
        for column, level in zip(columns, levels, strict=False)
    }
    return figures | ({} if unsolved else _least(lifted, device, fold)), asked, unsolved


def _heaviest(groups: Collection[Sequence[Levels]], usual: Mapping[str, int]) -> Iterator[list[int]]:
    """Yield the largest of each group at the usual sizes and where one size is much larger or 1: its position in the
    step may change with the step's length."""
    points = [dict(usual), *({**usual, name: size} for name in usual for size in (64 * usual[name], 1))]
    values = values_at([level or constant(0) for group in groups for level, _ in group], points)
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
    values = [values_at(list(exprs), points).max(0) for exprs in (peaks, dict.fromkeys(moments))]
    return bool((values[1] > values[0] * (1 + 1e-9)).any())


def values_at(exprs: Sequence[Expr], points: Sequence[Mapping[str, int]]) -> Any:
    """The values of each expression at each point, in floating point; 0 for all at a point where one has none."""
    import numpy as np

    known: dict[Monomial, Any] = {}
    values = np.zeros((len(exprs), len(points)))
    for row, expr in enumerate(exprs):
        for monomial, coefficient in expr.terms.items():
            if monomial not in known:
                known[monomial] = np.array([_value(monomial, point) for point in points])
            values[row] += float(coefficient) * known[monomial]
    values[:, np.isnan(values).any(0)] = 0
    return values


def _value(monomial: Monomial, point: Mapping[str, int]) -> float:
    """The value of a monomial, not a number where it divides by 0, as a quotient of quotients may at sizes of 1."""
    value = 1.0
    for atom, exponent in monomial:
        try:
            base = point[atom] if isinstance(atom, str) else Expr({((atom, 1),): 1}).subs(point).value
        except ArithmeticError:
            return math.nan
        value *= float(base or 0) ** exponent if base or exponent > 0 else 0.0
    return value


def _least(graph: Graph, device: str, fold: bool) -> Figures:
    """The moments of the bounds of the minimal footprint; none for a step in which their search takes long."""
    if len(graph) > SEARCHED_OPS:
        return {}
    bounds = bounds_of(graph, device=device, workspace=False, work=LITTLE_WORK)
    types = _types(graph)
    places = [_place(graph, op, types, fold) for op in range(len(graph))]
    alike: dict[MomentName, list[int]] = {}
    for op, place in enumerate(places):
        alike.setdefault(place, []).append(op)
    figures: Figures = {}
    for column, moments in ((Level.LEAST_LOWER, bounds.lower), (Level.LEAST_UPPER, bounds.upper)):
        for moment in moments:
            place, level = places[moment.op], total(expr_of(graph.storages[s].nbytes) for s in moment.storages)
            rank = bisect_left(alike[place], moment.op)
            for counted in (rank, rank - len(alike[place])):
                figures[Figure(Moment(*place, counted), column)] = level
    return figures


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


def _types(graph: Graph) -> dict[str, str]:
    """The types of a module and of those around it, by its path."""
    types = {module.path: module.type for module in graph.modules}
    around = {path: itertools.accumulate(path.split("."), "{}.{}".format) for path in types}
    return {path: " ".join(types.get(part, "") for part in parts) for path, parts in around.items()}


def _place(graph: Graph, index: int, types: Mapping[str, str], fold: bool) -> MomentName:
    op = graph.ops[index]
    path = graph.module_path(op.module)
    return op.phase.value, pattern(path) if fold else path, graph.calls[op.call].op, types.get(path, "")


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
    distinct = list(dict.fromkeys(moments))
    names = sorted({name for expr in distinct for name in expr.symbols})
    usual = {name: typical.get(name, 1) for name in names}
    points = [usual, dict.fromkeys(names, 1), *({**usual, name: 5 * usual[name] + 1} for name in names)]
    values = values_at(distinct, points)
    kept: list[int] = []
    for one in sorted(range(len(distinct)), key=lambda one: values[one].tolist(), reverse=True):
        above = (other for other in kept if (values[other] * (1 + 1e-9) >= values[one]).all())
        if not any(nonnegative(distinct[other] - distinct[one]) for other in above):
            kept.append(one)
    if len(kept) == 1:
        return distinct[kept[0]]
    return opaque(MAX, tuple(sorted((distinct[one] for one in kept), key=str)))
