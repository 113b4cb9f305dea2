"""The verdict on one step: on which common devices it fits, how fast it is there, and what dominates its peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from tensortide.cost import Resolver, count
from tensortide.graph.model import Graph
from tensortide.importers.memory_snapshot.graph import OUT_OF_MEMORY
from tensortide.memory import reserve
from tensortide.shown import Show
from tensortide.studies.fit.dominant import Dominant, dominant
from tensortide.studies.fit.trial import taken_ns
from tensortide.timelines import StorageTimeline, timeline
from tensortide.timing import Durations
from tensortide.timing.catalogue import Device, device

COMMON = {
    16: "T4",
    24: "L4",
    40: "A100-SXM-40GB",
    48: "L40S",
    80: "H100-SXM-80GB",
    141: "H200-SXM-141GB",
    192: "MI300X",
}
"""A device of each common size of memory, by the GB that it is sold with."""

Fits: TypeAlias = Literal["fits", "tight", "too large"]


class Room(msgspec.Struct, frozen=True):
    """A device and the step on it: ``usable_bytes`` of its memory, ``taken_share`` that of them which the allocator
    takes, and the time of a step (None: not predicted).

    ``fits``: ``tight`` where the tensors fit, and what the allocator takes for them does not: whether the step runs
    depends on how it fills the gaps between them.
    """

    device: Annotated[str, Show("for example")]
    usable_bytes: Annotated[int, Show("usable")]
    taken_share: Annotated[float, Show("taken", bar=70)]
    fits: Annotated[Fits, Show()]
    step_ns: Annotated[int | None, Show("Step")]


class Verdict(msgspec.Struct, frozen=True):
    """Answer to whether a step fits. ``rooms`` are devices by their memory; ``asked`` is the one that was asked for,
    with ``memory_bytes`` in place of its memory if that is given."""

    peak_bytes: int
    reserved_bytes: int
    peak_op: int
    rooms: tuple[Room, ...]
    asked: Room | None
    memory_bytes: int | None
    dominant: Dominant | None
    captured_for: str
    """The device whose kernels the step has."""
    read: bool
    """Whether the step was read from a file or an object, without kernels of a device."""
    cut_off: bool
    """Whether it is a recording that ends where memory ran out, so that the step takes more than its peak."""


def fits(peak_bytes: int, reserved_bytes: int, usable_bytes: int) -> Fits:
    """Tell whether a step fits into ``usable_bytes``."""
    if reserved_bytes <= usable_bytes:
        return "fits"
    return "tight" if peak_bytes <= usable_bytes else "too large"


def verdict(
    graph: Graph,
    *,
    asked: Device | None = None,
    memory_bytes: int | None = None,
    durations: Durations | None = None,
    line: StorageTimeline | None = None,
    reserved_bytes: int | None = None,
    timed: bool = True,
    resolver: Resolver | None = None,
) -> Verdict:
    """Judge the step ``graph`` (without loops).

    ``asked`` is a device that is judged too, with its ``durations`` of the ops if they are known; ``memory_bytes`` is a
    limit in place of its memory. ``line`` and ``reserved_bytes`` are the Timeline and the allocator's peak if they are
    known. Without ``timed`` only the step on ``asked`` has a time; one of which no op's cost is known has none.
    """
    line = timeline(graph) if line is None else line
    peak = line.peak_bytes
    if reserved_bytes is None:
        reserved_bytes = reserve(graph).peak_reserved if line.device.startswith("cuda") else peak
    rows: Sequence[Device] = [device(name) for name in COMMON.values()]

    def room(row: Device, usable: int, time: int | None) -> Room:
        return Room(row.name, usable, reserved_bytes / usable, fits(peak, reserved_bytes, usable), time)

    coverage = count(graph, resolver=resolver).coverage
    timed, priced = timed and coverage.covered > 0, coverage.covered > 0

    rooms = []
    for row in rows:
        known = asked is not None and row.name == asked.name and durations is not None
        time = (
            taken_ns(graph, row, durations=durations if known else None, resolver=resolver) if timed or known else None
        )
        rooms.append(room(row, row.usable_bytes or 0, time))
    own = None
    if asked is not None:
        usable = asked.usable_bytes if memory_bytes is None else memory_bytes
        time = taken_ns(graph, asked, durations=durations, resolver=resolver) if priced else None
        own = room(asked, usable, time) if usable is not None else None
    return Verdict(
        peak_bytes=peak,
        reserved_bytes=reserved_bytes,
        peak_op=line.peak_op,
        rooms=tuple(rooms),
        asked=own,
        memory_bytes=memory_bytes,
        dominant=dominant(graph, line),
        captured_for=graph.meta.machine or graph.index.main_device,
        read=graph.meta.captured_on == "file" and not graph.index.main_device.startswith("cuda"),
        cut_off=any(view.name == OUT_OF_MEMORY for view in graph),
    )
