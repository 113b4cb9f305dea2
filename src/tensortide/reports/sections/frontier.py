"""Section ``frontier``: how much time each saving of memory costs at least, from the least memory to no budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tensortide.graph import Graph
from tensortide.plans.planned import Frontier, Planned
from tensortide.plans.under_budget.known import Kind
from tensortide.reports.blocks import AnyBlock, Document, Note, Section
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.planned import origin
from tensortide.units import format_bytes, format_percent

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
FIGURES = ("peak_bytes", "step_ns", "extra_share", "bound_share", "gap_share", "found_by")


def of_frontier(found: Frontier) -> Document:
    """Show ``found`` for the step that was planned."""
    assert found.step is not None
    return document(found, found.step.graph, source=found.step.source)


def document(found: Frontier, graph: Graph, *, source: str = "", budget_bytes: int | None = None) -> Document:
    """Show ``found``, planned for ``graph`` with times from ``source``; the picture has ``budget_bytes`` as a line."""
    points, meta = found.points, graph.meta
    fitting = [point for point in points if point.status == "fits"]
    blocks: list[AnyBlock] = [Note(text=_verdict(found, fitting), kind="verdict")]
    if fitting:
        blocks.append(_picture(found, fitting, budget_bytes))
    marks = tuple(" <" if number == found.knee else "" for number in range(len(points)))
    blocks.append(
        table(
            Planned,
            points,
            *(column(Planned, points, "budget_bytes", after=marks), "budget_share", *FIGURES),
            key="points",
            title="The fastest plan under each budget",
            note="<: the budget from which on less memory costs much more time." if any(marks) else "",
            heads=2,
        )
    )
    section = Section("frontier", "Time against memory", blocks=(*blocks, facts(found, "knee"), *brief(graph)))
    where = origin(graph, points[0].device if points else graph.index.main_device, source)
    return section.document(meta.workload, where, settings=meta.hyperparameters)


def _verdict(found: Frontier, fitting: Sequence[Planned]) -> str:
    if not fitting:
        return "No plan was found for any budget."
    first, last, knee = fitting[0], fitting[-1], found.points[found.knee]
    return (
        f"From {_bytes(first)} (+{format_percent(_extra(first))} time) to {_bytes(last)} without a budget. "
        f"Good value: {_bytes(knee)} for +{format_percent(_extra(knee))}."
    )


def _bytes(point: Planned) -> str:
    return format_bytes(point.peak_bytes or 0)


def _extra(point: Planned) -> float:
    return point.extra_share or 0.0


def _picture(found: Frontier, fitting: Sequence[Planned], budget_bytes: int | None) -> Scatter:
    """Time added over peak bytes: the fastest plan known for each peak, what none can beat, and where both are from."""
    bounds, edges = tuple(p.bound_share or 0.0 for p in fitting), tuple(p.budget_bytes for p in fitting)
    peaks, extra = tuple(p.peak_bytes or 0 for p in fitting), tuple(map(_extra, fitting))
    knee = found.points[found.knee]
    name = f"good value: {_bytes(knee)}, +{format_percent(_extra(knee))}"
    rivals = dict(_rivals(found))
    best = _best([*zip(peaks, extra, strict=True), *(place for plans in rivals.values() for place in plans)])
    x = sorted({*(nbytes for nbytes, _ in best), *(edge for edge in edges if edge >= best[0][0])})
    y = tuple(min(extra for nbytes, extra in best if nbytes <= peak) for peak in x)
    low = tuple(bounds[min(bisect_right(edges, peak), len(edges) - 1)] for peak in x)
    known, between = "fastest plan known, of any kind", "gap: faster plans may exist"
    names = tuple(name if p is knee else "" for p in fitting)
    return Scatter(
        key="frontier",
        title="What memory costs in time",
        x=Axis("Peak memory", "bytes", whole=max(point.recorded_peak_bytes for point in fitting)),
        y=Axis("Time added to the step", "share"),
        points=(
            Points(known, tuple(x), y, "step", low=low, high=y, between=between),
            # a bound holds for its budget and below
            Points("no plan is below (proved)", (edges[0], *edges), (bounds[0], *bounds[1:], bounds[-1]), "step"),
            Points("our plan for each budget", peaks, extra, names=names, tagged=True),
            *(_points(kind, plans) for kind, plans in rivals.items()),
        ),
        down=() if budget_bytes is None else (Limit(f"budget, {format_bytes(budget_bytes)}", budget_bytes),),
    )


def _best(places: Iterable[Place]) -> list[Place]:
    """The places that have least time of all that need no more memory."""
    kept: list[Place] = []
    for place in sorted(places):
        if not kept or place[1] < kept[-1][1]:
            kept.append(place)
    return kept


def _rivals(found: Frontier) -> Iterator[tuple[str, dict[Place, str]]]:
    """Yield by kind the names of plans that were known before, where no other of the kind needs less of both."""
    seen: dict[str, dict[Place, str]] = {}
    for point in found.points:
        for rival in point.rivals:
            extra = point.extra_of(rival.step_ns)
            if rival.kind in RIVALS and extra is not None and rival.peak_bytes is not None:
                name = f"policy {rival.name}" if rival.kind == "online policy" else rival.name
                seen.setdefault(RIVALS[rival.kind], {})[rival.peak_bytes, extra] = name
    most = MOST_EXTRA * max(0.1, *map(_extra, found.points))
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
