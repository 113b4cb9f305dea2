"""Costs as the command line counts them: where an op has no rule, PyTorch knows its cost or what it decomposes into."""

from __future__ import annotations

from typing import Any

from tensortide import cost
from tensortide.cost import Count, Explanation, Resolver
from tensortide.graph import Graph
from tensortide.graph.validate import require_graph
from tensortide.importers.door import as_text
from tensortide.recorder import resolver
from tensortide.targets.keywords import request_of
from tensortide.targets.opening import graph_of
from tensortide.targets.requests import CaptureRequest


def count(target: Any, *, strict: bool = False, resolver: Resolver | None = resolver, **options: Any) -> Count:
    """Count the step ``target``: the cost of every op, and totals by phase, module and op name.

    >>> tensortide.count("gpt2", set={"batch": 2}).total.flops  # doctest: +SKIP

    ``target`` is a Graph, or any other target, for which ``options`` are those of its capture (``set``, ``machine``,
    ``device``, ...). ``resolver`` is asked for ops without a rule. The cost of an op without either is unknown, and
    totals with it are lower bounds; under ``strict`` it raises UnknownCost, which lists all such ops, or the loops of
    which nobody knows how often they run.
    """
    if options or not isinstance(target, Graph):
        target = graph_of(as_text(target), request_of("count", CaptureRequest, options))
    return cost.count(target, strict=strict, resolver=resolver)


def explain(graph: Graph, op: int | str, *, resolver: Resolver | None = resolver) -> Explanation:
    """Explain the cost of ``op``: an index, or the first op of a name (``mm``, ``aten.mm``, ``aten::mm.default``).

    Raises NoSuchOp, with the names that come closest.
    """
    require_graph(graph, "explain")
    return cost.explain(graph, op, resolver=resolver)
