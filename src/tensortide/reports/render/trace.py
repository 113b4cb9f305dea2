"""Spans and Curves as a Chrome trace, for Perfetto and chrome://tracing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

from tensortide.reports.blocks import Document, Table
from tensortide.reports.pictures import Curve, Series, Spans
from tensortide.reports.render.csv import columns_of, tables
from tensortide.reports.render.json import encode

Event: TypeAlias = dict[str, Any]

OP_TIME = "The time axis is the index of the op: 1 us per op. Durations are not known."


def render_trace(document: Document) -> bytes:
    """Write every Spans block as processes with a thread per lane, its arrows as flows, and every Curve as counters.

    Blocks over op numbers take 1 us per op.
    """
    events: list[Event] = []
    every, processes, flows, indexed = tables(document), itertools.count(1), itertools.count(1), False
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Spans):
                anywhere = (one for one in every.values() if one.key == block.table)
                table = every.get(f"{section.key}.{block.table}") or next(anywhere, None)
                events += (drawn := list(_spans(block, table, processes)))
                events += _flows(block, [event for event in drawn if event["ph"] == "X"], flows)
            elif isinstance(block, Curve):
                events += _curve(block)
            indexed |= isinstance(block, Spans | Curve) and block.x_unit == "op"
    events.sort(key=lambda event: (event.get("ts", -1), -event.get("dur", 0)))
    about = {"title": document.title, "subtitle": "\n".join(document.subtitle)}
    if indexed:
        about["time_axis"] = OP_TIME
    return encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def _spans(spans: Spans, table: Table | None, processes: Iterator[int]) -> Iterator[Event]:
    unit, columns = 1 if spans.x_unit == "op" else 1000, {} if table is None else columns_of(table)
    groups: dict[str, int] = {}
    for thread, lane in enumerate(spans.lanes):
        if (group := lane.group or spans.title or spans.key) not in groups:
            groups[group] = next(processes)
            yield _about("process_name", groups[group], 0, name=group)
        process = groups[group]
        yield _about("thread_name", process, thread, name=lane.label)
        yield _about("thread_sort_index", process, thread, sort_index=thread)
        for i, (start, end) in enumerate(zip(lane.start, lane.end, strict=True)):
            name = lane.names[i] if lane.names else lane.label
            times = {"ts": start / unit, "dur": (end - start) / unit}
            event: Event = {"ph": "X", "name": name, "pid": process, "tid": thread, **times}
            if lane.kinds:
                event["cat"] = lane.kinds[i]
            if columns and lane.rows:
                event["args"] = {key: values[lane.rows[i]] for key, values in columns.items()}
            yield event


def _flows(spans: Spans, slices: list[Event], numbers: Iterator[int]) -> Iterator[Event]:
    """Write each arrow as a flow that starts with its first interval, and ends with the last."""
    before = list(itertools.accumulate((len(lane.start) for lane in spans.lanes), initial=0))
    for arrow in spans.arrows:
        number, last = next(numbers), len(arrow.stops) - 1
        for i, (lane, interval) in enumerate(arrow.stops):
            at = slices[before[lane] + interval]
            kind: Event = {"ph": "f", "bp": "e"} if i == last else {"ph": "t" if i else "s"}
            place = {key: at[key] for key in ("pid", "tid", "ts")}
            yield {**kind, "name": arrow.label, "cat": "flow", "id": number, **place}


def _about(kind: str, process: int, thread: int, **what: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": what}


def _curve(curve: Curve) -> Iterator[Event]:
    """Write the stack as one counter of several values, its total and each line as counters of their own."""
    title = curve.title or curve.key
    counters = [(f"{title} by part", curve.stack), (title, (Series("total", title, tuple(curve.totals())),))]
    counters += [(line.label, (line,)) for line in curve.lines]
    unit = 1 if curve.x_unit == "op" else 1000
    for name, series in counters:
        previous = None  # values are written wherever they change, and zero at the end
        columns = ((*one.values, 0) for one in series)
        for x, *values in zip(curve.x, *columns, strict=True):
            if values != previous and series:
                args = {one.label: value for one, value in zip(series, values, strict=True)}
                yield {"ph": "C", "name": f"{name} ({curve.unit})", "pid": 0, "ts": x / unit, "args": args}
            previous = values
