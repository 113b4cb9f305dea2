"""The records of a memory snapshot: events of the allocator, and its segments with their blocks at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from tensortide.errors import TraceError
from tensortide.gzipped import GzipError, open_gzip
from tensortide.importers.memory_snapshot.plain_pickle import read_plain
from tensortide.shown import Show

MOST_BYTES = 4 << 30
"""Largest pickle that is read, unpacked."""
ALLOCATES, RELEASES = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
ACTIONS = frozenset({"alloc", "free_requested", "free_completed", "oom", "snapshot", *ALLOCATES, *RELEASES})
Address: TypeAlias = tuple[int, int]
"""A device's number and an address there."""


class Frame(NamedTuple):
    """A frame of a stack: a function of Python or C++, and where it is."""

    file: str
    line: int
    function: str


Stack: TypeAlias = tuple[Frame, ...]
"""Frames, the innermost first."""


class Event(NamedTuple):
    """An action of the allocator of ``device``. An ``oom`` has ``device_free_bytes``, what the device had left."""

    action: str
    device: int
    address: int
    asked_bytes: Annotated[int, Show("Asked for")]
    time_us: int
    stack: Stack
    device_free_bytes: Annotated[int, Show("left on the device", level=1)] = 0


class Block(NamedTuple):
    """A block of a segment as the recording ended; ``nbytes`` of its ``size`` were asked for."""

    address: int
    size: int
    nbytes: int
    active: bool
    stack: Stack


class Segment(NamedTuple):
    """Memory that the allocator has from the device."""

    device: int
    address: int
    size: int
    blocks: tuple[Block, ...]


class Snapshot(NamedTuple):
    """A recording: events in order of time, and the segments at its end."""

    path: str
    events: tuple[Event, ...]
    segments: tuple[Segment, ...]


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot, plain or packed with gzip. Raises TraceError for what is none or is damaged."""
    name = str(path)
    found = read_plain(_data(path), name)
    reader = _Reader(name)
    table = reader.table(found, "the snapshot")
    if "segments" not in table or "device_traces" not in table:
        raise TraceError(f"{name} is a pickle without segments and device_traces: no memory snapshot")
    traces = enumerate(reader.items(table, "device_traces"))
    events = [event for device, trace in traces for event in reader.events(device, trace)]
    segments = tuple(map(reader.segment, reader.items(table, "segments")))
    return Snapshot(name, tuple(sorted(events, key=lambda event: event.time_us)), segments)


def _data(path: Path) -> bytes:
    try:
        with open_gzip(path) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    except GzipError as error:
        raise TraceError(f"{path} {error}") from error
    if len(data) > MOST_BYTES:
        raise TraceError(f"{path} has more than {MOST_BYTES >> 30} GiB unpacked")
    return data


class _Reader:
    """Takes plain data apart. Frames and stacks that the pickle shares are read once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames: dict[int, Frame] = {}
        self.stacks: dict[int, Stack] = {}

    def table(self, value: object, what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise TraceError(f"{self.name}: {what} is a {type(value).__name__}, not a dict")
        return value

    def items(self, table: Mapping[str, Any], key: str) -> list[Any]:
        found = table.get(key, [])
        if not isinstance(found, list | tuple):
            raise TraceError(f"{self.name}: {key} is a {type(found).__name__}, not a list")
        return list(found)

    def number(self, table: Mapping[str, Any], key: str, default: int | None = None) -> int:
        found = table.get(key, default)
        if not isinstance(found, int) or not 0 <= found < 1 << 64:
            raise TraceError(f"{self.name}: {key} is {str(found)[:40]!r}, not a number in range")
        return int(found)

    def events(self, device: int, trace: object) -> Iterator[Event]:
        if not isinstance(trace, list):
            raise TraceError(f"{self.name}: the trace of device {device} is a {type(trace).__name__}, not a list")
        for at, item in enumerate(trace):
            entry = self.table(item, f"event {at} of device {device}")
            action = str(entry.get("action"))
            if action not in ACTIONS:
                continue
            oom = action == "oom"
            yield Event(
                action,
                self.number(entry, "device", device),
                0 if oom else self.number(entry, "addr", 0),
                self.number(entry, "size", 0),
                self.number(entry, "time_us", at),
                self.stack(entry),
                self.number(entry, "device_free", 0) if oom else 0,
            )

    def segment(self, value: object) -> Segment:
        table = self.table(value, "a segment")
        start = self.number(table, "address")
        size = self.number(table, "total_size")
        return Segment(self.number(table, "device", 0), start, size, tuple(self.blocks(table, start)))

    def blocks(self, segment: Mapping[str, Any], start: int) -> Iterator[Block]:
        at = start
        for item in self.items(segment, "blocks"):
            table = self.table(item, "a block")
            size = self.number(table, "size")
            at = self.number(table, "address", at)
            active = str(table.get("state", "")).startswith("active")
            yield Block(at, size, self.number(table, "requested_size", size) or size, active, self.stack(table))
            at += size

    def stack(self, table: Mapping[str, Any]) -> Stack:
        if not (frames := table.get("frames")):
            return ()
        known = self.stacks.get(id(frames))
        if known is None:
            known = self.stacks[id(frames)] = tuple(self.frame(item) for item in self.items(table, "frames"))
        return known

    def frame(self, value: object) -> Frame:
        known = self.frames.get(id(value))
        if known is None:
            table = self.table(value, "a frame")
            line = table.get("line", 0)
            file, function = str(table.get("filename", "")), str(table.get("name", ""))
            known = self.frames[id(value)] = Frame(file, line if isinstance(line, int) else 0, function)
        return known
