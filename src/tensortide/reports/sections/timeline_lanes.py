"""Picture of a Timeline of several lanes, predicted or measured: devices, ranks and links, and what runs on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from tensortide.cost.count import phase_of
from tensortide.reports.pictures import Lane, Spans
from tensortide.timelines.events import Kind
from tensortide.timing.collectives.recorded import kind_of

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.timelines.timeline import Timeline


def lanes_of(
    key: str,
    title: str,
    line: Timeline,
    *,
    remark: str = "",
    clock: str = "",
    exchange_lanes: Collection[str] = (),
    only: Literal["", "text", "page", "data"] = "",
) -> Spans:
    """Make the picture. Lanes on which nothing takes time are left out; on ``exchange_lanes``, by name, collectives
    that run together are one run."""
    events, graph = line.events, line.recorded
    lanes = []
    for number, label in enumerate(line.lanes):
        own = (events.lane == number) & (events.kind != Kind.EVICT)
        columns = (events.kind[own], events.index[own], events.start_ns[own], events.end_ns[own])
        rows = [row for row in zip(*(column.tolist() for column in columns), strict=True) if row[3] > row[2]]
        shown = [_named(graph, kind, index) for kind, index, *_ in rows]
        if label in exchange_lanes:
            counts = Counter((start, end) for *_, start, end in rows)
            rows = [(int(Kind.RUN), -1, start, end) for start, end in counts]
            gradients = [f"{count:,} gradient{'s' * (count > 1)}" for count in counts.values()]
            shown = [(f"bucket {i} of {len(counts)}: {each}", "exchange") for i, each in enumerate(gradients, 1)]
        if rows:
            names, kinds = zip(*shown, strict=True)
            starts, ends = tuple(row[2] for row in rows), tuple(row[3] for row in rows)
            lanes.append(Lane(label, starts, ends, names, kinds))
    return Spans(key=key, title=title, remark=remark, x_unit="ns", lanes=tuple(lanes), clock=clock, only=only)


def _named(graph: Graph, kind: int, index: int) -> tuple[str, str]:
    """Name and kind of a transfer of a storage, or of the run of an op: its phase, or how ranks communicate in it."""
    if kind == Kind.SEND:
        return graph.storages[index].name or "activation", "transfer"
    op = graph.ops[index]
    name = graph.calls[op.call].op
    moved = kind_of(name)
    phase = phase_of(op) if moved is None else "transfer" if moved == "send_recv" else "exchange"
    return op.label or name, phase
