"""The simulated run of one placement of a network in plain Python: batches played on its parts (``net_layout``).

It plays what ``placements/simulator`` plays, with other data: a batch is a list, an op a pair, a queue a deque.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from tests.oracles.net_layout import Layout, Reader, Send

WAKEUP, OP, TRANSFER, HOP = range(4)
Note = Callable[[int, int, int, int, float, float, int, int, list[int]], None]
"""Receives an event: kind, resource, batch, part, start, end, source, target, bytes of each device just after it."""


class _End(float):
    """End of an event: events are compared by it alone. ``resource`` is the device or lane."""

    __slots__ = ("resource",)
    resource: int


class _CountedEnd(_End):
    """End of an event of which the first pushed comes first where two are equal."""

    __slots__ = ("number",)
    number: int

    def __lt__(self, other: Any) -> bool:
        return (float(self), self.number) < (float(other), other.number)


@dataclass
class RunFigures:
    """Figures of a run: makespan (ms), peak bytes by device, handled events; ``missing`` are the devices between which
    no route leads, which ended the run."""

    makespan: float = 0.0
    peaks: list[int] = field(default_factory=list)
    events: int = 0
    ops: int = 0
    transfers: int = 0
    missing: tuple[int, int] | None = None


def _hops(send: Send) -> int:
    return 1 + (_hops(send.further) if send.further else 0)


def run(reader: Reader, placement: Sequence[int], note: Note | None = None) -> RunFigures:
    """Simulate ``placement``, the device of each layer; ``note`` receives every event."""
    layout = Layout(reader, placement)
    if layout.missing is not None:
        return RunFigures(math.inf, layout.base, missing=layout.missing)
    return _Run(reader, layout, placement, note).play()


class _Run:
    """State of one run. An op is (part, batch); a transfer (send, batch). A batch is a list: the results that each part
    waits for, then the references of each copy, then its number and how many ops and transfers are left of it."""

    def __init__(self, reader: Reader, layout: Layout, placement: Sequence[int], note: Note | None) -> None:
        t = reader.tables
        self.tables, self.layout, self.note = t, layout, note
        self.resources = t.devices + t.lanes
        self.offset = len(reader.waits)
        transfers = sum(_hops(send) for part in layout.parts for send in part.sends)
        self.fresh = [*reader.waits, *layout.references, 0, layout.ops + transfers]
        self.in_step = [list(placement).count(device) * t.step_batches for device in range(t.devices)]
        self.gradients = list(self.in_step)
        self.backward = range(t.layers, 2 * t.layers) if layout.updated else range(0)
        roots: dict[int, list[int]] = {}
        for root in reader.roots:
            roots.setdefault(placement[root], []).append(root)
        self.roots = sorted(roots.items())
        self.rank = reader.rank
        self.heap: list[_End] = []
        self.queues: list[deque[Any]] = [deque() for _ in range(self.resources)]
        self.running: list[Any] = [None] * self.resources
        self.busy = [False] * self.resources
        self.start = [0.0] * self.resources
        self.ready = [0.0] * self.resources
        self.memory = list(layout.base)
        self.peaks = list(layout.base)
        self.issued = self.in_flight = self.pushed = 0

    def play(self) -> RunFigures:
        t, heap, running = self.tables, self.heap, self.running
        queues, busy, devices, note = self.queues, self.busy, t.devices, self.note
        gaps = t.op_gap > 0 or t.transfer_gap > 0
        simple = not (gaps or self.rank or t.fifo or note)
        parts = self.layout.parts
        op_done, transfer_done, begin = self._op_done, self._transfer_done, self._begin
        batches, in_flight = t.batches, t.in_flight
        events = ops = transfers = 0
        now: float = 0.0
        self._issue(0.0)
        while heap:
            now = heappop(heap)
            resource = now.resource
            events += 1
            item = running[resource]
            if note:
                self._note_begun(resource, item)
            if item is not None:
                batch = item[1]
                if resource < devices:
                    ops += 1
                    op_done(item[0], batch, now)
                else:
                    transfers += transfer_done(item[0], batch, now)
                batch[-1] -= 1
                if not batch[-1]:
                    self.in_flight -= 1
            if note:
                self._note_done(resource, item, now)
            queue = queues[resource]
            if not queue:
                busy[resource] = False
            elif simple:
                item = queue.popleft()
                running[resource] = item
                took = parts[item[0]].took if resource < devices else item[0].took
                end = _End(now + took)
                end.resource = resource
                heappush(heap, end)
            else:
                begin(resource, now)
            if self.issued < batches and self.in_flight < in_flight:
                self._issue(now)
        return RunFigures(float(now), self.peaks, events, ops, transfers)

    def _op_done(self, number: int, batch: list[int], now: float) -> None:
        _, took, local, sends, before, unread, after, device = self.layout.parts[number]
        queues = self.queues
        for successor in local:
            left = batch[successor] - 1
            batch[successor] = left
            if not left:
                queues[device].append((successor, batch))
        for send in sends:
            lane = send[0]
            queues[lane].append((send, batch))
            if not self.busy[lane]:
                self._wake(lane, now)
        memory = self.memory
        level = memory[device] + before + after
        if unread:
            offset = self.offset
            for copy, nbytes in unread:
                copy += offset  # noqa: PLW2901
                batch[copy] -= 1
                if not batch[copy]:
                    level -= nbytes
        memory[device] = level
        if level > self.peaks[device]:
            self.peaks[device] = level
        if self.tables.op_gap and took:
            self.ready[device] = now + self.tables.op_gap
        if number in self.backward:
            self._update(device, batch)

    def _update(self, device: int, batch: list[int]) -> None:
        """A backward part has ended: after the last one of a step on the device its weights are updated."""
        self.gradients[device] -= 1
        if self.gradients[device]:
            return
        self.gradients[device] = self.in_step[device]
        parts = self.layout.updated.get(device, [])
        batch[-1] += len(parts)
        self.queues[device].extend((part, batch) for part in parts)

    def _transfer_done(self, send: Send, batch: list[int], now: float) -> int:
        """Deliver a transfer, or pass it on. Returns 1 if it has arrived."""
        lane, _, source, target, successors, nbytes, _, read, _, _, further = send
        if self.tables.transfer_gap:
            self.ready[lane] = now + self.tables.transfer_gap
        if further:
            self.queues[further.lane].append((further, batch))
            if not self.busy[further.lane]:
                self._wake(further.lane, now)
            return 0
        for successor in successors:
            left = batch[successor] - 1
            batch[successor] = left
            if not left:
                self.queues[target].append((successor, batch))
                if not self.busy[target]:
                    self._wake(target, now)
        memory = self.memory
        if read < 0:
            memory[source] -= nbytes
        else:
            read += self.offset
            batch[read] -= 1
            if not batch[read]:
                memory[source] -= nbytes
        level = memory[target] + nbytes
        memory[target] = level
        if level > self.peaks[target]:
            self.peaks[target] = level
        return 1

    def _wake(self, resource: int, now: float) -> None:
        self.busy[resource] = True
        self.running[resource] = None
        self.start[resource] = now
        self._push(resource, now)

    def _begin(self, resource: int, now: float) -> None:
        queue = self.queues[resource]
        if resource >= self.tables.devices:
            item = queue.popleft()
            took = item[0].took
        else:
            at = 0
            if self.rank:
                at = min(range(len(queue)), key=lambda i: self.rank[queue[i][0]])
            item = queue[at]
            del queue[at]
            took = self.layout.parts[item[0]].took
        start = max(float(now), self.ready[resource])
        self.running[resource] = item
        self.start[resource] = start
        self._push(resource, start + took)

    def _push(self, resource: int, at: float) -> None:
        if self.tables.fifo:
            end: _End = _CountedEnd(at)
            end.number = self.pushed  # type: ignore[attr-defined]
            self.pushed += 1
        else:
            end = _End(at)
        end.resource = resource
        heappush(self.heap, end)

    def _issue(self, now: float) -> None:
        """Let the next batch in, if the devices of its first layers are free."""
        for device, _ in self.roots:
            if self.busy[device]:
                return
        batch = self.fresh.copy()
        batch[-2] = self.issued
        self.issued += 1
        self.in_flight += 1
        for device, roots in self.roots:
            self.queues[device].extend((root, batch) for root in roots)
            self._wake(device, now)

    def _note_begun(self, resource: int, item: Any) -> None:
        self._noted = (self.start[resource], item or self.queues[resource][0])

    def _note_done(self, resource: int, item: Any, now: float) -> None:
        assert self.note is not None
        begun, (what, batch) = self._noted
        memory, number, at = list(self.memory), batch[-2], float(now)
        if item is None:
            self.note(WAKEUP, resource, number, -1, begun, at, -1, -1, memory)
        elif resource < self.tables.devices:
            self.note(OP, resource, number, what, begun, at, -1, -1, memory)
        else:
            kind = HOP if what.further else TRANSFER
            self.note(kind, resource, number, what.part, begun, at, what.source, what.target, memory)
