"""Spans and Curves as a Chrome trace, for Perfetto and chrome://tracing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

from tensortide.reports.blocks import Curve, Document, Series, Spans, Table
from tensortide.reports.render.csv import tables
from tensortide.reports.render.json import encode
from tensortide.reports.render.values import data_key

__all__ = ["render_trace"]

Event: TypeAlias = dict[str, Any]

OP_TIME = "The time axis is the index of the op: 1 us per op. Durations are not known."


def render_trace(document: Document) -> bytes:
    """Write every Spans block as processes with a thread per lane, and every Curve as counters.

    Blocks over op numbers take 1 us per op.
    """
    events: list[Event] = []
    every = tables(document)
    blocks = [(section, block) for section in document.sections for block in section.blocks]
    processes = itertools.count(1)
    indexed = False
    for section, block in blocks:
        if isinstance(block, Spans):
            anywhere = (one for one in every.values() if one.key == block.table)
            table = every.get(f"{section.key}.{block.table}") or next(anywhere, None)
            events += _spans(block, table, processes)
        elif isinstance(block, Curve):
            events += _curve(block)
        indexed |= isinstance(block, Spans | Curve) and block.x_unit == "op"
    events.sort(key=lambda event: (event.get("ts", -1), -event.get("dur", 0)))
    about = {"title": document.title, "subtitle": "\n".join(document.subtitle)}
    if indexed:
        about["time_axis"] = OP_TIME
    return encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def _spans(spans: Spans, table: Table | None, processes: Iterator[int]) -> Iterator[Event]:
    unit = 1 if spans.x_unit == "op" else 1000
    named = [lane.group or spans.title or spans.key for lane in spans.lanes]
    groups = {group: next(processes) for group in dict.fromkeys(named)}
    for group, process in groups.items():
        yield _name("process_name", process, 0, group)
    for thread, lane in enumerate(spans.lanes):
        process = groups[named[thread]]
        yield _name("thread_name", process, thread, lane.label)
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}
        for i, (start, end) in enumerate(zip(lane.start, lane.end, strict=True)):
            event: Event = {
                "ph": "X",
                "name": lane.names[i] if lane.names else lane.label,
                "pid": process,
                "tid": thread,
                "ts": start / unit,
                "dur": (end - start) / unit,
            }
            if lane.kinds:
                event["cat"] = lane.kinds[i]
            if table is not None and lane.rows:
                event["args"] = {data_key(one.key, one.unit): one.values[lane.rows[i]] for one in table.columns}
            yield event


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _curve(curve: Curve) -> Iterator[Event]:
    """Write the stack as one counter of several values, its total and each line as counters of their own."""
    title = curve.title or curve.key
    total = Series("total", title, tuple(curve.totals()))
    yield from _counter(f"{title} by part", curve, curve.stack)
    yield from _counter(title, curve, (total,))
    for line in curve.lines:
        yield from _counter(line.label, curve, (line,))


def _counter(name: str, curve: Curve, series: tuple[Series, ...]) -> Iterator[Event]:
    """Write values wherever they change, and zero at the end."""
    unit = 1 if curve.x_unit == "op" else 1000
    entries = [*zip(curve.x[:-1], *(one.values for one in series), strict=True), (curve.x[-1], *(0 for _ in series))]
    previous = None
    for x, *values in entries:
        if values != previous and series:
            args = {one.label: value for one, value in zip(series, values, strict=True)}
            yield {"ph": "C", "name": f"{name} ({curve.unit})", "pid": 0, "ts": x / unit, "args": args}
        previous = values
