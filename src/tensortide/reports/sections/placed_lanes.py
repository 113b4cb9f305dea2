"""Picture of a placed step, predicted or measured: a lane for each device and link, and what runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.reports.names import phase_of
from tensortide.reports.pictures import Lane, Spans
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.timelines.timeline import Timeline

__all__ = ["lanes_of"]


def lanes_of(key: str, title: str, line: Timeline, *, clock: str = "") -> Spans:
    """Make the picture. Lanes on which nothing takes time are left out."""
    events, graph = line.events, line.recorded
    lanes = []
    for number, label in enumerate(line.lanes):
        own = (events.lane == number) & (events.kind != Kind.EVICT)
        columns = (events.kind[own], events.index[own], events.start_ns[own], events.end_ns[own])
        rows = [row for row in zip(*(column.tolist() for column in columns), strict=True) if row[3] > row[2]]
        names, kinds = [], []
        for kind, index, *_ in rows:
            sent = kind == Kind.SEND
            kinds.append("transfer" if sent else phase_of(graph.ops[index]))
            names.append(
                (graph.storages[index].name or "activation") if sent else graph.calls[graph.ops[index].call].op
            )
        if rows:
            starts, ends = tuple(row[2] for row in rows), tuple(row[3] for row in rows)
            lanes.append(Lane(label, starts, ends, tuple(names), tuple(kinds)))
    return Spans(key=key, title=title, x_unit="ns", lanes=tuple(lanes), clock=clock)
