"""The records of a memory snapshot: events of the allocator, and its segments with their blocks at the end."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, TypeAlias

from tensortide.errors import TraceError
from tensortide.graph.model import Phase, Source
from tensortide.gzipped import contents
from tensortide.importers.memory_snapshot.plain_pickle import read_plain
from tensortide.shown import Show

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
    found = read_plain(contents(path, TraceError), name)
    reader = _Reader(name)
    table = reader.table(found, "the snapshot")
    if "segments" not in table or "device_traces" not in table:
        raise TraceError(f"{name} is a pickle without segments and device_traces: no memory snapshot")
    traces = enumerate(reader.items(table, "device_traces"))
    events = [event for device, trace in traces for event in reader.events(device, trace)]
    segments = tuple(map(reader.segment, reader.items(table, "segments")))
    return Snapshot(name, tuple(sorted(events, key=lambda event: event.time_us)), segments)


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


# --- what a stack says ---------------------------------------------------------------------------------

_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)\(")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::(?:apply|add)\(")
_LIBRARY = re.compile(r"[wW]orkspace|cublas|cudnn|NCCL|nccl")
_ENGINE = "torch::autograd::Engine::"
_INITIALIZING = ("__init__", "reset_parameters", "_apply", "empty_parameters")


class Asked(NamedTuple):
    """Who asked for memory: the ``op`` (or empty), the autograd ``node`` it ran in, the phase, the user's line.

    ``building``: while a module was made or moved; ``library``: for a workspace of a library; ``calls``: the functions
    of the user's own frames, outermost first.
    """

    op: str
    node: str
    phase: Phase
    source: Source | None
    building: bool
    library: bool
    calls: tuple[str, ...]


@functools.lru_cache(maxsize=1 << 16)
def asked(stack: Stack) -> Asked:
    """Read a stack."""
    python = [frame for frame in stack if frame.file.endswith(".py")]
    own = [frame for frame in python if "site-packages" not in frame.file and "/torch/" not in frame.file]
    ops = [found[1] for frame in stack if (found := _OP.match(frame.function))]
    nodes = [found[1] for frame in stack if (found := _NODE.match(frame.function))]
    optimizer = any("torch/optim/" in frame.file for frame in python)
    backward = bool(nodes) or any(frame.function.startswith(_ENGINE) for frame in stack)
    source = Source(own[0].file, own[0].line, own[0].function) if own else None
    if source is None and nodes:
        source = Source(nodes[-1], 0, nodes[-1])
    return Asked(
        ops[-1] if ops else "",
        nodes[-1] if nodes else "",
        Phase.OPTIMIZER if optimizer else Phase.BACKWARD if backward else Phase.FORWARD,
        source,
        any(frame.function in _INITIALIZING for frame in python),
        any(_LIBRARY.search(frame.function) for frame in stack if not frame.file.endswith(".py")),
        tuple(frame.function for frame in reversed(own)),
    )


def holder(source: Source | None) -> str:
    """Name a place that holds memory: a line with its function, or a node of the backward pass."""
    if source is None:
        return "no stack"
    return (
        f"{PurePath(source.file).name}:{source.line} {source.function}"
        if source.line
        else f"{source.function} (autograd)"
    )
