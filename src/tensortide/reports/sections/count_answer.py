"""Documents of what ``count`` answers: a step, a table of formulas, formulas in hyperparameters, or rules; section
``rules``: where the cost of one op comes from, and the ops that have no rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from tensortide.cost import Cost, Count, Explanation, Missing
from tensortide.formulas.result import Symbolic
from tensortide.recorder import resolver
from tensortide.reports.blocks import AnyBlock, Document, Fact, Note, Section
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.sections import Step, cost, formulas, modules, ops
from tensortide.reports.sections.cost_table import listing, table_document
from tensortide.shown import Show
from tensortide.studies.count_request import Counted, CountRequest, Explained, Tabulated, Unknown

TOP = 15
"""Rows that lists show unless more or fewer are asked for."""


class Named(NamedTuple):
    """An argument, an output or a symbol of a rule, as texts."""

    name: Annotated[str, Show(unit="code")]
    value: Annotated[str, Show(unit="code")]


def answered(found: Counted, asked: CountRequest, *, rows: bool) -> Document:
    """Show the answer; with ``rows`` a table has one for every op, which text lists if the request asks for it."""
    depth, top = asked.depth, TOP if asked.top is None else asked.top
    if isinstance(found, Symbolic):
        made = formulas.document(found, depth=depth, top=top)
        if not asked.ops:
            return made
        ops_of_it = Section("costs", "Costs", "op by op", listing(found.table(), asked.top))
        return msgspec.structs.replace(made, sections=(*made.sections, ops_of_it))
    if isinstance(found, Tabulated):
        most, counted = asked.top if asked.ops else 0, found.counted
        return table_document(found.table, file=found.file, count=counted, rows=rows, most=most, depth=depth, top=top)
    if isinstance(found, Count):
        step = Step(found.graph, resolver=resolver, top=top, depth=depth, costs=found)
        return step.document(*filter(None, (cost.of_step(step), modules.of_step(step), ops.of_step(step))))
    return document(found.rule, title=found.workload) if isinstance(found, Explained) else _missing(found)


def document(found: Explanation, *, title: str = "") -> Document:
    """Show the rule of one op, its operands and its cost."""
    texts = ("op", "name", "module", "phase", "how", "rule", "formula", "meaning", "file", "note")
    costs = [] if found.cost is None else [_exact(found, name) for name in (*Cost.__struct_fields__, "flops")]
    outputs = [(str(i), text) for i, text in enumerate(found.outputs)]
    tables: Iterator[AnyBlock] = (
        table(Named, [Named(*one) for one in rows], key=key, title=key.capitalize())
        for key, rows in {"arguments": found.arguments, "outputs": outputs, "symbols": found.symbols}.items()
    )
    blocks = (facts(found, *texts, "line", "trips", *costs), *tables)
    return Section("rules", "Where the cost comes from", blocks=blocks).document(title)


def _exact(found: Explanation, name: str) -> Fact:
    """A figure of the cost as a whole number, not rounded as in totals."""
    label = name.replace("_", " ").replace("macs", "MACs").replace("flops", "FLOPs").replace("int ", "integer ")
    made = fact(found, f"cost.{name}", label=label[0].upper() + label[1:], level=0, data=False)
    return msgspec.structs.replace(made, unit="count" if type(made.value) is int else made.unit)


def _missing(found: Unknown) -> Document:
    """List the ops without a rule, each with the start of one."""
    names = ("group.name as op", "group.count", "group.shapes", "group.module", "group.reason", "stub")
    blocks = (
        facts(found.coverage, "ops", "covered"),
        Note(text=found.coverage.line(), kind="coverage"),
        table(Missing, found.rules, *names, key="missing", title="Ops without a rule"),
    )
    return Section("rules", "Ops without a rule", blocks=blocks).document(found.workload)


def main_table(found: Counted, asked: CountRequest) -> str:
    """The table that ``--csv`` writes unless another is named."""
    tables = {Symbolic: "ops" if asked.ops else "totals", Explained: "arguments", Unknown: "missing"}
    return next((name for kind, name in tables.items() if isinstance(found, kind)), "ops")


def text(found: Counted) -> str | None:
    """Rules as text, which is printed in place of their document."""
    if isinstance(found, Explained):
        return str(found.rule)
    if isinstance(found, Unknown):
        known = "\nevery op has a cost rule" * (not found.rules)
        return "\n\n".join([found.coverage.line(), *map(str, found.rules)]) + known
    return None
