"""Captures whose hyperparameters remember their names, so that what the workload's code compares them with is known.

A workload that is called with a Size for ``hidden`` runs as it always does, and leaves a *path*: the conditions that
its comparisons answered (``hidden <= 1024``, ``8 divides hidden``). Another setting on the same path has the same
course through that code. What is compared after a size has become the shape of a tensor is not seen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from tensortide.errors import TensortideError
from tensortide.expr import Condition, Expr, computed, conditions, sized, symbol
from tensortide.formulas.space import Scalar, Setting
from tensortide.graph.model import Graph
from tensortide.recorder import capture

Path: TypeAlias = tuple[Condition, ...]


def observed(
    workload: Callable[..., Any], setting: Setting, settings: Mapping[str, Scalar], *, name: str
) -> tuple[Graph | str, Path, tuple[Expr, ...]]:
    """The capture at ``setting``, else why the workload refuses it; the path to there; and the sizes that the
    workload's code computed on it.

    ``settings`` are the hyperparameters that stay as they are.
    """
    with conditions() as asked, computed() as made:
        try:
            given = {**settings, **{n: sized(symbol(n), value) for n, value in setting.items()}}
            graph = capture(workload, hyperparameters=given, real=False, name=name)
        except TensortideError as error:
            return str(error).partition("\n")[0], tuple(asked), ()
    known = {n: setting.get(n, value) for n, value in graph.meta.hyperparameters.items()}
    return replace(graph, meta=replace(graph.meta, hyperparameters=known)), tuple(asked), tuple(made)


def opposite(condition: Condition) -> Condition:
    """The condition that holds where ``condition`` does not."""
    expr, relation = condition
    match relation:
        case "==":
            return Condition(expr, "!=")
        case "!=":
            return Condition(expr, "==")
        case ">=":
            return Condition(-expr, ">")
    return Condition(-expr, ">=")


def thresholds(path: Iterable[Condition], setting: Mapping[str, int]) -> list[Condition]:
    """The inequalities of a path, without those of loops: the comparisons of a counter with its end leave
    ``layers > 1`` and ``layers <= 2``, which a single value meets."""
    bounds: dict[Expr, list[tuple[int, Condition]]] = defaultdict(list)
    for condition in path:
        if condition.relation in (">=", ">") and condition.expr.symbols <= setting.keys():
            varying = condition.expr - condition.expr.terms.get((), 0)
            upward = str(varying) >= str(-varying)
            slack = math.floor(condition.expr.subs(setting).value or 0) - (condition.relation == ">")
            bounds[varying if upward else -varying].append((slack if upward else ~slack, condition))
    found: list[Condition] = []
    for sides in bounds.values():
        is_loop = {slack for slack, _ in sides} >= {0, -1}
        found += [] if is_loop else [condition for _, condition in sides]
    return found
