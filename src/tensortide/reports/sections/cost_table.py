"""Sections of a cost table, every figure as formula and as value, and of two tables compared."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from tensortide.cost.count import Count
from tensortide.cost.count import count as count_of
from tensortide.cost.differences import Comparison, Difference
from tensortide.cost.table import QUANTITIES, Held, Quantity, Row, Table, table_of
from tensortide.expr import Expr, compiled, expr_of, text
from tensortide.graph.model import OUTSIDE_PATH, Graph, Role
from tensortide.graph.sizes import known_sizes
from tensortide.importers.imported import Imported
from tensortide.reports import blocks
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section
from tensortide.reports.of_records import column
from tensortide.reports.of_records import table as shown
from tensortide.shown import Show
from tensortide.units import format_percent

ROWS = "ops"
"""The key of the table that has a row per op."""
LABELS = {
    "parameters": "Parameters",
    "slots": "optimizer slots",
    "buffers": "other variables",
    "scalars": "scalars",
    "flops": "FLOPs",
    "product_flops": "products",
    "elementwise_flops": "elementwise",
    "bytes": "Bytes accessed",
    "footprint": "Footprint",
    "io": "Fed and fetched",
}
"""Labels of totals; those of no quantity of a table detail the total above them."""
DETAILS = ("parameters", "io")
"""Quantities that tables of groups have as data only."""
LONG = 1200
"""Most characters of a formula on a page; data have all of them."""
ROOMY = 100
"""From so many columns on it shows inputs, outputs and the formula of bytes."""
_WHERE = f"Inputs and outputs of each op: from {ROOMY} columns of width on, and in --csv FILE."
WIDE = 190
"""From so many columns on a row per op shows all quantities."""


class Part(msgspec.Struct, frozen=True):
    """A part of the difference between two totals, or one of these."""

    reason: Annotated[str, Show()]
    expr: Expr
    ops: Annotated[int, Show("Ops")]
    text: Annotated[str, Show(fold=True, dim=True)]


class TypeRow(msgspec.Struct, frozen=True):
    """The sums of the ops of one type by two tables, and why they differ."""

    type: Annotated[str, Show("Type")]
    theirs: Expr
    ours: Expr
    change: Annotated[int, Show("change", "count")]
    reasons: Annotated[str, Show("Reasons", fold=True, dim=True)]


class _Cells:
    """Texts and values of expressions; each distinct one is written and evaluated once."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.value: Callable[[Expr], int] = functools.cache(
            lambda expr: int(compiled([expr])(hints)[0] if expr.value is None else expr.value)
        )
        self.text: Callable[[Expr], str] = functools.cache(text)

    def remark(self, expr: Expr) -> str:
        """Write a formula beside its value: nothing where they are the same."""
        formula = "" if expr.value is not None else self.text(expr)
        return formula if len(formula) <= LONG else f"{formula[:LONG]} ... ({len(formula)} characters)"

    def columns(
        self, key: str, label: str, exprs: Iterable[Expr], *, formula: str = "", **options: Any
    ) -> Iterator[Column]:
        """Make a column of values and one of formulas, which is for data alone unless it has the label ``formula``."""
        exprs = tuple(exprs)
        texts = tuple(map(self.text, exprs))
        yield Column(key, label, "count", tuple(map(self.value, exprs)), **options)
        yield Column(f"{key}_formula", formula, "code", texts, fold=True, dim=True, data=not formula)

    def sides(self, found: Comparison, rows: Sequence[TypeRow | Difference]) -> Iterator[Column]:
        """Make the columns of a quantity by both tables."""
        yield from self.columns(found.theirs.name, found.theirs.name, (row.theirs for row in rows))
        yield from self.columns("ours", "ours", (row.ours for row in rows))


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
    most: int | None = None,
    depth: int = 3,
    top: int = 15,
) -> Document:
    """Show ``table``, with scopes to ``depth`` levels; or two tables: every total with the reasons for its change.

    With ``count``, of which it is the table, the totals have details. With ``rows`` every op (that differs) has a row,
    of which text lists the first ``most`` (None: all; 0: none).
    """
    if isinstance(table, Comparison):
        cells = _Cells({**table.theirs.hints, **table.ours.hints})
        symbols, subtitle = table.theirs.symbols | table.ours.symbols, f"{table.theirs.name} table and ours"
        sections = [_compared(table, quantity, cells, top) for quantity in QUANTITIES]
        if rows:
            ops, sides = table.differences, cells.sides(table, table.differences)
            differ = shown(Difference, ops, *_OP[:2], "quantity", *sides, "reason_name as reason", key=ROWS, top=most)
            sections.append(Section("differences", "Ops that differ", "numbers of all runs", (differ,)))
    else:
        cells, symbols, subtitle = _Cells(table.hints), table.symbols, f"{table.name} table"
        sections = [_costs(table, cells, listing(table, most) if rows else [], count, depth, top)]
    return Document(title=file, subtitle=(subtitle,), settings=dict(symbols), sections=tuple(sections))


def _costs(
    table: Table, cells: _Cells, listing: Sequence[AnyBlock], count: Count | None, depth: int, top: int
) -> Section:
    totals, coverage = dict(table.totals), table.coverage
    if count is not None:
        cost, coverage = count.total.cost, count.coverage.line()
        totals |= {name: expr_of(getattr(cost, name)) for name in ("product_flops", "elementwise_flops")}
        totals |= _state(count.graph)
    groups: dict[str, Callable[[Row], str]] = {
        "types": lambda row: row.type,
        "phases": lambda row: row.phase,
        "loops": lambda row: row.loop,
        "scopes": lambda row: "/".join(row.scope.split("/")[:depth]),
    }
    if not any(row.loop for row in table.rows):
        del groups["loops"]
    made: list[AnyBlock] = [Facts(rows=tuple(_facts(totals, cells)))]
    made += (_groups(key, table, cells, of, top) for key, of in groups.items())
    made += [*listing, Note(kind="coverage", text=coverage)]
    made += [Note(kind="assumption", text=note) for note in table.notes]
    return Section("costs", "Costs", blocks=tuple(made))


def _facts(totals: Mapping[str, Expr], cells: _Cells) -> Iterator[Fact]:
    for key, expr in ((key, totals[key]) for key in LABELS if key in totals):
        level = int(key not in QUANTITIES)
        yield Fact(key, LABELS[key], cells.value(expr), "count", remark=cells.remark(expr), level=level)
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


def _groups(key: str, table: Table, cells: _Cells, of: Callable[[Row], str], top: int) -> blocks.Table:
    """Sum the rows that share something, those with most FLOPs first."""
    counts, name = Counter(map(of, table.rows)), key.removesuffix("s")
    sums = sorted(table.by(of).items(), key=lambda item: tuple(-cells.value(item[1][q]) for q in ("flops", "bytes")))
    made = [
        Column(name, name.capitalize(), "text", tuple(one or OUTSIDE_PATH for one, _ in sums), fold=True),
        Column("ops", "Ops", "count", tuple(counts[one] for one, _ in sums)),
    ]
    for quantity in QUANTITIES:
        exprs = (totals[quantity] for _, totals in sums)
        made += cells.columns(quantity, LABELS[quantity], exprs, data=quantity in DETAILS)
    return blocks.Table(key=key, title=f"By {name}", columns=tuple(made), top=top)


_OP = ("name", "type", "scope", "phase", "loop", "known")


def listing(table: Table, top: int | None) -> tuple[AnyBlock, ...]:
    """List the ops with their tensors and formulas, then the inputs and the parameters; text has the first ``top``."""
    cells, rows = _Cells(table.hints), table.rows
    made = [*cells.columns("trips", "Runs", (row.trips for row in rows), at_width=WIDE)]
    for quantity in QUANTITIES:
        width, formula = (0, "Formula") if quantity in ("flops", "bytes") else (WIDE, "")
        exprs = (getattr(row, quantity) for row in rows)
        found = cells.columns(quantity, LABELS[quantity], exprs, at_width=width, formula=formula)
        made += (replace(one, at_width=ROOMY) if one.key == "bytes_formula" else one for one in found)
    columns: tuple[str | Column, ...] = (*_OP, "inputs", "outputs", *made, "rule")
    ops = shown(Row, rows, *columns, key=ROWS, title="Ops", remark="numbers of one run", top=top)
    where = () if top == 0 else (Note(text=_WHERE, only="text"),)
    return (ops, *where, *(_held(key, found, cells, top) for key, found in table.held.items() if found))


def _held(key: str, found: Sequence[Held], cells: _Cells, top: int | None) -> blocks.Table:
    """List the inputs, or the parameters."""
    made = [*cells.columns("elements", "Elements", (one.elements for one in found), formula="Formula")]
    made += cells.columns("bytes", "Bytes", (one.bytes for one in found))
    return shown(Held, found, "name", "tensor", *made, key=key, title=key.capitalize(), top=top)


def _compared(found: Comparison, quantity: Quantity, cells: _Cells, top: int) -> Section:
    theirs, ours = (table.totals[quantity] for table in (found.theirs, found.ours))
    change = cells.value(ours) - cells.value(theirs)
    share = format_percent(cells.value(ours), cells.value(theirs))
    about = f"{change:+,}: ours are {share}" if change else "the same"
    reasons = sorted(found.by_reason[quantity].items(), key=lambda item: -abs(cells.value(item[1][1])))
    parts = [
        Part(found.theirs.name, theirs, len(found.theirs.rows), cells.remark(theirs)),
        *(Part(reason.name.lower(), expr, ops, reason.value) for reason, (ops, expr) in reasons),
        Part("ours", ours, len(found.ours.rows), cells.remark(ours)),
    ]
    signs = ("", *("+" * (cells.value(part.expr) > 0) for part in parts[1:-1]), "")
    values = cells.columns("value", "", (part.expr for part in parts), before=signs)
    total = shown(Part, parts, "reason", *values, "ops", "text", key="reasons")
    return Section(quantity, LABELS[quantity], about, (total, _types(found, quantity, cells, top)))


def _types(found: Comparison, quantity: Quantity, cells: _Cells, top: int) -> blocks.Table:
    """Compare the sums by op type, those that differ most first."""
    rules = [{row.type: row.rule for row in table.rows} for table in (found.theirs, found.ours)]
    rows = []
    for kind, (theirs, ours, why) in found.by_type(quantity).items():
        if why:
            pair = [rule.get(kind, "") for rule in rules]
            both = f": {' -> '.join(pair)}" if quantity == "flops" and all(pair) else ""
            words = ", ".join(reason.name.lower() for reason in why) + both
            rows.append(TypeRow(kind, theirs, ours, cells.value(ours) - cells.value(theirs), words))
    rows.sort(key=lambda row: -abs(row.change))
    change = column(TypeRow, rows, "change", before=tuple("+" * (row.change > 0) for row in rows))
    changes = (*cells.sides(found, rows), change)
    return shown(TypeRow, rows, "type", *changes, "reasons", key="types", title="By op type", top=top)
