"""Parts of a placed network as the plain simulation plays them: their times, what they send, and what they free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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
