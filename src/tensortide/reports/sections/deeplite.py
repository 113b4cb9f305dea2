"""Section ``deeplite``: the figures of deeplite-profiler beside ours, and the reasons that add up to the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.metrics.compat.figures import Amount, Figure
from tensortide.metrics.metric import Missing
from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table

__all__ = ["of_figures"]


def of_figures(figures: Sequence[Figure]) -> Section:
    """Make the section: a row for each figure, then a row for each reason, with the remainder, which is 0."""
    return Section(
        "deeplite",
        "Figures of deeplite-profiler",
        about="by the definitions of its version 1.2.5, which are not ours",
        blocks=(_figures(figures), *_reasons(figures), *_failures(figures)),
    )


def _figures(figures: Sequence[Figure]) -> Table:
    columns = (
        Column("figure", "Figure", "text", tuple(figure.name for figure in figures)),
        Column("unit", "In", "text", tuple(figure.unit for figure in figures)),
        Column("ours", "Ours", "count", tuple(figure.ours for figure in figures)),
        Column("theirs", "Theirs", "count", tuple(_number(figure.theirs) for figure in figures)),
        Column("shown", "As shown there", "text", tuple(_shown(figure) for figure in figures)),
        Column("difference", "Difference", "count", tuple(_number(figure.difference) for figure in figures)),
        Column("ratio", "Ratio", "number", tuple(figure.ratio for figure in figures)),
    )
    return Table(key="figures", columns=columns, heads=1)


def _shown(figure: Figure) -> str:
    return "not available" if figure.shown is None else f"{figure.shown:.10g} {figure.shown_unit}"


def _reasons(figures: Sequence[Figure]) -> Iterator[Table]:
    """The reasons of every figure that differs, each followed by what they leave unexplained."""
    rows: list[tuple[str, str, Amount]] = []
    for figure in figures:
        rows += [(figure.name, reason.text, reason.amount) for reason in figure.reasons]
        if figure.reasons:
            rows.append((figure.name, "remainder", figure.remainder))
    if rows:
        names, texts, amounts = zip(*rows, strict=True)
        columns = (
            Column("figure", "Figure", "text", names),
            Column("amount", "Amount", "count", tuple(map(_number, amounts))),
            Column("reason", "Reason for the difference", "text", texts, fold=True),
        )
        yield Table(key="reasons", columns=columns, heads=1)


def _failures(figures: Sequence[Figure]) -> Iterator[AnyBlock]:
    for text in dict.fromkeys(figure.theirs.reason for figure in figures if isinstance(figure.theirs, Missing)):
        yield Note(text=text, kind="coverage")


def _number(amount: Amount | Missing | None) -> int | float | None:
    if amount is None or isinstance(amount, Missing):
        return None
    return amount if isinstance(amount, int) else float(amount)
