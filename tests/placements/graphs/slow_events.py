"""Placed steps with exchanges, played event by event in plain Python from the Graph: an oracle of the simulator.

Of ops that are ready a device starts the earliest recorded. Rates are exact fractions; whenever one changes, what is
left is rounded up to whole nanoseconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import torch

from tensortide.placements.graphs.tables import Step
from tensortide.recorder.torch_compat import assign_buckets

BESIDE = Fraction(85, 100)
"""Rate of a device beside an exchange."""
OP, SEND, EXCHANGE = range(3)
_Key = tuple[int, int]
"""What runs: an op and its device, a transfer and its queue, or an exchange and its device."""


class Send(NamedTuple):
    value: int
    target: int
    way: tuple[int, ...]


class Running:
    """Something that runs: it will have ended ``end``, at ``rate`` of the rate that it has alone."""

    def __init__(self, now: int, ns: int, item: int | list[int] | Send) -> None:
        self.start, self.end, self.rate, self.item = now, now + ns, Fraction(1), item

    def at(self, rate: Fraction, now: int) -> None:
        if rate != self.rate:
            self.end = now + math.ceil((self.end - now) * self.rate / rate)
            self.rate = rate


class SlowRun:
    """Plays ``place`` of ``step`` at once. ``start`` and ``end`` are by op; ``sends`` are transfers over one lane:
    value, lane, start, end."""

    def __init__(self, step: Step, place: list[int]) -> None:
        self.step, self.values = step, step.values.values
        self.device = [place[unit] for unit in step.units.of_op]
        self.home = [place[unit] for unit in step.units.home]
        assert step.beside is not None
        self.beside = step.beside
        self.exchanges = {each.op: each for each in self.beside.exchanges}
        self.start, self.end = [-1] * len(self.device), [-1] * len(self.device)
        self.sends: list[tuple[int, int, int, int]] = []
        self.needs = [set(self._needs(op)) for op in range(len(self.device))]
        self.met: set[tuple[object, ...]] = set()
        self.queues: defaultdict[int, list[Send]] = defaultdict(list)
        self.running: dict[_Key, Running] = {}
        self.buckets = {d: self._buckets(d) for d in range(step.devices)}
        self.last = max(self.exchanges) + 1
        for d in range(step.devices):
            if not self.buckets[d]:
                self.met.add(("all", d))
        self._play()

    def _needs(self, op: int) -> Iterator[tuple[object, ...]]:
        d, last = self.device[op], max(self.exchanges) + 1
        if op >= last:
            yield "all", d
        for number, value in enumerate(self.values):
            home = self.home[value.storage]
            if op in value.readers and d != home:
                yield "here", number, d
            elif op in value.readers and value.writer >= 0:
                yield "op", value.writer
            if value.next >= 0 and self.values[value.next].writer == op:
                for reader in value.readers:
                    if self.device[reader] == home and reader != op:
                        yield "op", reader
                    elif self.device[reader] != home:
                        yield "left", number, self.device[reader]

    def _buckets(self, d: int) -> list[list[int]]:
        own = [op for op in sorted(self.exchanges) if self.device[op] == d]
        if not own:
            return []
        each = [self.exchanges[op] for op in own]
        tensors = [torch.empty(one.nbytes // 4, dtype=getattr(torch, one.dtype)) for one in each]
        assert all(tensor.nbytes == one.nbytes for tensor, one in zip(tensors, each, strict=True))
        limits = [self.beside.first_bytes, self.beside.bucket_bytes]
        found, _ = assign_buckets(tensors, limits, [False] * len(own), list(range(len(own))))
        return [[own[place] for place in bucket] for bucket in found]

    def _play(self) -> None:
        given = [n for n, value in enumerate(self.values) if value.writer < 0 and value.readers]
        for number in sorted(given, key=lambda n: (self.values[n].readers[0], n)):
            self._send(number)
        now = 0
        while True:
            self._begin(now)
            self._rates(now)
            if not self.running:
                return
            now = min(each.end for each in self.running.values())
            done = [(key, each) for key, each in self.running.items() if each.end == now]
            while done:
                key, each = min(done, key=lambda one: self._turn(*one))
                del self.running[key]
                self._end(key, each, now)
                done = [(key, each) for key, each in self.running.items() if each.end == now]

    def _turn(self, key: _Key, each: Running) -> tuple[int, int, int]:
        item = each.item
        return key[0], item.value if isinstance(item, Send) else min(item) if isinstance(item, list) else item, key[1]

    def _ready(self, op: int) -> bool:
        return self.start[op] < 0 and self.needs[op] <= self.met

    def _begin(self, now: int) -> None:
        for d in range(self.step.devices):
            ready = (op for op, own in enumerate(self.device) if own == d and op not in self.exchanges)
            if (OP, d) not in self.running and (op := next(filter(self._ready, ready), None)) is not None:
                self.start[op] = now
                self.running[OP, d] = Running(now, int(self.step.ns[op][d]), op)
        for queue, waiting in self.queues.items():
            if (SEND, queue) not in self.running and waiting:
                send = waiting.pop(0)
                lane = self.step.cluster.wires[send.way[0]]
                self.running[SEND, queue] = Running(now, lane.transfer_ns(self.values[send.value].nbytes), send)
        for d, buckets in self.buckets.items():
            if (EXCHANGE, d) not in self.running and buckets and all(map(self._ready, buckets[0])):
                bucket = buckets.pop(0)
                for op in bucket:
                    self.start[op] = now
                self.running[EXCHANGE, d] = Running(now, self._exchange_ns(bucket, d), bucket)

    def _exchange_ns(self, bucket: list[int], d: int) -> int:
        one, nbytes = self.exchanges[bucket[0]], sum(self.exchanges[op].nbytes for op in bucket)
        ns = self.beside.size_ns[d][self.beside.streams.index((one.kind, one.dtype))]
        at = self.beside.sizes.tolist().index(nbytes)
        return int(ns[at]) if ns[at] >= 0 else sum(int(self.step.ns[op][d]) for op in bucket)

    def _rates(self, now: int) -> None:
        shares: defaultdict[_Key, list[Fraction]] = defaultdict(list)
        for channel in self.beside.channels:
            flows = {(SEND, queue): count for queue, count in channel.queues.items()}
            flows |= {(EXCHANGE, device): count for device, count in channel.rings.items()}
            whole = sum(count for key, count in flows.items() if key in self.running)
            for key in flows.keys() & self.running.keys():
                shares[key].append(Fraction(flows[key], whole))
        for (kind, number), each in self.running.items():
            if kind == OP:
                each.at(BESIDE if (EXCHANGE, number) in self.running else Fraction(1), now)
            else:
                each.at(min(shares[kind, number], default=Fraction(1)), now)

    def _end(self, key: _Key, each: Running, now: int) -> None:
        kind, number = key
        if isinstance(each.item, Send):
            self._arrive(each.item, each.start, now)
        elif kind == EXCHANGE:
            assert isinstance(each.item, list)
            for op in each.item:
                self.end[op] = now
            if not self.buckets[number]:
                self.met.add(("all", number))
                for op in self.exchanges:
                    if self.device[op] == number:
                        self._made(op)
        else:
            assert isinstance(each.item, int)
            self.end[each.item] = now
            self._made(each.item)

    def _made(self, op: int) -> None:
        self.met.add(("op", op))
        for number, value in enumerate(self.values):
            if value.writer == op:
                self._send(number)

    def _send(self, number: int) -> None:
        value = self.values[number]
        home = self.home[value.storage]
        for target in sorted({self.device[op] for op in value.readers} - {home}):
            if value.free:
                self.met |= {("here", number, target), ("left", number, target)}
            else:
                self._enqueue(Send(number, target, self.step.cluster.routes[home][target]))

    def _enqueue(self, send: Send) -> None:
        self.queues[self.step.cluster.queues[send.way[0]]].append(send)

    def _arrive(self, send: Send, start: int, now: int) -> None:
        self.sends.append((send.value, send.way[0], start, now))
        if self.step.cluster.wires[send.way[0]].source == self.home[self.values[send.value].storage]:
            self.met.add(("left", send.value, send.target))
        if len(send.way) > 1:
            self._enqueue(send._replace(way=send.way[1:]))
        else:
            self.met.add(("here", send.value, send.target))
