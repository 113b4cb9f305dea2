"""Section ``formulas``: the totals of a step as formulas, by phase, module and op, and where they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from tensortide.expr import Condition, Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.formulas.formulas import QUANTITIES, Formulas
from tensortide.formulas.formulas import shown as setting_text
from tensortide.formulas.result import Symbolic
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table, UnitName, Value
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.assumed import assuming

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
OTHERS = 5
"""Totals that are shown of formulas on the other side of a threshold."""


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
    blocks: list[AnyBlock] = [_totals(found), *_partial(found.formulas)]
    if found.regimes:
        blocks += _peak(found)
    for measure, unit in MEASURES.items():
        if measure in found.formulas.totals:
            blocks += _breakdowns(found, measure, unit, depth, top)
    conditions = (*_conditions(found.formulas), *_settings(found), *_limits(found))
    blocks += [_rows(found), *_others(found.formulas), _region(conditions), _tested(found.formulas)]
    return _document(found.formulas, blocks, f"formulas in {', '.join(found.symbols)}")


def document_of_file(formulas: Formulas) -> Document:
    """Show the totals of formulas that were read from a file, and where they hold."""
    conditions = list(_conditions(formulas))
    region = [_region(conditions)] if conditions else []
    tested = (
        _tested(formulas) if formulas.tested else Note(text="in which ranges these formulas were tested is not said")
    )
    table = formula_table("totals", "Totals", _valued(formulas))
    return _document(formulas, [table, *_partial(formulas), *_others(formulas), *region, tested])


def _valued(formulas: Formulas) -> Iterator[tuple[str, str, Value, UnitName]]:
    """The totals with their values at the defaults, if the formulas hold there."""
    values = formulas.totals_at(formulas.defaults) if formulas.crossed(formulas.defaults) is None else {}
    for name, expr in formulas.totals.items():
        yield TITLES.get(name, name), text(expr), values.get(name), unit_of(name)


def _partial(formulas: Formulas) -> Iterator[Table]:
    """The totals of which some parts have no expression: the formula of the rest, and these parts."""
    rows: list[tuple[str, str, Value, UnitName]] = []
    for name, part in formulas.partial.items():
        known, missing = part.known.evaluate(formulas.defaults), list(part.missing.values())
        rows.append((f"{TITLES.get(name, name)} >=", text(part.known), known, unit_of(name)))
        left = sum(value for value in missing if value is not None)
        share = "" if None in missing else f"{left / max(1, known + left):.2%} of the total: ".replace("%", " %")
        rows.append(("  + unexplained", f"{share}{part.unexplained}", left, unit_of(name)))
    if rows:
        remark = "parts have no formula: these are no totals, and no evaluation gives them"
        yield formula_table("partial", "Partial totals", rows, remark=remark)


def _others(formulas: Formulas) -> Iterator[Table]:
    """A short table for every piece on the other side of a threshold."""
    for number, other in enumerate(formulas.others, 1):
        where = "; ".join(map(_condition_text, other.region[:3])) + "; ..." * (len(other.region) > 3)
        at = f"at {setting_text(other.defaults)}"
        table = formula_table(f"others_{number}", f"Totals where {where}", _short(other), remark=at, top=OTHERS)
        exact = Column("expression", "", "code", tuple(map(text, other.totals.values())), data=True)
        names = Column("total", "", "text", tuple(other.totals), data=True)
        region = Column("region", "", "text", ("; ".join(map(str, other.region)),) * len(other.totals), data=True)
        yield msgspec.structs.replace(table, columns=(*table.columns, names, exact, region))


def _short(formulas: Formulas) -> Iterator[tuple[str, str, Value, UnitName]]:
    """The totals with their values where they are no maxima of many moments."""
    for (name, shown, value, unit), expr in zip(_valued(formulas), formulas.totals.values(), strict=True):
        moments = len(alternatives(expr))
        yield name, f"the largest of {moments} moments, in --json" if moments > 1 else shown, value, unit


def _tested(formulas: Formulas) -> Table:
    """The smallest and the largest value of each symbol at which captures agreed."""
    names = list(formulas.tested)
    return Table(
        key="tested",
        title="Tested",
        remark="values at which captures agree; beyond, formulas are extrapolated",
        columns=(
            Column("symbol", "", "name", tuple(names)),
            Column("from", "", "count", tuple(formulas.tested[name][0] for name in names)),
            Column("to", "to", "count", tuple(formulas.tested[name][1] for name in names)),
            Column("default", "default", "count", tuple(formulas.defaults.get(name) for name in names)),
        ),
    )


def _document(formulas: Formulas, blocks: Iterable[AnyBlock], *subtitle: str) -> Document:
    made = Section("formulas", "Formulas", blocks=tuple(blocks))
    document = made.document(formulas.workload or "formulas", *subtitle, settings=formulas.defaults)
    return assuming(document, formulas.assumptions)


def _region(rows: Iterable[tuple[str, str]]) -> Table:
    first, second = zip(*rows, strict=True)
    columns = (Column("kind", "", "text", first, fold=True), Column("remark", "", "text", second, fold=True))
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
    held = (
        f"for {'; '.join(reaches)} (one at a time)"
        if len(found.regimes) > 1 and reaches
        else "wherever the formulas do"
    )
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


def _conditions(formulas: Formulas) -> Iterator[tuple[str, str]]:
    yield from (("if", _condition_text(condition)) for condition in formulas.region)
    further: dict[tuple[str, ...], list[Condition]] = {}
    for condition in dict.fromkeys(c for asked in formulas.only.values() for c in asked):
        names = tuple(TITLES.get(name, name) for name, asked in formulas.only.items() if condition in asked)
        further.setdefault(names, []).append(condition)
    for names, asked in further.items():
        yield "if", f"{'; '.join(map(_condition_text, asked))}; for these only: {'; '.join(names)}"
    for threshold in formulas.thresholds:
        known = any(threshold.condition not in other.region for other in formulas.others)
        yield "beyond", f"{_condition_text(threshold.condition)}: {threshold.change}" + "; see above" * known


def _settings(found: Symbolic) -> Iterator[tuple[str, str]]:
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
        known = {
            *found.formulas.totals,
            *found.formulas.partial,
            *(remark.partition(":")[0] for remark in found.numeric),
        }
        if name not in known and not name.startswith("minimal"):
            yield "no formula", f"{name}: {QUANTITIES[name]}"
    yield "from", f"{found.captures} captures; compared with {len(found.checked)} that no formula was made from"
    yield from (("note", note) for note in found.notes)


def _condition_text(condition: Condition) -> str:
    """A condition in words: ``12 divides hidden`` rather than a floor."""
    divisor = condition.divisor
    return str(condition) if divisor is None else f"{text(divisor[0])} divides {text(divisor[1])}"
