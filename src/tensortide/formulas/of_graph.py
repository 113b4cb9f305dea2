"""Totals of a graph whose sizes are expressions, by the cost rules alone."""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.cost import count
from tensortide.errors import ExpressionError
from tensortide.expr import conditions, expr_of
from tensortide.expr.floors import given_whole
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.measure import counted_totals
from tensortide.formulas.region import divisible, quotients, simplified, sizes
from tensortide.graph.model import Graph
from tensortide.graph.trips import guess_text, guessed_trips
from tensortide.memory import footprint_bytes


def formulas_of_graph(graph: Graph, defaults: Mapping[str, int], workload: str = "") -> Formulas:
    """Return the totals of ``graph``, by the default rules; ``defaults`` are values of the symbols in its sizes.

    Raises ExpressionError if it has none, and for ops without a cost rule: a total that lacks them is no total.
    """
    known = sizes(graph)
    whole = quotients(known)
    with conditions() as asked, given_whole(whole):
        counted = count(graph)
        totals = {name: expr_of(total) for name, total in counted_totals(counted, footprint_bytes(graph)).items()}
    if not counted.coverage.complete:
        missing = ", ".join(str(group) for group in counted.coverage.missing)
        raise ExpressionError(f"{workload or 'the graph'} has ops without a cost rule: {missing}")
    used = sorted({name for expr in totals.values() for name in expr.symbols})
    if not used:
        raise ExpressionError(f"the sizes of {workload or 'the graph'} are numbers: there is nothing to vary")
    lowest = dict.fromkeys(used, 1)
    region = (*divisible(whole), *simplified(asked, lowest, known, [dict(defaults)]))
    kept = tuple(c for c in region if c.expr.symbols <= set(used))
    return Formulas(
        totals=totals,
        defaults={name: defaults[name] for name in used},
        region=kept,
        workload=workload,
        assumptions=(*graph.meta.assumptions, *([guess_text(guessed)] if (guessed := guessed_trips(graph)) else ())),
    )
