"""Section ``played_lanes``: a plan of several devices as played: what each lane does, and the bytes of each device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from tensortide.replays.lanes import LanesTimeline
from tensortide.reports.blocks import AnyBlock, Document, Note, Section
from tensortide.reports.of_records import facts, table
from tensortide.reports.sections.timeline_lanes import lanes_of, memory_of
from tensortide.shown import Show
from tensortide.units import format_seconds


class _LaneUse(msgspec.Struct, frozen=True):
    """A device, a copy engine or a wire: the ops or transfers on it, and the most bytes that a device holds."""

    lane: Annotated[str, Show("Lane", "name")]
    runs: Annotated[int, Show("Ops, transfers")]
    busy_ns: Annotated[int, Show("Busy")]
    busy_share: Annotated[float, Show("of the step")]
    peak_bytes: Annotated[int | None, Show("Peak memory")]


def document(line: LanesTimeline) -> Document:
    """Show the plan as it was played."""
    shown = table(_LaneUse, list(_lanes(line)), key="lanes", title="Devices, copy engines and wires")
    spans = lanes_of("timeline", "What each device and link does", line, clock="step")
    text = f"{format_seconds(line.makespan_ns / 1e9)} per step on {len(line.devices)} devices."
    blocks: tuple[AnyBlock, ...] = (
        Note(text=text, kind="verdict"),
        facts(line, "makespan_ns"),
        shown,
        spans,
        *memory_of(line.devices, line.levels, line.makespan_ns),
        Note(text="Hosts are taken to issue ops in time.", kind="assumption"),
    )
    meta = line.recorded.meta
    about = f"{len(line.recorded):,} ops on {len(line.devices)} devices"
    made = Section("played_lanes", "As played", blocks=blocks)
    return made.document(meta.workload, about, settings=meta.hyperparameters)


def _lanes(line: LanesTimeline) -> Iterator[_LaneUse]:
    """Yield the devices, and the engines and wires that are used."""
    events, peaks = line.events, dict(enumerate(line.peaks_bytes))
    for number, name in enumerate(line.lanes):
        own = events.lane == number
        busy = int((events.end_ns - events.start_ns)[own].sum())
        if number in peaks or own.any():
            yield _LaneUse(name, int(own.sum()), busy, busy / (line.makespan_ns or 1), peaks.get(number))
