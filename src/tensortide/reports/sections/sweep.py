"""Section ``sweep``: the totals of a step over ranges of its hyperparameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tensortide.errors import ExpressionError
from tensortide.formulas.quantities import quantity, ranked
from tensortide.formulas.sweep import Sweep
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.pictures import Axis, Points, Scatter
from tensortide.reports.sections.formula_table import without_workspace

__all__ = ["check_drawable", "document"]

PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Parameters", ("parameters",)),
    ("FLOPs of a step", ("flops",)),
    ("Bytes accessed", ("bytes",)),
    ("Memory", ("peak_bytes", "footprint_bytes", "minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")),
)
LINES = 7
"""Most combinations of other symbols that one panel tells apart."""
WIDE = 20
"""An axis that spans more than this factor is logarithmic."""
WIDTH = 14
"""Terminal columns that a total takes at the most."""
SAID = {"outside": "outside the region, which needs", "threshold": "", "extrapolated": "extrapolated in"}
"""Remarks of a point, with the words between it and them."""
NOTES = 3
"""Remarks of one kind that are shown."""


def document(sweep: Sweep) -> Document:
    """Show one row per point, and the totals against the first swept symbol."""
    blocks: list[AnyBlock] = [_points(sweep), *_panels(sweep)]
    for name, what in SAID.items():
        said = Counter(text for point in sweep.points if (text := getattr(point, name)))
        for text, count in said.most_common(NOTES):
            points = f"{count} point{'s are' if count > 1 else ' is'}"
            blocks.append(Note(text=" ".join(filter(None, (points, what, text))), kind="warning"))
        if len(said) > NOTES:
            blocks.append(Note(text=f"and {len(said) - NOTES} more remarks, in --json and --csv", kind="warning"))
    made = Section("sweep", "Sweep", blocks=(*blocks, *without_workspace(sweep.totals)))
    return made.document(sweep.workload or "formulas", f"over {', '.join(sweep.over)}", settings=sweep.fixed)


def _points(sweep: Sweep) -> Table:
    names = ranked(sweep.totals)
    remarks = tuple(_remarks(sweep))
    taken = WIDTH * (len(sweep.over) + sum(not column.data for column in remarks))
    totals = (
        Column(name, title, unit, tuple(sweep.column(name)), at_width=taken + WIDTH * place)
        for place, (name, (title, unit, _)) in enumerate(zip(names, map(quantity, names), strict=True), 1)
    )
    return Table(
        key="points",
        title="Points",
        columns=(
            *(Column(name, name, "count", tuple(sweep.column(name))) for name in sweep.over),
            *totals,
            *remarks,
        ),
    )


def _remarks(sweep: Sweep) -> Iterator[Column]:
    """Say of each point in a word where the formulas that it has are from; data have it in full."""
    words = {"outside": "no formulas", "threshold": "past threshold", "extrapolated": "extrapolated"}
    short = tuple(", ".join(word for name, word in words.items() if getattr(p, name)) for p in sweep.points)
    if any(short):
        yield Column("remark", "", "text", short)
    for name in ("outside", "threshold", "extrapolated"):
        yield Column(name, "", "text", tuple(getattr(point, name) for point in sweep.points), data=True)


def check_drawable(sweep: Sweep) -> None:
    """Raise ExpressionError if a figure of ``sweep`` would show nothing, or too many lines."""
    lines = len({point.at[1:] for point in sweep.points})
    if lines > LINES:
        raise ExpressionError(f"{lines} lines are too many to tell apart: sweep the other symbols less densely")
    if not any(_panels(sweep)):
        raise ExpressionError("there is nothing to draw: no total changes over the sweep, where the formulas hold")


def _panels(sweep: Sweep) -> Iterator[Scatter]:
    """The totals that change, against the first swept symbol: a line for every combination of the others."""
    series = sorted({point.at[1:] for point in sweep.points})
    if len(series) > LINES:
        return
    for title, names in PANELS:
        changing = [n for n in names if n in sweep.totals and len({*sweep.column(n)} - {None}) > 1]
        if not changing:
            continue
        lines = [
            _line(sweep, n, others, len(series) > 1) for n in changing[: 1 if series[1:] else 3] for others in series
        ]
        y = [value for line in lines for value in line.y if value]
        x = Axis(sweep.over[0], "count", log=_wide([value for line in lines for value in line.x]))
        yield Scatter(
            key=changing[0], title=title, x=x, y=Axis("", quantity(changing[0]).unit, log=_wide(y)), points=tuple(lines)
        )


def _line(sweep: Sweep, name: str, others: tuple[int, ...], several: bool) -> Points:
    values = zip(sweep.points, sweep.column(name), strict=True)
    rows = [(point.at[0], value) for point, value in values if point.at[1:] == others and value is not None]
    named = ", ".join(f"{n}={v}" for n, v in zip(sweep.over[1:], others, strict=True))
    label = named if several else quantity(name).title
    return Points(label, tuple(x for x, _ in rows), tuple(y for _, y in rows), joined="line")


def _wide(values: list[int | float]) -> bool:
    known = [value for value in values if value > 0]
    return bool(known) and max(known) / min(known) > WIDE
