"""Section ``rules``: where the cost of one op comes from, and the ops that have no rule."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tensortide.cost import Coverage, Explanation, Missing
from tensortide.reports.blocks import Column, Document, Fact, Facts, Note, Section, Table, UnitName

__all__ = ["explanation", "missing_rules"]

UNITS: dict[str, UnitName] = {"macs": "macs", "bytes_read": "bytes", "bytes_written": "bytes"}


def explanation(found: Explanation, *, title: str) -> Document:
    """Show the rule of one op, its operands and its cost."""
    facts = [Fact("op", "Op", found.index, "op")]
    texts = ("name", "module", "phase", "how", "rule", "formula", "meaning", "file", "note")
    facts += [Fact(key, key.capitalize(), getattr(found, key)) for key in texts]
    facts += [Fact("line", "Line", found.line, "number"), Fact("trips", "Runs in a step", found.trips, "count")]
    if found.cost is not None:
        cost = {**msgspec.structs.asdict(found.cost), "flops": found.cost.flops}
        for key, value in cost.items():
            unit: UnitName = UNITS.get(key, "flag" if isinstance(value, bool) else "count")
            facts.append(Fact(key, key, value, "text" if isinstance(value, str) else unit))
    tables = [
        Table(
            key=key,
            title=key.capitalize(),
            columns=(
                Column("name", "", "code", tuple(name for name, _ in pairs)),
                Column("value", "", "code", tuple(text for _, text in pairs)),
            ),
        )
        for key, pairs in (
            ("arguments", found.arguments),
            ("outputs", tuple((str(i), text) for i, text in enumerate(found.outputs))),
            ("symbols", found.symbols),
        )
    ]
    section = Section("rules", "Where the cost comes from", blocks=(Facts(rows=tuple(facts)), *tables))
    return Document(title=title, sections=(section,))


def missing_rules(missing: Sequence[Missing], coverage: Coverage, *, title: str) -> Document:
    """List the ops without a rule, each with the start of one."""
    groups = [item.group for item in missing]
    columns = (
        Column("op", "Op", "name", tuple(group.name for group in groups)),
        Column("count", "Ops", "count", tuple(group.count for group in groups)),
        Column("shapes", "Shapes of the first", "code", tuple(group.shapes for group in groups)),
        Column("module", "Module of the first", "path", tuple(group.module for group in groups)),
        Column("reason", "Why", "text", tuple(group.reason for group in groups)),
        Column("stub", "Rule to complete", "code", tuple(item.stub for item in missing)),
    )
    blocks = (
        Facts(rows=(Fact("ops", "Ops", coverage.ops, "count"), Fact("covered", "Covered", coverage.covered, "count"))),
        Note(text=coverage.line(), kind="coverage"),
        Table(key="missing", title="Ops without a rule", columns=columns),
    )
    return Document(title=title, sections=(Section("rules", "Ops without a rule", blocks=blocks),))
