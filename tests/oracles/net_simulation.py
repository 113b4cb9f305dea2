"""The simulated run of one placement of a network in plain Python: parts laid out first, then batches played on them.

It plays what ``placements/simulator`` plays, with other data: a batch is a list, an op a pair, a queue a deque.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

from tensortide.placements.simulator.tables import Tables


class Send(NamedTuple):
    """One transfer, or one hop of it: its lane, time, ends, what it delivers, and the copy of the output that it reads
    and the one that it makes (-1: a gradient)."""

    lane: int
    took: float
    source: int
    target: int
    successors: tuple[int, ...]
    nbytes: int
    layer: int
    read: int
    made: int
    part: int
    further: Send | None


class Part(NamedTuple):
    """A part of a layer on its device: its time, the successors that run there, what it sends, the bytes that it adds,
    and copies of outputs, with their bytes, that it reads for the last time."""

    number: int
    took: float
    local: tuple[int, ...]
    sends: tuple[Send, ...]
    before: int
    unread: tuple[tuple[int, int], ...]
    after: int
    device: int


class Reader:
    """Tables as lists, which plain Python reads faster."""

    def __init__(self, tables: Tables) -> None:
        count, devices = tables.layers, tables.devices
        first, successors = tables.first.tolist(), tables.successors.tolist()
        self.tables = tables
        self.successors = [tuple(successors[first[k] : first[k + 1]]) for k in range(2 * count)]
        self.nbytes: list[int] = tables.nbytes.tolist()
        self.resident: list[int] = tables.resident.tolist()
        times = tables.times.tolist()
        self.times = [times[k * devices : (k + 1) * devices] for k in range(tables.parts)]
        self.cycle: list[float] = tables.cycle.tolist()
        self.roots: list[int] = tables.roots.tolist()
        self.rank: list[float] = tables.rank.tolist()
        route = tables.route.tolist()
        hops = list(zip(tables.hop_lane.tolist(), tables.hop_rate.tolist(), tables.hop_latency.tolist(), strict=True))
        self.routes = [hops[route[pair] : route[pair + 1]] for pair in range(devices * devices)]
        # An output is waited for by each consumer, a backward part without consumers by its own forward part.
        waits = [len(self.successors[count + k]) for k in range(count)]
        self.waits = [*waits, *(max(1, len(self.successors[k])) for k in range(count))]


class Layout:
    """Parts of one placement, and the references that each copy of an output has when it is stored.

    ``ops`` parts run in every batch; ``updated`` has the updates of each device that follow the last batch of a step.
    """

    def __init__(self, reader: Reader, placement: Sequence[int]) -> None:
        self.reader, self.placement = reader, placement
        self.references: list[int] = []
        self.missing: tuple[int, int] | None = None
        self.copy_of: dict[int, int] = {}
        self.base = [0] * reader.tables.devices
        for device, nbytes in zip(placement, reader.resident, strict=True):
            self.base[device] += nbytes
        count = reader.tables.layers
        self.parts = [self._forward(k) for k in range(count)]
        self.parts += [self._backward(k) for k in range(count)] if reader.tables.backward else []
        self.ops = len(self.parts)
        self.updated = self._updates() if reader.tables.parts > 2 * count else {}
        if reader.tables.last_use:
            self.parts = [self._releasing(part) for part in self.parts]

    def _updates(self) -> dict[int, list[int]]:
        """Append the updates of weights to the parts, and list them by device."""
        reader, found = self.reader, dict[int, list[int]]()
        first = 2 * reader.tables.layers
        for layer, device in enumerate(self.placement):
            self.parts.append(Part(first + layer, reader.times[first + layer][device], (), (), 0, (), 0, device))
            if reader.resident[layer]:
                found.setdefault(device, []).append(first + layer)
        return found

    def _copy(self, layer: int, device: int, references: int) -> int:
        self.copy_of[layer * self.reader.tables.devices + device] = len(self.references)
        self.references.append(references)
        return len(self.references) - 1

    def _forward(self, layer: int) -> Part:
        reader, placement = self.reader, self.placement
        children, device, nbytes = reader.successors[layer], placement[layer], reader.nbytes[layer]
        took = reader.times[layer][device]
        t = reader.tables
        if not children:
            end = (layer + t.layers,) if t.backward else ()
            return Part(layer, took, end, (), nbytes if t.keeps_ends else 0, (), 0, device)
        groups: dict[int, list[int]] = {}
        local: list[int] = []
        for child in children:
            other = placement[child]
            if other == device:
                local.append(child)
            elif other in groups:
                groups[other].append(child)
            else:
                groups[other] = [child]
        own = self._copy(layer, device, len(local) + len(groups))
        if not groups:
            return Part(layer, took, tuple(local), (), nbytes, (), 0, device)
        sends = tuple(
            self._send(layer, device, other, tuple(group), nbytes, own, self._copy(layer, other, len(group)))
            for other, group in groups.items()
        )
        return Part(layer, took, tuple(local), sends, nbytes, (), 0, device)

    def _backward(self, layer: int) -> Part:
        reader, placement, t = self.reader, self.placement, self.reader.tables
        count, nbytes, device = t.layers, reader.nbytes, placement[layer]
        parents, readers = reader.successors[layer + count], len(reader.successors[layer])
        ended = readers or (1 if t.keeps_ends else 0)
        groups: dict[int, list[int]] = {}
        local, unread, before = [], [], 0
        for parent in parents:
            size, other = nbytes[parent], placement[parent]
            before += size
            unread.append((self.copy_of[parent * t.devices + device], size))
            if other == device:
                local.append(parent + count)
            elif other in groups:
                groups[other].append(parent)
            else:
                groups[other] = [parent]
        sends: tuple[Send, ...] = ()
        if groups:
            sends = tuple(
                self._send(
                    layer + count,
                    device,
                    other,
                    tuple(parent + count for parent in group),
                    sum(nbytes[parent] for parent in group),
                    -1,
                    -1,
                )
                for other, group in groups.items()
            )
        took = reader.times[layer + count][device]
        return Part(layer + count, took, tuple(local), sends, before, tuple(unread), -nbytes[layer] * ended, device)

    def _releasing(self, part: Part) -> Part:
        """A forward part that releases what it reads last."""
        reader = self.reader
        parents = reader.successors[part.number + reader.tables.layers]
        copies = tuple(
            (self.copy_of[parent * reader.tables.devices + part.device], reader.nbytes[parent]) for parent in parents
        )
        return part._replace(unread=copies)

    def _send(
        self, part: int, source: int, target: int, successors: tuple[int, ...], nbytes: int, read: int, made: int
    ) -> Send:
        reader, t = self.reader, self.reader.tables
        hops = reader.routes[source * t.devices + target]
        if not hops:
            self.missing = self.missing or (source, target)
        send: Send | None = None
        for lane, rate, latency in reversed(hops):
            took = latency + max(reader.cycle[source], nbytes / t.gigabyte / rate * 1000 / t.network)
            number = t.devices + lane
            layer = part % t.layers
            send = Send(number, took, source, target, successors, nbytes, layer, read, made, part, send)
        return send or Send(0, math.inf, source, target, successors, nbytes, part % t.layers, read, made, part, None)


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
