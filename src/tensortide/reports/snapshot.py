"""Predicted memory as a snapshot of PyTorch's CUDA allocator, for https://pytorch.org/memory_viz and its relatives.

The viewer takes a pickle of plain dicts: ``device_traces``, the allocations and releases in order, and
``segments``, what is there at the end. Storages get the addresses that a first-fit allocator gives them.
"""

from __future__ import annotations

import bisect
import pickle
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeAlias

from tensortide.reports.document import Document

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


def render_snapshot(document: Document) -> bytes:
    """A pickled snapshot whose events replay to the eager memory of the step. Time in it is the index of the op."""
    return pickle.dumps(snapshot(document), protocol=4)


def snapshot(document: Document) -> Record:
    """The snapshot as plain dicts, lists, strings and whole numbers."""
    recorder = _Recorder(document)
    recorder.play()
    return {
        "segments": recorder.segments(),
        "device_traces": [recorder.events],
        "external_annotations": [],
        "allocator_settings": {},
    }


class _Recorder:
    """Plays the lives of the storages through an allocator and writes down what happens."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.allocator = FirstFit()
        self.events: list[Record] = []
        self.live: dict[int, int] = {}

    def play(self) -> None:
        storages, count = self.document.storages, len(self.document.ops.name)
        births, deaths = defaultdict(list), defaultdict(list)
        for i, (birth, death) in enumerate(zip(storages.birth, storages.death, strict=True)):
            if birth < death and storages.nbytes[i]:
                births[birth].append(i)
                deaths[death].append(i)
        for i in births[-1]:
            self.live[i] = self.allocator.take(_rounded(storages.nbytes[i]))
        for op in range(count + 1):
            for i in deaths[op]:
                self._release(op, self.live.pop(i), storages.nbytes[i], self._frames(i))
            for i in births[op]:
                self.live[i] = self._allocate(op, storages.nbytes[i], self._frames(i))
            if op < count and (workspace := self.document.ops.workspace_bytes[op]):
                frames: list[Frame] = [{"name": "workspace", "filename": "", "line": 0}, *self._op_frames(op)]
                self._release(op, self._allocate(op, workspace, frames), workspace, frames)

    def segments(self) -> list[Record]:
        """One segment that holds what is live at the end."""
        storages, blocks, at = self.document.storages, [], 0
        for i, address in sorted(self.live.items(), key=lambda item: item[1]):
            if address > at:
                blocks.append(_block(at, address - at, "inactive", 0, []))
            size = _rounded(storages.nbytes[i])
            blocks.append(_block(address, size, "active_allocated", storages.nbytes[i], self._frames(i)))
            at = address + size
        total = self.allocator.end
        if at < total:
            blocks.append(_block(at, total - at, "inactive", 0, []))
        active = sum(block["size"] for block in blocks if block["state"] != "inactive")
        segment = {
            "device": 0,
            "address": BASE,
            "total_size": total,
            "allocated_size": active,
            "active_size": active,
            "requested_size": sum(block["requested_size"] for block in blocks),
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }
        return [segment] if total else []

    def _allocate(self, op: int, nbytes: int, frames: list[Frame]) -> int:
        address = self.allocator.take(_rounded(nbytes))
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
        """What a viewer shows as the stack of a block: the storage, the op that made it, its module and source line."""
        storages = self.document.storages
        label = storages.labels[storages.label[i]]
        role, tensor = storages.roles[storages.role[i]], storages.tensors[storages.tensor[i]]
        first: Frame = {"name": f"{role} {tensor}", "filename": label or "tensor", "line": i}
        return [first, *(self._op_frames(storages.birth[i]) if storages.birth[i] >= 0 else ())]

    def _op_frames(self, op: int) -> Iterator[Frame]:
        ops = self.document.ops
        yield {"name": ops.names[ops.name[op]], "filename": ops.paths[ops.module[op]], "line": op}
        if ops.source[op] >= 0:
            source = self.document.sources[ops.source[op]]
            yield {"name": source.function, "filename": source.file, "line": source.line}


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _block(address: int, size: int, state: str, requested: int, frames: list[Frame]) -> Record:
    return {
        "address": BASE + address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": frames,
    }
