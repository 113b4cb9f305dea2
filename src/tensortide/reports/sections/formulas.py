"""Section ``formulas``: the totals of a step as formulas, by phase, module and op, and where they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import Condition, Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.expr.names import Names
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.formulas import shown as setting_text
from tensortide.formulas.quantities import QUANTITIES, quantity
from tensortide.formulas.result import Regime, Symbolic
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.sections.assumed import assuming
from tensortide.reports.sections.formula_table import Line, formula_table, names_table
from tensortide.units import format_percent

__all__ = ["document", "document_of_file"]

MEASURES = ("flops", "bytes")
Parts: TypeAlias = Mapping[str, Expr | None]
REGIMES = 3
"""Other moments of the peak that are shown."""
FIGURES = 3
"""Figures without a formula that are named of each reason."""
OTHERS = 5
"""Totals that are shown of formulas on the other side of a threshold."""
LEAST = ("minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")
REMARK = "at the values above; memory is without the workspace of kernels unless it says so"
ELSEWHERE = "in --json"
"""Where the moments of a maximum stand that a line has no room for."""


def document(found: Symbolic, *, depth: int = 3, top: int = 15) -> Document:
    """Show every total as a formula with its value and where they hold, then FLOPs and bytes by phase, module, op."""
    formulas = found.formulas
    names = Names(_printed(found, depth))
    blocks: list[AnyBlock] = [_totals(formulas, names, "see below" if found.regimes else ELSEWHERE)]
    conditions = (*_conditions(formulas, names), *_settings(found), *_limits(found))
    blocks += [*names_table(names), *_partial(formulas, names), _region(conditions), _tested(formulas)]
    blocks += _others(formulas, names)
    if found.regimes:
        blocks.append(_peak(found, names))
    for measure in MEASURES:
        if measure in formulas.totals:
            blocks += _breakdowns(found, measure, names, depth, top)
    blocks += [_rows(found), _numeric(found)]
    return _document(formulas, blocks, f"formulas in {', '.join(found.symbols)}")


def document_of_file(formulas: Formulas) -> Document:
    """Show the totals of formulas that were read from a file, and where they hold."""
    names = Names(_all_short(formulas))
    conditions = [*_conditions(formulas, names), *_file_remarks(formulas)]
    region = [_region(conditions)] if conditions else []
    tested = (
        _tested(formulas) if formulas.tested else Note(text="in which ranges these formulas were tested is not said")
    )
    blocks = (_totals(formulas, names, ELSEWHERE), *names_table(names), *_partial(formulas, names))
    return _document(formulas, [*blocks, *region, tested, *_others(formulas, names)])


def _file_remarks(formulas: Formulas) -> Iterator[tuple[str, str]]:
    """Return what the file says of the derivation: values that are no symbols, and why."""
    if formulas.settings:
        yield "with", ", ".join(f"{name}={value}" for name, value in formulas.settings.items())
    for name, reason in formulas.held.items():
        yield "held", f"{name}={formulas.settings.get(name)}: {reason}"
    yield from (("note", note) for note in formulas.notes)


def _all_short(formulas: Formulas) -> Iterator[Expr]:
    """The same with those of other sides: a name means one thing on a page."""
    for piece in (formulas, *formulas.others):
        yield from _short(piece)


def _short(formulas: Formulas) -> Iterator[Expr]:
    """The expressions of totals that are printed in full."""
    exprs = (*formulas.totals.values(), *(part.known for part in formulas.partial.values()))
    return (expr for expr in exprs if len(alternatives(expr)) == 1)


def _printed(found: Symbolic, depth: int) -> Iterator[Expr]:
    """The expressions that the page prints."""
    yield from _all_short(found.formulas)
    yield from (moment.bytes for moment in _moments(found)[: 1 + REGIMES])
    for measure in MEASURES:
        parts = (*found.by_phase(measure).values(), *_modules(found, measure, depth).values())
        yield from (expr for expr in (*parts, *found.by_op(measure).values()) if expr is not None)


def _totals(formulas: Formulas, names: Names, peaks: str) -> Table:
    """The totals with their values at the defaults, if the formulas hold there."""
    try:
        values = msgspec.structs.replace(formulas, others=()).totals_at(formulas.defaults)
    except ExpressionError:
        values = {}
    lines = []
    for name, expr in formulas.totals.items():
        title, unit, _ = quantity(name)
        lines.append(Line(title, expr, values.get(name), unit, name, peaks if name == "peak_bytes" else ELSEWHERE))
    return formula_table("totals", "Totals", lines, names=names, exact=True, remark=REMARK)


def _partial(formulas: Formulas, names: Names) -> Iterator[Table]:
    """The totals of which some parts have no expression: the formula of the rest, and these parts."""
    lines = []
    for name, part in formulas.partial.items():
        title, unit, _ = quantity(name)
        known, missing = part.known.evaluate(formulas.defaults), list(part.missing.values())
        values = [value for value in missing if value is not None]
        left = sum(values) if len(values) == len(missing) else None
        share = "" if left is None else f"{format_percent(left, known + left)} of the total: "
        lines.append(Line(f"{title}, known", part.known, known, unit, name, ELSEWHERE))
        lines.append(Line("  + unexplained", f"{share}{part.unexplained}", left, unit))
    if lines:
        remark = "lower bounds: parts have no formula, and no evaluation gives them"
        yield formula_table("partial", "Partial totals", lines, names=names, exact=True, remark=remark)


def _others(formulas: Formulas, names: Names) -> Iterator[Table]:
    """A short table for every piece that holds elsewhere, what the first totals do not have first."""
    for number, piece in enumerate(formulas.others, 1):
        ranked = sorted(piece.totals.items(), key=lambda total: total[0] in formulas.totals)
        other = msgspec.structs.replace(piece, totals=dict(ranked))
        where = "; ".join(map(_condition_text, other.region[:3])) + "; ..." * (len(other.region) > 3)
        table = _totals(other, names, ELSEWHERE)
        region = Column("region", "", "text", ("; ".join(map(str, other.region)),) * len(table), data=True)
        changed = {"key": f"others_{number}", "title": f"Totals where {where}", "top": OTHERS}
        changed["remark"] = f"at {setting_text(other.defaults)}"
        yield msgspec.structs.replace(table, columns=(*table.columns, region), **changed)


def _tested(formulas: Formulas) -> Table:
    """The smallest and the largest value of each symbol at which captures agreed."""
    names = list(formulas.tested)
    return Table(
        key="tested",
        title="Tested",
        remark="values at which captures agree; beyond, formulas are extrapolated",
        columns=(
            Column("symbol", "", "name", tuple(names)),
            Column("from", "from", "count", tuple(formulas.tested[name][0] for name in names)),
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


def _moments(found: Symbolic) -> list[Regime]:
    """The moment that is the peak, then the others, the highest first."""
    if not found.regimes:
        return []
    first, setting = found.regime(), found.formulas.defaults
    others = (other for other in found.regimes if other is not first)
    return [first, *sorted(others, key=lambda other: -other.bytes.evaluate(setting))]


def _peak(found: Symbolic, names: Names) -> Table:
    """The moment of the peak, and how far each symbol may move before another moment is the peak."""
    setting, moments, reaches = found.formulas.defaults, _moments(found), []
    for name in found.symbols:
        low, high = found.reach(name)
        if low > 1 or high is not None:
            reaches.append(f"{name} {low:,} and up" if high is None else f"{name} {low:,} to {high:,}")
    several = len(moments) > 1 and bool(reaches)
    where = f"for {'; '.join(reaches)} (one at a time)" if several else "wherever the formulas hold"
    return Table(
        key="peak",
        title="Peak",
        remark="bytes of resident storages, without the workspace of kernels",
        columns=(
            Column("moment", "", "text", ("here", *["else"] * (len(moments) - 1))),
            Column("formula", "", "code", tuple(names.text(moment.bytes) for moment in moments), fold=True),
            Column("place", "", "text", tuple(f"during {moment.place}" for moment in moments), fold=True, dim=True),
            Column("bytes", "", "bytes", tuple(moment.bytes.evaluate(setting) for moment in moments)),
            Column("expression", "", "code", tuple(text(moment.bytes) for moment in moments), data=True),
        ),
        top=1 + REGIMES,
        rest=f"and {len(moments) - 1 - REGIMES} more, in --json" if len(moments) > 1 + REGIMES else "",
        note=f"The first is the peak {where}.",
    )


def _modules(found: Symbolic, measure: str, depth: int) -> dict[str, Expr | None]:
    return {path: expr for path, expr in found.by_module(measure).items() if path.count(".") < depth}


def _breakdowns(found: Symbolic, measure: str, names: Names, depth: int, top: int) -> Iterator[Table]:
    inside = "what is inside included; * stands for the numbers of repeated modules"
    modules = _modules(found, measure, depth)
    for by, parts, most, remark in (
        ("phase", found.by_phase(measure), top, ""),
        ("module", modules, None, inside),
        ("op", found.by_op(measure), top, f"the {top} largest"),
    ):
        lines, title = _parts(found, measure, parts, ranked=most is not None), f"{quantity(measure).title} by {by}"
        yield formula_table(f"{measure}_by_{by}", title, lines, names=names, remark=remark, top=most)


def _parts(found: Symbolic, measure: str, parts: Parts, *, ranked: bool) -> list[Line]:
    """The parts of a total that are not 0, with ``ranked`` the largest first and those without a formula last."""
    setting, unit = found.formulas.defaults, quantity(measure).unit
    valued = [(name, expr, None if expr is None else expr.evaluate(setting)) for name, expr in parts.items()]
    if ranked:
        valued = sorted(valued, key=lambda part: 1 if part[2] is None else -part[2])
    return [Line(name, expr or "no formula", value, unit) for name, expr, value in valued if value != 0]


def _rows(found: Symbolic) -> Table:
    """Every row of the count, for data alone."""
    names = ("count", "product_flops", "elementwise_flops", "bytes")
    return Table(
        key="rows",
        title="Rows",
        columns=(
            *(Column(n, n, "name", tuple(getattr(row, n) for row in found.rows)) for n in ("phase", "module", "op")),
            *(Column(n, n, "code", tuple(_text(getattr(row, n)) for row in found.rows)) for n in names),
        ),
        top=0,
    )


def _text(expr: Expr | None) -> str | None:
    return None if expr is None else text(expr)


def _conditions(formulas: Formulas, names: Names) -> Iterator[tuple[str, str]]:
    yield from (("if", _condition_text(condition, names)) for condition in formulas.region)
    further: dict[tuple[str, ...], list[Condition]] = {}
    for condition in dict.fromkeys(c for asked in formulas.only.values() for c in asked):
        titles = tuple(quantity(name).title for name, asked in formulas.only.items() if condition in asked)
        further.setdefault(titles, []).append(condition)
    for titles, asked in further.items():
        said = "; ".join(_condition_text(condition, names) for condition in asked)
        yield "if", f"{said} (needed for {', '.join(titles)} only)"
    for threshold in formulas.thresholds:
        known = any(threshold.condition not in _limits_of(other) for other in formulas.others)
        yield "threshold", f"{threshold}" + " (its totals stand below)" * known


def _limits_of(formulas: Formulas) -> list[Condition]:
    return [*formulas.region, *(threshold.condition for threshold in formulas.thresholds)]


def _settings(found: Symbolic) -> Iterator[tuple[str, str]]:
    if found.settings:
        yield "with", ", ".join(f"{name}={value}" for name, value in found.settings.items())


def _limits(found: Symbolic) -> Iterator[tuple[str, str]]:
    for name, reason in found.structural.items():
        yield "structure", f"{name} changes it: {reason}"
    for name, reason in found.held.items():
        yield "held", f"{name}={found.settings.get(name)}: {reason}"
    yield from (("no formula", remark) for remark in _by_reason(found.numeric))
    for name, count in found.unknown.items():
        yield "unknown", f"{name} x{count} has no cost rule and adds nothing"
    said = {remark.partition(":")[0] for remark in found.numeric}
    for name, (_, _, meaning) in QUANTITIES.items():
        if name not in {*found.formulas.totals, *found.formulas.partial, *said, *LEAST}:
            yield "no formula", f"{name}: {meaning}"
    yield "from", f"{found.captures} captures; compared with {len(found.checked)} that no formula was made from"
    # a threshold at 1 says it better
    ones = tuple(f"{threshold.other_side.replace(' = ', '=')} the step is" for threshold in found.thresholds)
    yield from (("note", note) for note in found.notes if not note.startswith(ones))


def _by_reason(remarks: Iterable[str]) -> Iterator[str]:
    """Remarks on figures without a formula, those of one reason as one."""
    figures: dict[str, list[str]] = {}
    for remark in remarks:
        figure, _, reason = remark.partition(": ")
        figures.setdefault(reason, []).append(figure)
    for reason, names in figures.items():
        more = f" and {len(names) - FIGURES} more, in --json" if len(names) > FIGURES else ""
        yield ", ".join(names[:FIGURES]) + more + f": {reason}" * bool(reason)


def _numeric(found: Symbolic) -> Table:
    """Every remark on a figure without a formula, for data alone."""
    return Table(key="numeric", columns=(Column("remark", "", "text", found.numeric),), top=0)


def _condition_text(condition: Condition, names: Names = Names()) -> str:  # noqa: B008
    """A condition in words: ``12 divides hidden`` rather than a floor."""
    if condition.divisor is not None:
        return " divides ".join(map(names.text, condition.divisor))
    return names.condition(condition) if condition.opposite.divisor is None else str(condition)
