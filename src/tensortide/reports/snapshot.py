"""Predicted memory as a snapshot of PyTorch's CUDA allocator, for https://pytorch.org/memory_viz and its relatives.

The viewer takes a pickle of plain dicts: ``device_traces``, the allocations and releases in order, and
``segments``, the blocks at the end. Storages get the addresses that a first-fit allocator gives them.
"""

from __future__ import annotations

import bisect
import pickle
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, TypeAlias

from tensortide.graph.model import Graph
from tensortide.timelines import timeline
from tensortide.timelines.resident import widest_tensors

Frame: TypeAlias = dict[str, str | int]
Record: TypeAlias = dict[str, Any]

BASE = 0x7F00_0000_0000
ALIGNMENT = 512


class FirstFit:
    """Addresses from one endless segment: the lowest gap that is large enough."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.end = 0

    def take(self, size: int) -> int:
        for i, (start, gap) in enumerate(self.gaps):
            if gap >= size:
                self.gaps[i : i + 1] = [(start + size, gap - size)] if gap > size else []
                return start
        self.end += size
        return self.end - size

    def give_back(self, start: int, size: int) -> None:
        at = bisect.bisect(self.gaps, (start, 0))
        if at < len(self.gaps) and self.gaps[at][0] == start + size:
            size += self.gaps.pop(at)[1]
        if at and sum(self.gaps[at - 1]) == start:
            before, gap = self.gaps.pop(at - 1)
            start, size, at = before, size + gap, at - 1
        self.gaps.insert(at, (start, size))


def render_snapshot(graph: Graph) -> bytes:
    """Pickle a snapshot whose events replay to the eager memory of the step. Time in it is the index of the op."""
    return pickle.dumps(snapshot(graph), protocol=4)


def snapshot(graph: Graph) -> Record:
    """The snapshot as plain dicts, lists, strings and whole numbers."""
    recorder = _Recorder(graph)
    recorder.play()
    about: Record = {"external_annotations": [], "allocator_settings": {}}
    return {"segments": recorder.segments(), "device_traces": [recorder.events], **about}


class _Recorder:
    """Plays the lifetimes of the storages through an allocator and records its events."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = widest_tensors(graph)
        self.allocator = FirstFit()
        self.events: list[Record] = []
        self.live: dict[int, int] = {}

    def play(self) -> None:
        """Allocate and release every storage; what exists before the step (op -1) is allocated without an event."""
        line = timeline(self.graph)
        births, deaths = defaultdict(list), defaultdict(list)
        for i, nbytes, birth, death in line.storages():
            if birth < death and nbytes:
                births[birth].append(i)
                deaths[death].append(i)
        for op, workspace in enumerate([0, *line.workspace.tolist(), 0], -1):
            for i in deaths[op]:
                self._release(op, self.live.pop(i), self.graph.storages[i].nbytes, self._frames(i))
            for i in births[op]:
                self.live[i] = self._allocate(op, self.graph.storages[i].nbytes, self._frames(i))
            if workspace:
                frames: list[Frame] = [{"name": "workspace", "filename": "", "line": 0}, *self._op_frames(op)]
                self._release(op, self._allocate(op, workspace, frames), workspace, frames)

    def segments(self) -> list[Record]:
        """One segment that holds what is live at the end."""
        blocks = [_block(start, size, "inactive", 0, []) for start, size in self.allocator.gaps]
        for i, address in self.live.items():
            nbytes = self.graph.storages[i].nbytes
            blocks.append(_block(address, _rounded(nbytes), "active_allocated", nbytes, self._frames(i)))
        blocks.sort(key=itemgetter("address"))
        total, active = self.allocator.end, sum(block["size"] for block in blocks if block["state"] != "inactive")
        requested = sum(block["requested_size"] for block in blocks)
        segment = {"device": 0, "address": BASE, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0)}
        segment |= {"total_size": total, "allocated_size": active, "active_size": active, "requested_size": requested}
        return [segment | {"is_expandable": False, "frames": [], "blocks": blocks}] if total else []

    def _allocate(self, op: int, nbytes: int, frames: list[Frame]) -> int:
        address = self.allocator.take(_rounded(nbytes))
        if op >= 0:
            self._event("alloc", op, address, nbytes, frames)
        return address

    def _release(self, op: int, address: int, nbytes: int, frames: list[Frame]) -> None:
        self._event("free_requested", op, address, nbytes, frames)
        self._event("free_completed", op, address, nbytes, frames)
        self.allocator.give_back(address, _rounded(nbytes))

    def _event(self, action: str, op: int, address: int, nbytes: int, frames: list[Frame]) -> None:
        event = {"action": action, "addr": BASE + address, "size": nbytes, "stream": 0, "time_us": op, "frames": frames}
        self.events.append(event)

    def _frames(self, i: int) -> list[Frame]:
        """The stack of a block in a viewer: the storage, the op that made it, its module and source line."""
        storage = self.graph.storages[i]
        name = f"{storage.role} {self.tensors.get(i, '')}"
        first: Frame = {"name": name, "filename": storage.name or "tensor", "line": i}
        return [first, *(self._op_frames(storage.birth) if storage.birth is not None else ())]

    def _op_frames(self, op: int) -> Iterator[Frame]:
        view = self.graph[op]
        yield {"name": view.name, "filename": view.module, "line": op}
        if view.source is not None:
            yield {"name": view.source.function, "filename": view.source.file, "line": view.source.line}


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _block(address: int, size: int, state: str, requested: int, frames: list[Frame]) -> Record:
    sizes = {"address": BASE + address, "size": size, "requested_size": requested}
    return {**sizes, "state": state, "frames": frames}
