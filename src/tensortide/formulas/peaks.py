"""The peak of a step as an expression: the largest of the moments that could be it.

The bytes resident during each op of a fixed order are sums of storages, so the peak is the maximum of as many
expressions as there are ops. Almost all of them can be left out: those before an op that only allocates, and those
that are nowhere larger than another one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.expr import Condition, Expr, Size, conditions, constant, expr_of, total
from tensortide.expr.expr import Coefficient, Monomial
from tensortide.formulas.measure import agrees
from tensortide.formulas.vectors import Solver
from tensortide.graph.model import Graph
from tensortide.memory import timeline
from tensortide.memory.lives import Spans, spans
from tensortide.memory.workspace import workspace_of
from tensortide.plan.order.bounds import Moment as Together
from tensortide.plan.order.bounds import bounds_of

__all__ = ["SEARCHED_OPS", "Memory", "Moment", "memory", "pattern"]


class Moment(NamedTuple):
    """Where in a step an op stands, told so that it can be found in a deeper or longer model.

    Numbers in the path may be ``*``; ``rank`` counts ops alike from the first (0, 1, ...) or from the last (-1, ...).
    """

    phase: str
    module: str
    op: str
    rank: int


SEARCHED_OPS = 3000
"""The least memory of a step with more ops than this is not looked for: it may take minutes."""
_RANKS = (*range(12), *range(-12, 0))
"""Of ops alike, those that are looked at where the structure changes: the peak is near an end of the repetition."""


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


def memory(lifted: Graph, graphs: Sequence[Graph], solver: Solver, *, fold: bool) -> Memory:
    """The moments of ``lifted``; ``graphs`` are the captures it was lifted from, in order.

    ``fold``: only moments that other structures have too; else all of them.
    """
    lines = [timeline(graph) for graph in graphs]
    device = lines[0].device
    lives = spans(lifted)
    extra: dict[int, Expr | None] = {}
    with conditions() as asked:
        for index in lines[0].workspace.nonzero()[0].tolist():
            values = [int(line.workspace[index]) for line in lines]
            extra[index] = agrees(expr_of(workspace_of(lifted, index, device)), values, solver)
    alive = (lives.births < lives.deaths).tolist()
    here = [i for i, storage in enumerate(lifted.storages) if storage.device == device and alive[i]]
    unsolved = [_named(lifted, i) for i in here if _is_unsolved(lifted, graphs, i)]
    found: dict[tuple[str, str, str], list[tuple[Expr | None, Expr | None]]] = {}
    for index, resident in _levels(lifted, lives, here, extra):
        more = extra.get(index, constant(0))
        levels = (None, None) if unsolved else (resident, None if more is None else resident + more)
        found.setdefault(_place(lifted, index, fold), []).append(levels)
    moments: dict[Moment, tuple[Expr | None, Expr | None]] = {}
    for place, group in found.items():
        for rank in _RANKS if fold else range(len(group)):
            if -len(group) <= rank < len(group):
                moments[Moment(*place, rank)] = group[rank]
    footprint = None if unsolved else total(expr_of(lifted.storages[i].nbytes) for i in here)
    return Memory(device, footprint, moments, ({}, {}) if unsolved else _least(lifted, device, fold), unsolved, asked)


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
    """Whether the bytes of a storage change from capture to capture without an expression."""
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
    graph: Graph, lives: Spans, here: Sequence[int], extra: dict[int, Expr | None]
) -> Iterator[tuple[int, Expr]]:
    """Bytes resident during each op after which something is released, or which has workspace."""
    born: dict[int, list[int]] = {}
    gone: dict[int, list[int]] = {}
    for storage in here:
        born.setdefault(max(int(lives.births[storage]), 0), []).append(storage)
        gone.setdefault(int(lives.deaths[storage]), []).append(storage)
    level: dict[Monomial, Coefficient] = {}
    for index in range(len(graph)):
        if index in gone:
            _add(level, graph, gone[index], -1)
        _add(level, graph, born.get(index, ()), 1)
        if index + 1 in gone or index in extra or index + 1 == len(graph):
            yield index, Expr(level)


def _add(level: dict[Monomial, Coefficient], graph: Graph, storages: Sequence[int], sign: int) -> None:
    for storage in storages:
        for monomial, coefficient in expr_of(graph.storages[storage].nbytes).terms.items():
            level[monomial] = level.get(monomial, 0) + sign * coefficient
