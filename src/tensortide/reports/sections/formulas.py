"""Section ``formulas``: the totals of a step as formulas, by phase, module and op, and where they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from tensortide.expr import Condition, Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.formulas.formulas import QUANTITIES, Formulas
from tensortide.formulas.result import Symbolic
from tensortide.reports.blocks import AnyBlock, Column, Document, Section, Table, UnitName, Value
from tensortide.reports.render.values import value_text

__all__ = ["TITLES", "document", "document_of_file", "formula_table", "ranked", "unit_of"]

TITLES = {
    "parameters": "Parameters",
    "flops": "FLOPs",
    "bytes": "Bytes",
    "peak_bytes": "Peak",
    "footprint_bytes": "Footprint",
    "minimal_footprint_lower_bytes": "Min. footprint from",
    "minimal_footprint_upper_bytes": "Min. footprint to",
    "peak_with_workspace_bytes": "Peak, workspace",
    "io_bytes": "IO",
    "product_flops": "Product FLOPs",
    "elementwise_flops": "Elementwise FLOPs",
}
"""Headings of totals, the most telling first."""
MEASURES = {"flops": "FLOPs", "bytes": "bytes"}
Parts: TypeAlias = Mapping[str, Expr | None]
REGIMES = 3
"""Other moments of the peak that are shown."""


def ranked(names: Iterable[str]) -> list[str]:
    """Totals in the order in which they are shown."""
    order = list(TITLES)
    return sorted(names, key=lambda name: order.index(name) if name in TITLES else len(order))


def unit_of(name: str) -> UnitName:
    """The unit of the total ``name``."""
    return "bytes" if name.endswith("bytes") else "amount"


def formula_table(
    key: str, title: str, rows: Iterable[tuple[str, str, Value, UnitName]], *, remark: str = "", top: int | None = None
) -> Table:
    """Lines of name, formula and value. Values are text in the views, as each row has its own unit."""
    found = list(rows)
    return Table(
        key=key,
        title=title,
        remark=remark,
        columns=(
            Column("name", "", "name", tuple(row[0] for row in found), fold=True),
            Column("formula", "", "code", tuple(row[1] for row in found), fold=True),
            Column("shown", "", "number", tuple(value_text(value, unit) for _, _, value, unit in found)),
            Column("value", "", "number", tuple(row[2] for row in found), data=True),
        ),
        top=top,
        rest=f"and {len(found) - top} more" if top is not None and len(found) > top else "",
    )


def document(found: Symbolic, *, depth: int = 3, top: int = 15) -> Document:
    """Show every total as a formula with its value, then FLOPs and bytes by phase, module and op."""
    blocks: list[AnyBlock] = [_totals(found)]
    if found.regimes:
        blocks += _peak(found)
    for measure, unit in MEASURES.items():
        if measure in found.formulas.totals:
            blocks += _breakdowns(found, measure, unit, depth, top)
    blocks += [_rows(found), _region(("kind", "remark"), (*_conditions(found), *_limits(found)))]
    return _document(found.formulas, blocks, f"formulas in {', '.join(found.symbols)}")


def document_of_file(formulas: Formulas) -> Document:
    """Show the totals of formulas that were read from a file, and where they hold."""
    values = formulas.evaluate()
    totals = [(TITLES.get(n, n), text(e), values.get(n), unit_of(n)) for n, e in formulas.totals.items()]
    conditions = [(_condition_text(condition), "") for condition in formulas.region]
    conditions += [(_condition_text(c), f"for {TITLES.get(n, n)}") for n, asked in formulas.only.items() for c in asked]
    region = [_region(("condition", "only"), conditions)] if conditions else []
    return _document(formulas, [formula_table("totals", "Totals", totals), *region])


def _document(formulas: Formulas, blocks: Iterable[AnyBlock], *subtitle: str) -> Document:
    made = Section("formulas", "Formulas", blocks=tuple(blocks))
    return made.document(formulas.workload or "formulas", *subtitle, settings=formulas.defaults)


def _region(keys: tuple[str, str], rows: Iterable[tuple[str, str]]) -> Table:
    first, second = zip(*rows, strict=True)
    columns = (Column(keys[0], "", "text", first, fold=True), Column(keys[1], "", "text", second, fold=True))
    return Table(key="region", title="Where they hold", columns=columns)


def _totals(found: Symbolic) -> Table:
    values, rows = found.evaluate(), []
    for name, expr in found.formulas.totals.items():
        shown, moments = text(expr), len(alternatives(expr))
        if moments > 1:
            shown = f"the largest of {moments} moments, {'see below' if name == 'peak_bytes' else 'in --json'}"
        rows.append((TITLES.get(name, name), shown, values.get(name), unit_of(name)))
    table = formula_table("totals", "Totals", rows)
    keys = Column("total", "", "text", tuple(found.formulas.totals), data=True)
    exact = Column("expression", "", "code", tuple(map(text, found.formulas.totals.values())), data=True)
    return Table(key=table.key, title=table.title, columns=(*table.columns, keys, exact))


def _peak(found: Symbolic) -> Iterator[AnyBlock]:
    """The moment of the peak, and how far each symbol may move before another moment is the peak."""
    regime, setting = found.regime(), found.formulas.defaults
    reaches = []
    for name in found.symbols:
        low, high = found.reach(name)
        if low > 1 or high is not None:
            reaches.append(f"{name} {low:,} and up" if high is None else f"{name} {low:,} to {high:,}")
    held = f"for {'; '.join(reaches)} (one at a time)" if len(found.regimes) > 1 and reaches else "at any setting"
    others = sorted(
        (other for other in found.regimes if other is not regime), key=lambda other: -other.bytes.evaluate(setting)
    )
    shown = [regime, *others]
    yield Table(
        key="peak",
        title="Peak",
        remark="bytes of resident storages, without kernels' own workspace",
        columns=(
            Column("moment", "", "text", ("here", *["else"] * len(others))),
            Column("formula", "", "code", tuple(text(other.bytes) for other in shown), fold=True),
            Column("place", "", "text", tuple(f"during {other.place}" for other in shown), fold=True, dim=True),
            Column("bytes", "", "bytes", tuple(other.bytes.evaluate(setting) for other in shown)),
        ),
        top=1 + REGIMES,
        rest=f"and {len(others) - REGIMES} more, in --json" if len(others) > REGIMES else "",
        note=f"The first holds {held}.",
    )


def _breakdowns(found: Symbolic, measure: str, unit: str, depth: int, top: int) -> Iterator[Table]:
    modules = {path: expr for path, expr in found.by_module(measure).items() if path.count(".") < depth}
    inside = "what is inside included; * stands for the numbers of repeated modules"
    yield _breakdown(found, measure, unit, "phase", found.by_phase(measure), top)
    yield _breakdown(found, measure, unit, "module", modules, None, inside)
    yield _breakdown(found, measure, unit, "op", found.by_op(measure), top, f"the {top} largest")


def _breakdown(
    found: Symbolic, measure: str, unit: str, by: str, parts: Parts, top: int | None, remark: str = ""
) -> Table:
    setting = found.formulas.defaults
    valued = [(name, expr, None if expr is None else expr.evaluate(setting)) for name, expr in parts.items()]
    if top is not None:
        valued = sorted(valued, key=lambda part: 1 if part[2] is None else -part[2])
    rows = [(name, _shown(expr) or "no formula", value, unit_of(measure)) for name, expr, value in valued if value != 0]
    return formula_table(f"{measure}_by_{by}", f"{unit} by {by}", rows, remark=remark, top=top)


def _rows(found: Symbolic) -> Table:
    """Every row of the count, for data alone."""
    names = ("count", "product_flops", "elementwise_flops", "bytes")
    return Table(
        key="rows",
        title="Rows",
        columns=(
            *(Column(n, n, "name", tuple(getattr(row, n) for row in found.rows)) for n in ("phase", "module", "op")),
            *(Column(n, n, "code", tuple(_shown(getattr(row, n)) for row in found.rows)) for n in names),
        ),
        top=0,
    )


def _shown(expr: Expr | None) -> str | None:
    return None if expr is None else text(expr)


def _conditions(found: Symbolic) -> Iterator[tuple[str, str]]:
    yield from (("if", _condition_text(condition)) for condition in found.formulas.region)
    further: dict[Condition, list[str]] = {}
    for name, asked in found.formulas.only.items():
        for condition in asked:
            further.setdefault(condition, []).append(TITLES.get(name, name))
    for condition, names in further.items():
        yield "if", f"{_condition_text(condition)}; for these only: {'; '.join(names)}"
    if found.settings:
        yield "with", ", ".join(f"{name}={value}" for name, value in found.settings.items())


def _limits(found: Symbolic) -> Iterator[tuple[str, str]]:
    for name, reason in found.structural.items():
        yield "structure", f"{name} changes it: {reason}"
    for name, reason in found.held.items():
        yield "held", f"{name}={found.settings.get(name)}: {reason}"
    yield from (("no formula", remark) for remark in found.numeric)
    for name, count in found.unknown.items():
        yield "unknown", f"{name} x{count} has no cost rule and adds nothing"
    for name in QUANTITIES:
        if name not in found.formulas.totals and not name.startswith("minimal"):
            yield "no formula", f"{name}: {QUANTITIES[name]}"
    yield "from", f"{found.captures} captures; compared with {len(found.checked)} that no formula was made from"
    yield from (("note", note) for note in found.notes)


def _condition_text(condition: Condition) -> str:
    """A condition in words: ``12 divides hidden`` rather than a floor."""
    divisor = condition.divisor
    return str(condition) if divisor is None else f"{text(divisor[0])} divides {text(divisor[1])}"
