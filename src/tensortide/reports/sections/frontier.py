"""Section ``frontier``: how much time each saving of memory costs at least, from the least memory to no budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tensortide.graph import Graph
from tensortide.plans.planned import Frontier, Planned
from tensortide.plans.under_budget.known import Kind
from tensortide.reports.blocks import AnyBlock, Column, Document, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.planned import origin
from tensortide.units import format_bytes, format_percent

__all__ = ["document", "section"]

Place: TypeAlias = "tuple[int, float]"
"""Bytes at the peak, and time added as a share."""
RIVALS: dict[Kind, str] = {
    "modules": "per-block checkpointing",
    "partitioner": "PyTorch's partitioner",
    "static plan": "static plan",
    "online policy": "online policy",
}
"""Kinds of plans that were known before, and their names in the picture, in this order."""
NAMED = 3
"""Plans of a kind that the picture names."""
MOST_EXTRA = 1.5
"""Rivals that take so many times the time of the slowest plan are outside of the picture."""


def document(found: Frontier, graph: Graph, *, source: str = "", budget_bytes: int | None = None) -> Document:
    """Show ``found``, planned for ``graph`` with times from ``source``; the picture has ``budget_bytes`` as a line."""
    device = found.points[0].device if found.points else graph.index.main_device
    where = origin(graph, device, source)
    return section(found, graph, budget_bytes).document(graph.meta.workload, where, settings=graph.meta.hyperparameters)


def section(found: Frontier, graph: Graph, budget_bytes: int | None = None) -> Section:
    """Make the section alone."""
    fitting = [point for point in found.points if point.status == "fits"]
    blocks: list[AnyBlock] = [Note(text=text, kind="verdict") for text in _verdict(found, fitting)]
    if fitting:
        blocks.append(_picture(found, fitting, budget_bytes))
    blocks += [_table(found), Facts(rows=tuple(data_facts("count", knee=found.knee)))]
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
        Column("source", "Found by", "text", tuple(map(_source, points)), fold=True),
    )
    note = "<: the budget from which on less memory costs much more time." if any(marks) else ""
    return Table(key="points", title="The fastest plan under each budget", columns=columns, note=note, heads=2)


def _source(point: Planned) -> str:
    """Return where a plan is from: a search, or the budget above it in the table."""
    given = any(rival.kind == "given" and rival.name == point.source for rival in point.rivals)
    return "as above" if given else point.source or point.status


def _picture(found: Frontier, fitting: Sequence[Planned], budget_bytes: int | None) -> Scatter:
    """Time added over peak bytes: the fastest plan known for each peak, what none can beat, and where both are from."""
    bounds = tuple(_over(p, p.bound_ns) for p in fitting)
    edges = tuple(p.budget_bytes for p in fitting)
    knee = found.points[found.knee]
    names = tuple(f"good value: {_price(p)}" if p is knee else "" for p in fitting)
    peaks, extra = tuple(p.peak_bytes or 0 for p in fitting), tuple(p.extra or 0.0 for p in fitting)
    rivals = list(_rivals(found))
    known = [*zip(peaks, extra, strict=True), *(place for _, plans in rivals for place in plans)]
    best = _best(known)
    x = sorted({*(nbytes for nbytes, _ in best), *(edge for edge in edges if edge >= best[0][0])})
    y = tuple(min(extra for nbytes, extra in best if nbytes <= peak) for peak in x)
    low = tuple(bounds[min(bisect_right(edges, peak), len(edges) - 1)] for peak in x)
    limits = () if budget_bytes is None else (Limit(f"budget, {format_bytes(budget_bytes)}", budget_bytes),)
    return Scatter(
        key="frontier",
        title="What memory costs in time",
        x=Axis("Peak memory", "bytes", whole=max(point.recorded_peak_bytes for point in fitting)),
        y=Axis("Time added to the step", "share"),
        points=(
            Points(
                "fastest plan known, of any kind",
                tuple(x),
                y,
                "step",
                low=low,
                high=y,
                between="gap: faster plans may exist",
            ),
            # a bound holds for its budget and below
            Points("no plan is below (proved)", (edges[0], *edges), (bounds[0], *bounds[1:], bounds[-1]), "step"),
            Points("our plan for each budget", peaks, extra, names=names, tagged=True),
            *(_points(kind, plans) for kind, plans in rivals),
        ),
        down=limits,
    )


def _over(point: Planned, ns: int) -> float:
    return ns / point.base_ns - 1 if point.base_ns else 0.0


def _best(places: Iterable[Place]) -> list[Place]:
    """The places that have least time of all that need no more memory."""
    kept: list[Place] = []
    for place in sorted(places):
        if not kept or place[1] < kept[-1][1]:
            kept.append(place)
    return kept


def _price(point: Planned) -> str:
    return f"{_bytes(point)}, +{format_percent(point.extra or 0.0)}"


def _rivals(found: Frontier) -> Iterator[tuple[str, dict[Place, str]]]:
    """Yield by kind the names of plans that were known before, where no other of the kind needs less of both."""
    seen: dict[str, dict[Place, str]] = {}
    for point in found.points:
        for rival in point.rivals:
            if rival.kind in RIVALS and rival.time_ns is not None and rival.peak_bytes is not None:
                name = f"policy {rival.name}" if rival.kind == "online policy" else rival.name
                seen.setdefault(RIVALS[rival.kind], {})[rival.peak_bytes, _over(point, rival.time_ns)] = name
    most = MOST_EXTRA * max(0.1, *(point.extra or 0.0 for point in found.points))
    for kind in RIVALS.values():
        plans = seen.get(kind, {})
        if kept := [place for place in _best(plans) if place[1] <= most]:
            yield kind, {place: plans[place] for place in kept}


def _points(kind: str, plans: dict[Place, str]) -> Points:
    """Plans of one kind, of which a few are named: the first of each name."""
    x, y = zip(*plans, strict=True)
    every = tuple(plans.values())
    named = list(dict.fromkeys(every))[:NAMED]
    names = tuple(name if name in named and name not in every[:i] else "" for i, name in enumerate(every))
    return Points(kind, x, y, names=names, tagged=True)
