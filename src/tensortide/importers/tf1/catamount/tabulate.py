"""A graph under the ``catamount`` table: one row per op, as Catamount lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from tensortide.cost.opcall import OpCall
from tensortide.cost.table import Row, Table, row_of
from tensortide.expr import constant
from tensortide.graph.model import Graph
from tensortide.importers.tf1.catamount.rules import SPLIT_SIZES, VARIABLES, ZERO, charge, formula, nbytes

__all__ = ["NOT_PARAMETERS", "tabulate"]

NOT_PARAMETERS = {"resnet": "Momentum|EMA"}
"""Variables that the published numbers of a model leave out of its parameters, by preset."""


def tabulate(graph: Graph, hints: Mapping[str, int] | None = None, *, skip_parameters: str = "") -> Table:
    """Return the rows of ``graph``, a graph prepared as the table assumes.

    Variables whose name the pattern ``skip_parameters`` is found in are no parameters; a Split comes with a constant
    of its sizes.
    """
    skipped = re.compile(skip_parameters) if skip_parameters else None
    rows: list[Row] = []
    for view in graph:
        call, label = OpCall.of(view), view.op.label
        found = charge(call)
        counted = not (call.base in VARIABLES and skipped is not None and skipped.search(label))
        row = msgspec.structs.replace(
            row_of(view),
            parameters=found.parameters if counted else ZERO,
            flops=found.flops,
            bytes=found.bytes,
            footprint=found.footprint,
            io=nbytes(*view.outputs) if call.base == "Placeholder" else ZERO,
            known=found.known,
            rule=formula(call.base),
        )
        rows.append(row)
        if call.base == "Split":
            size, name = constant(SPLIT_SIZES), f"{label}_size_splits"
            rows.append(Row(name=name, type="Const", scope=row.scope, bytes=size, footprint=size))
    return Table(tuple(rows), dict(hints or {}), "catamount", graph.meta.assumptions)
