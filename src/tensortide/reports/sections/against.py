"""Section ``against``: the step predicted for a machine and the same step measured, as a whole and by kind of op."""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table
from tensortide.reports.sections.predicted_times import ends_ns, interval_text
from tensortide.timelines import Timeline, mean_times
from tensortide.timelines.step import StepTimeline
from tensortide.timing.durations import Sample
from tensortide.units import format_seconds

__all__ = ["section"]

MOST_KINDS = 20
"""Kinds of op that are listed."""


def section(predicted: StepTimeline, measured: Timeline, machine: str, step: Sample | None) -> Section:
    """Show the step ``predicted`` for ``machine`` and the same ``measured``, of which ``step`` is the whole.

    Differences are predicted less measured, shares of the measured time.
    """
    a, b = mean_times([predicted]), mean_times([measured])
    whole = _whole(predicted, sum(a.values()), sum(b.values()), step)
    title, first, second, error = (column.values[0] for column in whole.columns[:4])
    assert isinstance(first, int)
    assert isinstance(second, int)
    text = f"{title}: {_time(first)} predicted for {machine}, {_time(second)} measured"
    text += "" if not isinstance(error, float) else f": the prediction is off by {100 * error:+z.1f} %"
    blocks: tuple[AnyBlock, ...] = (Note(text=text, kind="verdict"), whole, _kinds(a, b))
    return Section("against", f"Predicted for {machine} and measured", blocks=blocks)


def _whole(predicted: StepTimeline, ops_a: int, ops_b: int, step: Sample | None) -> Table:
    """The step, where it was measured as a whole, and the sum of its ops."""
    estimates = ([] if step is None else [predicted.estimate]) + [predicted.ops]
    a = ([] if step is None else [round(predicted.estimate.time_ns)]) + [ops_a]
    b = ([] if step is None else [step.median_ns]) + [ops_b]
    intervals = tuple(interval_text(one) for one in estimates)
    ends = [ends_ns(one) for one in estimates]
    columns = (
        Column("figure", "Figure", "text", ("Step", "Op sum")[step is None :]),
        Column("predicted", "predicted", "ns", tuple(a)),
        Column("measured", "measured", "ns", tuple(b)),
        Column("error", "off by", "change", tuple(p / q - 1 if q else None for p, q in zip(a, b, strict=True))),
        Column("interval", "8 of 10 cases", "text", intervals),
        Column("low", "", "ns", tuple(low for low, _ in ends), data=True),
        Column("high", "", "ns", tuple(high for _, high in ends), data=True),
    )
    return Table(key="whole", columns=columns)


def _kinds(first: Mapping[str, int], second: Mapping[str, int]) -> Table:
    """The kinds of op whose time differs most."""
    sums = [(name, first.get(name, 0), second.get(name, 0)) for name in dict.fromkeys([*first, *second])]
    rows = sorted(sums, key=lambda row: -abs(row[1] - row[2]))
    columns = (
        Column("op", "Op", "name", tuple(name for name, _, _ in rows), fold=True),
        Column("predicted", "predicted", "ns", tuple(a for _, a, _ in rows)),
        Column("measured", "measured", "ns", tuple(b for _, _, b in rows)),
        Column("difference", "difference", "ns", tuple(a - b for _, a, b in rows)),
        Column("error", "off by", "change", tuple(a / b - 1 if b else None for _, a, b in rows)),
    )
    rest, remark = (
        f"and {len(rows) - MOST_KINDS} more kinds of op",
        "predicted less measured; largest difference first",
    )
    return Table(key="kinds", title="By op", remark=remark, columns=columns, top=MOST_KINDS, rest=rest)


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)
