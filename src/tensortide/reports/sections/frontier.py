"""Section ``frontier``: how much time each saving of memory costs at least, from the least memory to no budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.graph import Graph
from tensortide.plans.under_budget.planned import Frontier, Planned
from tensortide.reports.blocks import AnyBlock, Column, Document, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.sections.assumed import brief
from tensortide.units import format_bytes, format_percent

__all__ = ["document", "section"]

_MOST_RIVALS = 6
"""Rivals that the picture names."""


def document(found: Frontier, graph: Graph, *, source: str = "") -> Document:
    """Show ``found``, planned for ``graph`` with times from ``source``."""
    device = found.points[0].device if found.points else graph.index.main_device
    where = f"{len(graph):,} ops on {device}" + (f"; times: {source}" if source else "")
    return section(found, graph).document(graph.meta.workload, where, settings=graph.meta.hyperparameters)


def section(found: Frontier, graph: Graph) -> Section:
    """Make the section of ``found``."""
    fitting = [point for point in found.points if point.status == "fits"]
    blocks: list[AnyBlock] = [Note(text=text, kind="verdict") for text in _verdict(found, fitting)]
    blocks.append(_table(found))
    if fitting:
        blocks.append(_picture(found, fitting))
    blocks.append(Facts(rows=tuple(data_facts("count", knee=found.knee))))
    blocks += brief(graph)
    return Section("frontier", "Time against memory", blocks=tuple(blocks))


def _verdict(found: Frontier, fitting: Sequence[Planned]) -> Iterator[str]:
    if not fitting:
        yield "No plan was found for any budget."
        return
    first, knee = fitting[0], found.points[found.knee]
    yield (
        f"From {_bytes(first)} (+{format_percent(first.extra or 0.0)} time) to {_bytes(fitting[-1])} without a budget. "
        f"Good value: {_bytes(knee)} for +{format_percent(knee.extra or 0.0)}."
    )


def _bytes(point: Planned) -> str:
    return format_bytes(point.peak_bytes or 0)


def _table(found: Frontier) -> Table:
    points = found.points
    marks = tuple(" <" if number == found.knee else "" for number in range(len(points)))
    whole = max((point.recorded_peak_bytes for point in points), default=0)
    bounds: tuple[Value, ...] = tuple(p.bound_ns / p.base_ns - 1 if p.base_ns else None for p in points)
    columns = (
        Column("budget", "Budget", "bytes", tuple(p.budget_bytes for p in points), after=marks),
        Column("ratio", "of peak", "share", tuple(p.budget_bytes / whole if whole else None for p in points)),
        Column("peak", "Peak", "bytes", tuple(p.peak_bytes for p in points)),
        Column("time", "Step", "ns", tuple(p.time_ns for p in points), at_width=90),
        Column("extra", "Time added", "share", tuple(p.extra for p in points)),
        Column("bound", "at least", "share", bounds),
        Column("gap", "Gap", "share", tuple(p.gap for p in points)),
        Column("source", "Found by", "text", tuple(p.source or p.status for p in points), fold=True),
    )
    note = "<: the budget from which on less memory costs much more time." if any(marks) else ""
    return Table(key="points", title="The fastest plan under each budget", columns=columns, note=note, heads=2)


def _picture(found: Frontier, fitting: Sequence[Planned]) -> Scatter:
    """Time added over peak bytes: the plans, what none can beat, and the plans that were known before."""
    at = tuple(point.peak_bytes or 0 for point in fitting)
    extra = tuple(p.extra or 0.0 for p in fitting)
    edges = tuple(p.budget_bytes for p in fitting)
    bounds = tuple(p.bound_ns / p.base_ns - 1 if p.base_ns else 0.0 for p in fitting)
    next_bounds = (*bounds[1:], bounds[-1])  # a bound holds for its budget and below, a plan for its peak and above
    ours = Points("plan", at, extra, joined="step", low=next_bounds, high=extra)
    bound = Points("no plan is below", (edges[0], *edges), (bounds[0], *next_bounds), joined="step")
    knee = found.points[found.knee]
    return Scatter(
        key="frontier",
        title="Time against memory",
        x=Axis("Peak memory", "bytes"),
        y=Axis("Time added", "share"),
        points=(ours, bound, *_rivals(found)),
        down=(Limit("good value", knee.peak_bytes or 0),),
    )


def _rivals(found: Frontier) -> Iterator[Points]:
    """Those known before that fit the most budgets."""
    seen: dict[str, dict[int, float]] = {}
    for point in found.points:
        for rival in point.rivals:
            if not rival.reason and rival.time_ns is not None and rival.peak_bytes is not None and point.base_ns:
                seen.setdefault(rival.name, {})[rival.peak_bytes] = rival.time_ns / point.base_ns - 1
    for name, plans in sorted(seen.items(), key=lambda item: -len(item[1]))[:_MOST_RIVALS]:
        peaks = sorted(plans)
        yield Points(name, tuple(peaks), tuple(plans[peak] for peak in peaks))
