"""Sections of a cost table, every figure as formula and as value, and of two tables compared."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tensortide.cost.count import Count
from tensortide.cost.count import count as count_of
from tensortide.cost.differences import Comparison
from tensortide.cost.table import QUANTITIES, Quantity, Row, Table, table_of
from tensortide.expr import Expr, compiled, expr_of, text
from tensortide.graph.model import Graph, Role
from tensortide.graph.sizes import known_sizes
from tensortide.importers.imported import Imported
from tensortide.reports import blocks
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section
from tensortide.units import format_percent

__all__ = ["ROWS", "document", "table_document"]

ROWS = "ops"
"""The key of the table that has a row per op."""

TOTALS = {
    "parameters": ("Parameters", 0),
    "slots": ("optimizer slots", 1),
    "buffers": ("other variables", 1),
    "scalars": ("scalars", 1),
    "flops": ("FLOPs", 0),
    "product_flops": ("products", 1),
    "elementwise_flops": ("elementwise", 1),
    "bytes": ("Bytes accessed", 0),
    "footprint": ("Footprint", 0),
    "io": ("Fed and fetched", 0),
}
"""Labels of totals, and whether one is a detail of the total above it."""

DETAILS = ("parameters", "io")
"""Quantities that tables of groups have as data only."""
LONG = 1200
"""Most characters of a formula on a page; data have all of them."""
WIDE = 140
"""From so many columns on a row per op shows all quantities."""


class _Cells:
    """Texts and values of expressions; each distinct one is written and evaluated once."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.value: Callable[[Expr], int] = functools.cache(
            lambda expr: int(compiled([expr])(hints)[0] if expr.value is None else expr.value)
        )
        self.text: Callable[[Expr], str] = functools.cache(text)

    def remark(self, expr: Expr) -> str:
        """Write a formula beside its value: nothing where they are the same."""
        formula = self.text(expr)
        if expr.value is not None:
            return ""
        return formula if len(formula) <= LONG else f"{formula[:LONG]} ... ({len(formula)} characters)"

    def columns(
        self, key: str, label: str, exprs: Iterable[Expr], *, at_width: int = 0, data: bool = False, formula: str = ""
    ) -> Iterator[Column]:
        """Make a column of values and one of formulas, which is for data alone unless it has the label ``formula``."""
        exprs = tuple(exprs)
        yield Column(key, label, "count", tuple(map(self.value, exprs)), at_width=at_width, data=data)
        texts = tuple(map(self.text, exprs))
        yield Column(f"{key}_formula", formula, "code", texts, fold=True, dim=True, data=not formula)


def document(found: Count | Graph | Imported) -> Document:
    """Show the costs of a step: totals, then by type of op and by scope."""
    counted = found if isinstance(found, Count) else count_of(found.graph if isinstance(found, Imported) else found)
    table = table_of(counted, known_sizes(counted.graph))
    return table_document(table, count=counted, file=counted.graph.meta.workload)


def table_document(
    table: Table | Comparison,
    *,
    file: str,
    count: Count | None = None,
    rows: bool = False,
    listed: bool = True,
    depth: int = 3,
    top: int = 15,
) -> Document:
    """Show ``table``, with scopes to ``depth`` levels; or two tables: every total with the reasons for its change.

    With ``count``, of which it is the table, the totals have details. With ``rows`` every op (that differs) has a row,
    which text lists if ``listed``.
    """
    most = None if listed else 0
    if isinstance(table, Comparison):
        cells = _Cells({**table.theirs.hints, **table.ours.hints})
        symbols, subtitle = table.theirs.symbols | table.ours.symbols, f"{table.theirs.name} table and ours"
        sections = [_compared(table, quantity, cells, top) for quantity in QUANTITIES]
        if rows:
            differ = _differences(table, cells, most)
            sections.append(Section("differences", "Ops that differ", "numbers of all runs", (differ,)))
    else:
        cells, symbols, subtitle = _Cells(table.hints), table.symbols, f"{table.name} table"
        listing = [_ops(table, cells, most)] if rows else []
        sections = [_costs(table, cells, listing, count, depth, top)]
    return Document(title=file, subtitle=(subtitle,), settings=dict(symbols), sections=tuple(sections))


def _costs(
    table: Table, cells: _Cells, listing: Iterable[blocks.Table], count: Count | None, depth: int, top: int
) -> Section:
    totals, coverage = dict(table.totals), table.coverage
    if count is not None:
        cost, coverage = count.total.cost, count.coverage.line()
        totals |= _state(count.graph)
        totals |= {"product_flops": expr_of(2 * cost.macs), "elementwise_flops": expr_of(cost.elementwise_flops)}
    made: list[AnyBlock] = [Facts(rows=tuple(_facts(totals, cells)))]
    made.append(_groups("types", "Type", table, cells, lambda row: row.type, top))
    made.append(_groups("phases", "Phase", table, cells, lambda row: row.phase))
    if any(row.loop for row in table.rows):
        made.append(_groups("loops", "Loop", table, cells, lambda row: row.loop))
    made.append(_groups("scopes", "Scope", table, cells, lambda row: "/".join(row.scope.split("/")[:depth]), top))
    made += [*listing, Note(kind="coverage", text=coverage)]
    made += [Note(kind="assumption", text=note) for note in table.notes]
    return Section("costs", "Costs", blocks=tuple(made))


def _facts(totals: Mapping[str, Expr], cells: _Cells) -> Iterator[Fact]:
    for key, (label, level) in TOTALS.items():
        if key in totals:
            expr = totals[key]
            yield Fact(key, label, cells.value(expr), "count", remark=cells.remark(expr), level=level)
            yield Fact(f"{key}_formula", "", cells.text(expr), "code", data=True)


def _state(graph: Graph) -> dict[str, Expr]:
    """Sum the elements of variables that are no parameters: optimizer slots, others, scalars among those."""
    sizes: dict[str, dict[int, Expr]] = {"slots": {}, "buffers": {}, "scalars": {}}
    for entry in graph.named:
        tensor = graph.tensors[entry.tensor]
        if entry.role in (Role.OPTIMIZER_STATE, Role.BUFFER) or (entry.role is Role.PARAMETER and not entry.trainable):
            kind = "slots" if entry.role is Role.OPTIMIZER_STATE else "buffers" if tensor.shape else "scalars"
            sizes[kind][entry.tensor] = expr_of(tensor.numel)
    return {kind: sum(found.values(), start=expr_of(0)) for kind, found in sizes.items()}


def _groups(
    key: str, label: str, table: Table, cells: _Cells, of: Callable[[Row], str], top: int | None = None
) -> blocks.Table:
    """Sum the rows that share something, those with most FLOPs first."""
    counts = Counter(map(of, table.rows))
    sums = sorted(table.by(of).items(), key=lambda item: tuple(-cells.value(item[1][q]) for q in ("flops", "bytes")))
    columns = [
        Column(key.removesuffix("s"), label, "text", tuple(name or "(outside)" for name, _ in sums), fold=True),
        Column("ops", "Ops", "count", tuple(counts[name] for name, _ in sums)),
    ]
    for quantity in QUANTITIES:
        exprs = (totals[quantity] for _, totals in sums)
        columns += cells.columns(quantity, _label(quantity), exprs, data=quantity in DETAILS)
    return blocks.Table(key=key, title=f"By {label.lower()}", columns=tuple(columns), top=top)


def _ops(table: Table, cells: _Cells, top: int | None) -> blocks.Table:
    rows = table.rows
    columns = [
        Column("name", "Op", "path", tuple(row.name for row in rows), fold=True),
        Column("type", "Type", "text", tuple(row.type for row in rows), at_width=WIDE),
        Column("scope", "", "path", tuple(row.scope for row in rows), data=True),
        Column("phase", "Phase", "text", tuple(row.phase for row in rows), at_width=WIDE),
        Column("loop", "Loop", "path", tuple(row.loop for row in rows), data=True),
        Column("known", "", "flag", tuple(row.known for row in rows), data=True),
        *cells.columns("trips", "Runs", (row.trips for row in rows)),
    ]
    for quantity in QUANTITIES:
        width, formula = (0, "Formula") if quantity == "flops" else (WIDE, "")
        exprs = (getattr(row, quantity) for row in rows)
        columns += cells.columns(quantity, _label(quantity), exprs, at_width=width, formula=formula)
    columns.append(Column("rule", "", "code", tuple(row.rule for row in rows), data=True))
    return blocks.Table(key=ROWS, title="Ops", remark="numbers of one run", columns=tuple(columns), top=top)


def _label(quantity: Quantity) -> str:
    return TOTALS[quantity][0]


def _compared(found: Comparison, quantity: Quantity, cells: _Cells, top: int) -> Section:
    theirs, ours = (table.totals[quantity] for table in (found.theirs, found.ours))
    change = cells.value(ours) - cells.value(theirs)
    share = format_percent(cells.value(ours), cells.value(theirs))
    about = f"{change:+,}: ours are {share}" if change else "the same"
    reasons = sorted(found.by_reason[quantity].items(), key=lambda item: -abs(cells.value(item[1][1])))
    first = (found.theirs.name, theirs, len(found.theirs.rows), cells.remark(theirs))
    lines = [(reason.name.lower(), expr, ops, reason.value) for reason, (ops, expr) in reasons]
    last = ("ours", ours, len(found.ours.rows), cells.remark(ours))
    names, exprs, ops, remarks = zip(first, *lines, last, strict=True)
    value, formula = cells.columns("value", "", exprs)
    signs = ("", *("+" * (cells.value(expr) > 0) for _, expr, _, _ in lines), "")
    columns = (
        Column("reason", "", "text", names),
        Column("value", "", "count", value.values, before=signs),
        formula,
        Column("ops", "Ops", "count", ops),
        Column("text", "", "text", remarks, fold=True, dim=True),
    )
    total = blocks.Table(key="reasons", columns=columns)
    return Section(quantity, _label(quantity), about, (total, _types(found, quantity, cells, top)))


def _types(found: Comparison, quantity: Quantity, cells: _Cells, top: int) -> blocks.Table:
    """Compare the sums by op type, those that differ most first."""
    cases = [(kind, a, b, why) for kind, (a, b, why) in found.by_type(quantity).items() if why]
    cases.sort(key=lambda case: -abs(cells.value(case[2]) - cells.value(case[1])))
    rules = [{row.type: row.rule for row in table.rows} for table in (found.theirs, found.ours)]
    whys = []
    for kind, _, _, reasons in cases:
        theirs, ours = (rule.get(kind, "") for rule in rules)
        both = f": {theirs} -> {ours}" if quantity == "flops" and theirs and ours else ""
        whys.append(", ".join(reason.name.lower() for reason in reasons) + both)
    changes = [cells.value(b) - cells.value(a) for _, a, b, _ in cases]
    columns = [
        Column("type", "Type", "text", tuple(kind for kind, *_ in cases)),
        *cells.columns(found.theirs.name, found.theirs.name, (a for _, a, _, _ in cases)),
        *cells.columns("ours", "ours", (b for _, _, b, _ in cases)),
        Column("change", "change", "count", tuple(changes), before=tuple("+" * (n > 0) for n in changes)),
        Column("reasons", "Reasons", "text", tuple(whys), fold=True, dim=True),
    ]
    return blocks.Table(key="types", title="By op type", columns=tuple(columns), top=top)


def _differences(found: Comparison, cells: _Cells, top: int | None) -> blocks.Table:
    ops = found.differences
    columns = [
        Column("name", "Op", "path", tuple(d.name for d in ops), fold=True),
        Column("type", "Type", "text", tuple(d.type for d in ops)),
        Column("quantity", "", "text", tuple(d.quantity for d in ops)),
        *cells.columns(found.theirs.name, found.theirs.name, (d.theirs for d in ops)),
        *cells.columns("ours", "ours", (d.ours for d in ops)),
        Column("reason", "Reason", "text", tuple(d.reason.name.lower() for d in ops), dim=True),
    ]
    return blocks.Table(key=ROWS, columns=tuple(columns), top=top)
