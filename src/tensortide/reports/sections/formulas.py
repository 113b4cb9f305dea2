"""Section ``formulas``: the totals of a step as formulas, by phase, module and op, and where they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, TypeAlias

from msgspec.structs import replace

from tensortide.errors import ExpressionError
from tensortide.expr import Condition, Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.expr.names import Names
from tensortide.formulas.formulas import Formulas, Tested
from tensortide.formulas.formulas import shown as setting_text
from tensortide.formulas.quantities import QUANTITIES, quantity
from tensortide.formulas.result import Regime, Row, Symbolic
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.of_records import table
from tensortide.reports.sections.assumed import assuming
from tensortide.reports.sections.formula_table import Line, formula_table, names_table
from tensortide.shown import Show
from tensortide.units import format_percent

Parts: TypeAlias = Mapping[str, Expr | None]
MORE = 3
"""Other moments of the peak that are shown, and figures without a formula that are named of each reason."""
OTHERS = 5
"""Totals that are shown of formulas on the other side of a threshold."""
REMARK = "at the values above; memory is without the workspace of kernels unless it says so"
ELSEWHERE = "in --json"
"""Where the moments of a maximum stand that a line has no room for."""


class Limit(NamedTuple):
    """A condition, or another remark on where formulas hold."""

    kind: Annotated[str, Show(fold=True)]
    remark: Annotated[str, Show(fold=True)]


def document(found: Symbolic | Formulas, *, depth: int = 3, top: int = 15) -> Document:
    """Show every total as a formula with its value and where they hold; of a step that was captured FLOPs and bytes by
    phase, module and op, too, and of a file what it says."""
    formulas = found if isinstance(found, Formulas) else found.formulas
    in_symbols = [] if found is formulas else [f"formulas in {', '.join(formulas.symbols)}"]
    blocks = _claims(found, Names(_all_short(found))) if isinstance(found, Formulas) else _derived(found, depth, top)
    made = Section("formulas", "Formulas", blocks=tuple(blocks))
    document = made.document(formulas.workload or "formulas", *in_symbols, settings=formulas.defaults)
    return assuming(document, formulas.assumptions)


def _derived(found: Symbolic, depth: int, top: int) -> Iterator[AnyBlock]:
    formulas, moments = found.formulas, found.moments
    printed = [*_all_short(formulas), *(moment.bytes for moment in moments[: 1 + MORE])]
    by = {
        (measure, what): parts
        for measure in ("flops", "bytes")
        for what, parts in (
            ("phase", found.by_phase(measure)),
            ("module", {path: e for path, e in found.by_module(measure).items() if path.count(".") < depth}),
            ("op", found.by_op(measure)),
        )
    }
    names = Names([*printed, *(expr for parts in by.values() for expr in parts.values() if expr is not None)])
    yield from _claims(formulas, names, found)
    if moments:
        yield _peak(found, moments, names)
    for (measure, what), parts in by.items():
        if measure in formulas.totals:
            yield _breakdown(found, measure, what, parts, names, top)
    exprs = {name: [getattr(row, name) for row in found.rows] for name in Row.__struct_fields__[3:]}
    rows = (
        *(Column(n, n, "name", tuple(getattr(row, n) for row in found.rows)) for n in Row.__struct_fields__[:3]),
        *(Column(n, n, "code", tuple(None if e is None else text(e) for e in each)) for n, each in exprs.items()),
    )
    yield Table(key="rows", title="Rows", columns=rows, top=0)
    yield Table(key="numeric", columns=(Column("remark", "", "text", found.numeric),), top=0)


def _all_short(formulas: Formulas) -> Iterator[Expr]:
    """The expressions of totals that are printed in full, on other sides too: a name means one thing on a page."""
    for piece in (formulas, *formulas.others):
        exprs = (*piece.totals.values(), *(part.known for part in piece.partial.values()))
        yield from (expr for expr in exprs if len(alternatives(expr)) == 1)


# -- totals, and where they hold --------------------------------------------------------------------


def _claims(formulas: Formulas, names: Names, found: Symbolic | None = None) -> Iterator[AnyBlock]:
    """Show the totals, where they hold, and those that hold elsewhere; ``found`` tells how they were derived."""
    yield _totals(formulas, names, "see below" if found is not None and found.regimes else ELSEWHERE)
    yield from names_table(names)
    yield from _partial(formulas, names)
    if limits := [Limit(*one) for one in (*_conditions(formulas, names), *_remarks(formulas, found))]:
        yield table(Limit, limits, key="region", title="Where they hold")
    if formulas.tested or found is not None:
        texts = {"title": "Tested", "remark": "values at which captures agree; beyond, formulas are extrapolated"}
        yield table(Tested, formulas.ranges, key="tested", **texts)
    else:
        yield Note(text="in which ranges these formulas were tested is not said")
    for number, piece in enumerate(formulas.others, 1):
        yield _other(piece, f"others_{number}", formulas, names)


def _totals(formulas: Formulas, names: Names, peaks: str) -> Table:
    """The totals with their values at the defaults, if the formulas hold there."""
    try:
        values = replace(formulas, others=()).totals_at(formulas.defaults)
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


def _other(piece: Formulas, key: str, first: Formulas, names: Names) -> Table:
    """A short table of a piece that holds elsewhere, the totals that the ``first`` one does not have first."""
    ranked = sorted(piece.totals.items(), key=lambda total: total[0] in first.totals)
    made = _totals(replace(piece, totals=dict(ranked)), names, ELSEWHERE)
    region = Column("region", "", "text", ("; ".join(map(str, piece.region)),) * len(made), data=True)
    where = "; ".join(map(_condition_text, piece.region[:3])) + "; ..." * (len(piece.region) > 3)
    texts = {"title": f"Totals where {where}", "remark": f"at {setting_text(piece.defaults)}"}
    return replace(made, key=key, top=OTHERS, columns=(*made.columns, region), **texts)


def _conditions(formulas: Formulas, names: Names) -> Iterator[tuple[str, str]]:
    yield from (("if", _condition_text(condition, names)) for condition in formulas.region)
    further: dict[tuple[str, ...], list[str]] = {}
    for condition in dict.fromkeys(c for asked in formulas.only.values() for c in asked):
        titles = tuple(quantity(name).title for name, asked in formulas.only.items() if condition in asked)
        further.setdefault(titles, []).append(_condition_text(condition, names))
    for titles, said in further.items():
        yield "if", f"{'; '.join(said)} (needed for {', '.join(titles)} only)"
    for threshold in formulas.thresholds:
        elsewhere = (
            threshold.condition not in (*other.region, *(one.condition for one in other.thresholds))
            for other in formulas.others
        )
        yield "threshold", f"{threshold}" + " (its totals stand below)" * any(elsewhere)


def _condition_text(condition: Condition, names: Names = Names()) -> str:  # noqa: B008
    """A condition in words: ``12 divides hidden`` rather than a floor."""
    if condition.divisor is not None:
        return " divides ".join(map(names.text, condition.divisor))
    return names.condition(condition) if condition.opposite.divisor is None else str(condition)


def _remarks(formulas: Formulas, found: Symbolic | None) -> Iterator[tuple[str, str]]:
    """Return what is said of the derivation: values that are no symbols, what has no formula, and why."""
    if formulas.settings:
        yield "with", ", ".join(f"{name}={value}" for name, value in formulas.settings.items())
    for name, reason in ({} if found is None else found.structural).items():
        yield "structure", f"{name} changes it: {reason}"
    for name, reason in formulas.held.items():
        yield "held", f"{name}={formulas.settings.get(name)}: {reason}"
    if found is not None:
        yield from _without_formula(found)
        yield "from", f"{found.captures} captures; compared with {len(found.checked)} that no formula was made from"
    # a threshold at 1 says it better
    ones = tuple(f"{threshold.other_side.replace(' = ', '=')} the step is" for threshold in formulas.thresholds)
    yield from (("note", note) for note in formulas.notes if not note.startswith(ones))


def _without_formula(found: Symbolic) -> Iterator[tuple[str, str]]:
    """Say which figures have no formula, those of one reason together, and which ops no cost."""
    pairs = [remark.partition(": ")[::2] for remark in found.numeric]
    figures: dict[str, list[str]] = {}
    for figure, reason in pairs:
        figures.setdefault(reason, []).append(figure)
    for reason, names in figures.items():
        more = f" and {len(names) - MORE} more, in --json" if len(names) > MORE else ""
        yield "no formula", ", ".join(names[:MORE]) + more + f": {reason}" * bool(reason)
    for name, count in found.unknown.items():
        yield "unknown", f"{name} x{count} has no cost rule and adds nothing"
    said = {*found.formulas.totals, *found.formulas.partial, *(figure for figure, _ in pairs)}
    said |= {"minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes"}
    yield from (("no formula", f"{name}: {one.meaning}") for name, one in QUANTITIES.items() if name not in said)


# -- the peak, and parts of totals ------------------------------------------------------------------


def _peak(found: Symbolic, moments: list[Regime], names: Names) -> Table:
    """The moment of the peak, and how far each symbol may move before another moment is the peak."""
    setting, reaches, more = found.formulas.defaults, [], len(moments) - 1 - MORE
    for name in found.symbols:
        low, high = found.reach(name)
        if low > 1 or high is not None:
            reaches.append(f"{name} {low:,} and up" if high is None else f"{name} {low:,} to {high:,}")
    several = len(moments) > 1 and bool(reaches)
    where = f"for {'; '.join(reaches)} (one at a time)" if several else "wherever the formulas hold"
    columns = (
        Column("moment", "", "text", ("here", *["else"] * (len(moments) - 1))),
        Column("formula", "", "code", tuple(names.text(moment.bytes) for moment in moments), fold=True),
        Column("place", "", "text", tuple(f"during {moment.place}" for moment in moments), fold=True, dim=True),
        Column("bytes", "", "bytes", tuple(moment.bytes.evaluate(setting) for moment in moments)),
        Column("expression", "", "code", tuple(text(moment.bytes) for moment in moments), data=True),
    )
    rest, note = f"and {more} more, in --json", f"The first is the peak {where}."
    remark = "bytes of resident storages, without the workspace of kernels"
    return Table(key="peak", title="Peak", remark=remark, columns=columns, top=1 + MORE, rest=rest, note=note)


def _breakdown(found: Symbolic, measure: str, by: str, parts: Parts, names: Names, top: int) -> Table:
    """The parts of a total that are not 0; phases and ops the largest first and those without a formula last."""
    title, unit, _ = quantity(measure)
    setting, whole = found.formulas.defaults, by == "module"
    valued = [(name, expr, None if expr is None else expr.evaluate(setting)) for name, expr in parts.items()]
    if not whole:
        valued.sort(key=lambda part: 1 if part[2] is None else -part[2])
    lines = [Line(name, expr or "no formula", value, unit) for name, expr, value in valued if value != 0]
    inside = "what is inside included; * stands for the numbers of repeated modules"
    remark, most = (inside, None) if whole else (f"the {top} largest" * (by == "op"), top)
    return formula_table(f"{measure}_by_{by}", f"{title} by {by}", lines, names=names, remark=remark, top=most)
