"""Pictures of a Timeline of several lanes, predicted or measured: devices, ranks and links, what runs on them, and the
bytes of each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from tensortide.cost.count import phase_of
from tensortide.graph.communication import kind_of
from tensortide.reports.names import storage_texts
from tensortide.reports.pictures import Curve, Series, SpanLane, Spans
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.memory.lifetimes import Ints
    from tensortide.timelines.timeline import Timeline

_MOVES = {Kind.OFFLOAD: "copy", Kind.COPY: "copy", Kind.FETCH: "fetch"}
"""Transfers to tiers and back, as they are called."""


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
    storages = storage_texts(graph) if any((events.kind == kind).any() for kind in _MOVES) else []
    lanes = []
    for number, label in enumerate(line.lanes):
        own = (events.lane == number) & (events.kind != Kind.EVICT)
        columns = (events.kind[own], events.index[own], events.start_ns[own], events.end_ns[own])
        rows = [row for row in zip(*(column.tolist() for column in columns), strict=True) if row[3] > row[2]]
        shown = [_named(graph, storages, kind, index) for kind, index, *_ in rows]
        if label in exchange_lanes:
            counts = Counter((start, end) for *_, start, end in rows)
            rows = [(int(Kind.RUN), -1, start, end) for start, end in counts]
            gradients = [f"{count:,} gradient{'s' * (count > 1)}" for count in counts.values()]
            shown = [(f"bucket {i} of {len(counts)}: {each}", "exchange") for i, each in enumerate(gradients, 1)]
        if rows:
            names, kinds = zip(*shown, strict=True)
            starts, ends = tuple(row[2] for row in rows), tuple(row[3] for row in rows)
            lanes.append(SpanLane(label, starts, ends, names, kinds))
    return Spans(key=key, title=title, remark=remark, x_unit="ns", lanes=tuple(lanes), clock=clock, only=only)


def memory_of(devices: Sequence[str], levels: Sequence[tuple[Ints, Ints]], end_ns: int) -> Iterator[Curve]:
    """Draw the bytes of each device over time, from the times at which they change and the bytes from each on."""
    import numpy as np

    times = np.unique(np.concatenate([[0], *(moments for moments, _ in levels)]))
    times = times[times < end_ns]
    stack = []
    for name, (moments, level) in zip(devices, levels, strict=True):
        if len(level):
            at = np.searchsorted(moments, times, side="right") - 1
            stack.append(Series(name, name, tuple(np.where(at >= 0, level[np.maximum(at, 0)], 0).tolist())))
    if len(times):
        edges, title = (*times.tolist(), end_ns), "Memory, the devices stacked"
        yield Curve(key="memory", title=title, x=edges, x_unit="ns", stack=tuple(stack), clock="step")


def _named(graph: Graph, storages: Sequence[str], kind: int, index: int) -> tuple[str, str]:
    """Name and kind of a transfer of a storage, or of the run of an op: its phase, or how ranks communicate in it."""
    if kind == Kind.SEND:
        return graph.storages[index].name or "activation", "transfer"
    if move := _MOVES.get(Kind(kind)):
        return f"{move} {storages[index]}", move
    op = graph.ops[index]
    name = graph.calls[op.call].op
    moved = kind_of(name)
    phase = phase_of(op) if moved is None else "transfer" if moved == "send_recv" else "exchange"
    return op.label or name, phase
