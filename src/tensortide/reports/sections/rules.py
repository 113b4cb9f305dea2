"""Section ``rules``: where the cost of one op comes from, and the ops that have no rule."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tensortide.cost import Coverage, Explanation, Missing
from tensortide.reports.blocks import Column, Document, Fact, Facts, Note, Section, Table, UnitName
from tensortide.reports.sections.cost import group_columns

__all__ = ["document", "missing_rules"]

UNITS: dict[str, UnitName] = {"macs": "macs", "bytes_read": "bytes", "bytes_written": "bytes"}


def document(found: Explanation, *, title: str = "") -> Document:
    """Show the rule of one op, its operands and its cost."""
    facts = [Fact("op", "Op", found.index, "op")]
    texts = ("name", "module", "phase", "how", "rule", "formula", "meaning", "file", "note")
    facts += [Fact(key, key.capitalize(), getattr(found, key)) for key in texts]
    facts += [Fact("line", "Line", found.line, "number"), Fact("trips", "Runs in a step", found.trips, "count")]
    cost = {} if found.cost is None else {**msgspec.structs.asdict(found.cost), "flops": found.cost.flops}
    for key, value in cost.items():
        unit: UnitName = UNITS.get(key, "flag" if isinstance(value, bool) else "count")
        facts.append(Fact(key, key, value, "text" if isinstance(value, str) else unit))
    outputs = [(str(i), text) for i, text in enumerate(found.outputs)]
    pairs = {"arguments": found.arguments, "outputs": outputs, "symbols": found.symbols}
    tables = [_table(key, rows) for key, rows in pairs.items()]
    section = Section("rules", "Where the cost comes from", blocks=(Facts(rows=tuple(facts)), *tables))
    return Document(title=title, sections=(section,))


def _table(key: str, rows: Sequence[tuple[str, str]]) -> Table:
    names, values = Column("name", "", "code", tuple(a for a, _ in rows)), tuple(b for _, b in rows)
    return Table(key=key, title=key.capitalize(), columns=(names, Column("value", "", "code", values)))


def missing_rules(missing: Sequence[Missing], coverage: Coverage, *, title: str) -> Document:
    """List the ops without a rule, each with the start of one."""
    stubs = Column("stub", "Rule to complete", "code", tuple(item.stub for item in missing))
    columns = (*group_columns([item.group for item in missing]), stubs)
    blocks = (
        Facts(rows=(Fact("ops", "Ops", coverage.ops, "count"), Fact("covered", "Covered", coverage.covered, "count"))),
        Note(text=coverage.line(), kind="coverage"),
        Table(key="missing", title="Ops without a rule", columns=columns),
    )
    return Document(title=title, sections=(Section("rules", "Ops without a rule", blocks=blocks),))
