"""Section ``metrics``: the computed metrics of one subject, with units, definitions, and what is not available; section
``layers``: the layer table, and the bytes of results resident at each op; section ``deeplite``: the figures of
deeplite-profiler beside ours, and the reasons that add up to the difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tensortide.measures.compat.figures import Figure, Reason
from tensortide.measures.layers import Layer, Layers
from tensortide.measures.profiler import Profiler
from tensortide.measures.request import Measured
from tensortide.measures.status import Entry, Status
from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Note, Section
from tensortide.reports.of_records import column, fields, table
from tensortide.reports.pictures import Curve, Series
from tensortide.reports.render.values import data_key
from tensortide.reports.sections import Step

FIRST = (
    *("eval_metric", "model_size", "macs", "flops", "total_params", "trainable_params", "activation_peak"),
    *("step_peak", "saved_activations", "execution_time", "inference_time", "step_time"),
)
"""Metrics in the order of rows; ``eval_metric`` stands for all that an evaluation returns. Others follow."""
_PARTS = ("step_peak_", "execution_time_", "step_time_")
"""Beginnings of the names of metrics that detail another one."""


class Part(NamedTuple):
    """A part of the difference of a figure."""

    figure: Figure
    reason: Reason


def document(found: Profiler | Status | Layers) -> Document:
    """Show every metric that was computed, or the layer table."""
    if isinstance(found, Layers):
        meta = found.graph.meta
        return of_layers(found).document(meta.workload, f"by {found.by}", settings=dict(meta.hyperparameters))
    status = found if isinstance(found, Status) else found.status
    extent = "one step" if status.kind == "step" else "an inference forward"
    return of_status(status).document(status.name, f"metrics of {extent}")


def of_measured(found: Measured) -> Document:
    """Show the metrics of a step, under its head, and the tables that were asked for."""
    asked = found.asked
    sections = [of_status(found.metrics, exclude=asked.exclude, long=asked.long)]
    if found.graph is None:
        return sections[0].document(str(asked.target))
    if found.layers is not None:
        sections.append(of_layers(found.layers))
    if found.figures is not None:
        sections.append(of_figures(found.figures))
    return Step(found.graph, found.durations).document(*sections)


def of_status(status: Status, *, exclude: Collection[str] = (), long: bool = False) -> Section:
    """Make the section: metrics in the order ``FIRST``, without those to ``exclude``.

    ``long`` adds the definition of each. Zeros that detail another metric are no rows; what is not available is listed
    with the reason, and every metric in its base unit for data.
    """
    entries = {name: status.entries[name] for name in ordered(status.entries) if name not in exclude}
    known = {name: one for name, one in entries.items() if one.known is not None}
    rows = (_fact(name, one, long) for name, one in known.items() if one.value or not name.startswith(_PARTS))
    missing: dict[str, list[str]] = {}
    for name in (name for name in entries if name not in known):
        missing.setdefault(entries[name].reason, []).append(name)
    reasons = (f"not available: {', '.join(names)} ({reason})" for reason, names in missing.items())
    notes = (Note(text=text, kind="coverage") for text in reasons)
    columns = ("metric.name", "metric.title", "known as value", "metric.unit", "reason")
    values = table(Entry, [*entries.values()], *columns, key="values", top=0, only="text")
    return Section("metrics", "Metrics", blocks=(Facts(rows=tuple(rows)), *notes, values))


def ordered(names: Iterable[str]) -> list[str]:
    """Put names in the order ``FIRST``; the others follow each that they detail, or come last."""

    def rank(name: str) -> int:
        heads = ((name == head or name.startswith((f"{head}[", f"{head}_"))) for head in FIRST)
        return next((place for place, belongs in enumerate(heads) if belongs), len(FIRST))

    return sorted(names, key=rank)


def _fact(name: str, entry: Entry, long: bool) -> Fact:
    metric, batch = entry.metric, entry.options.get("batch_size")
    remarks = [metric.description] if long else []
    if batch and metric.unit in ("flops", "macs"):
        remarks.append(f"batch of {batch}")
    key, level = data_key(name, metric.unit), int(name.startswith(_PARTS))
    return Fact(key, metric.title, entry.known, metric.unit, remark="; ".join(remarks), level=level)


def of_layers(found: Layers) -> Section:
    """Make the section: a row for each op or module, without columns that say nothing; and for ops the bytes of results
    resident at each."""
    rows, titles = found.rows, {name: field.show.title for name, field in fields(Layer).items() if field.show.title}
    if found.by == "module":
        titles["op"] = "Type"
    shown = (name for name in titles if any(getattr(row, name) for row in rows))
    made = (column(Layer, rows, name, label=titles[name]) for name in shown)
    blocks: list[AnyBlock] = [table(Layer, rows, *made, key="layers", heads=2)]
    live = tuple(row.live_bytes for row in rows if row.ops)
    if found.by == "op" and live:
        series = (Series("live", "results", live),)
        blocks.append(Curve(key="live", title="Live bytes", x=tuple(range(len(live) + 1)), x_unit="op", stack=series))
    return Section("layers", f"By {found.by}", blocks=tuple(blocks))


def of_figures(figures: Sequence[Figure]) -> Section:
    """Make the section of deeplite-profiler: a row for each figure, then for each that differs a row for each reason
    and what they leave unexplained, which is 0."""
    names = ("name as figure", "unit", "ours", "theirs", "as_shown", "difference", "ratio")
    blocks: list[AnyBlock] = [table(Figure, figures, *names, key="figures", heads=1)]
    differing = ((one, (*one.reasons, Reason("remainder", one.remainder))) for one in figures if one.reasons)
    if rows := [Part(one, reason) for one, reasons in differing for reason in reasons]:
        parts = ("figure.name as figure", "reason.amount", "reason.text as reason")
        blocks.append(table(Part, rows, *parts, key="reasons", heads=1))
    failures = dict.fromkeys(one.missing.reason for one in figures if one.missing is not None)
    blocks += (Note(text=text, kind="coverage") for text in failures)
    about = "by the definitions of its version 1.2.5, which are not ours"
    return Section("deeplite", "Figures of deeplite-profiler", about, tuple(blocks))
