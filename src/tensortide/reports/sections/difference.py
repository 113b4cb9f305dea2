"""Section ``difference``: two Timelines of one step side by side, such as predicted and measured."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.reports.blocks import AnyBlock, Column, Curve, Document, Fact, Section, Series, Table, UnitName
from tensortide.reports.sections.beside import facts_table
from tensortide.timelines import Difference, Figures

__all__ = ["document", "figures_table", "section"]

ROWS: tuple[tuple[str, str, UnitName], ...] = (
    ("peak_bytes", "Peak", "bytes"),
    ("evictions", "Evictions", "count"),
    ("recomputations", "Recomputed ops", "count"),
    ("base_ns", "Time of the step's own ops", "ns"),
    ("recompute_ns", "Time of recomputed ops", "ns"),
    ("slowdown", "Slowdown", "factor"),
)
KINDS = 20
"""Kinds of op that are listed."""
POINTS = 480
"""Most entries of the curve."""


def document(found: Difference) -> Document:
    """Show the figures of both Timelines, the ops whose time differs most, and the bytes resident over the step."""
    meta = found.a.recorded.meta
    return Document(
        title=meta.workload,
        settings=dict(meta.hyperparameters),
        sections=(section(found, found.a.figures, found.b.figures),),
    )


def section(
    found: Difference, a: Figures, b: Figures, *, names: tuple[str, str] = ("predicted", "measured")
) -> Section:
    """The section of ``found``; ``a`` and ``b`` are the figures to show, such as means over several steps."""
    title = f"{names[0].capitalize()} and {names[1]}"
    blocks: tuple[AnyBlock, ...] = (figures_table(a, b, names), *_kinds(found, names), *_curve(found, names))
    return Section("difference", title, blocks=blocks)


def figures_table(a: Figures, b: Figures, names: tuple[str, str]) -> Table:
    """Two Timelines in numbers: a row per figure."""
    first, second = ([Fact(key, label, getattr(side, key), unit) for key, label, unit in ROWS] for side in (a, b))
    return facts_table(first, second, names, title="One step")


def _kinds(found: Difference, names: tuple[str, str]) -> Iterator[Table]:
    """The kinds of op whose time differs most."""
    if not (found.a.timed and found.b.timed):
        return
    graph, sums = found.a.recorded, dict[str, list[int]]()
    for side, line, runs in ((0, found.a, found.a_run), (1, found.b, found.b_run)):
        for op, ns in zip(line.run_op[runs].tolist(), line.run_ns[runs].tolist(), strict=True):
            if op >= 0:
                sums.setdefault(graph[op].name, [0, 0])[side] += ns
    rows = sorted(sums.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    yield Table(
        key="kinds",
        title="By op",
        remark="largest difference first; runs that both have",
        columns=(
            Column("op", "Op", "name", tuple(name for name, _ in rows), fold=True),
            Column("a", names[0], "ns", tuple(pair[0] for _, pair in rows)),
            Column("b", names[1], "ns", tuple(pair[1] for _, pair in rows)),
            Column("difference", "difference", "ns", tuple(pair[1] - pair[0] for _, pair in rows)),
        ),
        top=KINDS,
        rest=f"and {len(rows) - KINDS} more kinds of op" if len(rows) > KINDS else "",
    )


def _curve(found: Difference, names: tuple[str, str]) -> Iterator[Curve]:
    """Bytes resident during the runs that both have, over the op numbers of the first."""
    count = len(found.a_run)
    if not count:
        return
    at = [count * i // POINTS for i in range(POINTS)] if count > POINTS else list(range(count))
    series = [
        Series(key, name, tuple(line.resident[runs][at].tolist()))
        for key, name, line, runs in (("a", names[0], found.a, found.a_run), ("b", names[1], found.b, found.b_run))
    ]
    edges = (*at, count)
    yield Curve(key="resident", title="Resident bytes", x=edges, x_unit="op", stack=(series[0],), lines=(series[1],))
