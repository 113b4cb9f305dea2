"""Documents of what ``count`` answers: a step, a table of formulas, formulas in hyperparameters, or rules."""

from __future__ import annotations

from tensortide.cost import Count
from tensortide.formulas.result import Symbolic
from tensortide.recorder import resolver
from tensortide.reports.blocks import Document
from tensortide.reports.sections import Step, cost, formulas, modules, ops, rules
from tensortide.reports.sections.cost_table import table_document
from tensortide.studies.count_request import Counted, CountRequest, Explained, Tabulated, Unknown

__all__ = ["document", "main_table", "text"]


def document(found: Counted, asked: CountRequest, *, rows: bool) -> Document:
    """Show the answer; with ``rows`` a table has one for every op, which text lists if the request asks for it."""
    if isinstance(found, Symbolic):
        return formulas.document(found, depth=asked.depth, top=asked.top)
    if isinstance(found, Tabulated):
        return table_document(
            found.table,
            file=found.file,
            count=found.counted,
            rows=rows,
            listed=asked.ops,
            depth=asked.depth,
            top=asked.top,
        )
    if isinstance(found, Count):
        step = Step(found.graph, resolver=resolver, top=asked.top, depth=asked.depth, costs=found)
        return step.document(*filter(None, (cost.of_step(step), modules.of_step(step), ops.of_step(step))))
    if isinstance(found, Explained):
        return rules.document(found.rule, title=found.workload)
    return rules.missing_rules(found.rules, found.coverage, title=found.workload)


def main_table(found: Counted) -> str:
    """The table that ``--csv`` writes unless another is named."""
    tables = {Symbolic: "totals", Explained: "arguments", Unknown: "missing"}
    return next((name for kind, name in tables.items() if isinstance(found, kind)), "ops")


def text(found: Counted) -> str | None:
    """Rules as text, which is printed in place of their document."""
    if isinstance(found, Explained):
        return str(found.rule)
    if isinstance(found, Unknown):
        known = "\nevery op has a cost rule" * (not found.rules)
        return "\n\n".join([found.coverage.line(), *map(str, found.rules)]) + known
    return None
