"""Random nets, device graphs and settings, and the published rules followed to the letter, for comparison."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tensortide.placements import COMPAT, Cluster, Net, Settings
from tensortide.placements.simulator.tables import Tables
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphChannel, GraphDevice, Neighbour, as_cluster
from tensortide.timing.paleo.layers import Entry


@st.composite
def nets(draw: st.DrawFn, most: int = 9) -> Net:
    """A net with branches, joins, several inputs and ends; most layers take no time, so that ends of events tie."""
    entries = {"data": Entry(type="Input", tensor=(8, draw(st.integers(1, 400))))}
    for i in range(draw(st.integers(1, most - 1))):
        names = list(entries)
        kind = draw(st.sampled_from(["InnerProduct", "Concatenate", "Dropout", "Softmax", "Input"]))
        if kind == "Input":
            entry = Entry(type=kind, tensor=(8, draw(st.integers(1, 400))))
        elif kind == "Concatenate":
            parents = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
            entry = Entry(type=kind, parents=tuple(parents), dim=1)
        else:
            entry = Entry(type=kind, parents=(draw(st.sampled_from(names)),), num_outputs=draw(st.integers(1, 300)))
        entries[f"layer{i}"] = entry
    return Net("drawn", entries)


@st.composite
def clusters(draw: st.DrawFn, most: int = 4) -> Cluster:
    """Two CPUs and perhaps more, channels of several speeds, each direction of a pair on any of them."""
    channels = tuple(
        GraphChannel(bandwidth=draw(st.sampled_from([1.0, 16.0, 128.0])), latency_us=draw(st.sampled_from([0.0, 5.0])))
        for _ in range(draw(st.integers(1, 3)))
    )
    count = draw(st.integers(2, most))
    devices = []
    for i in range(count):
        others = draw(st.permutations([j for j in range(count) if j != i]))
        neighbours = tuple(Neighbour(j, draw(st.integers(0, len(channels) - 1))) for j in others)
        speed = draw(st.sampled_from([1.0, 1.0, 7.0]))
        devices.append(
            GraphDevice(
                model=f"device {i}",
                clock=1000 * speed,
                peak_gflops=100 * speed,
                memory=draw(st.sampled_from([1.0, 1e-5])),
                mem_bandwidth=50 * speed,
                type="cpu" if i < 2 else "gpu",
                neighbours=neighbours,
            )
        )
    return as_cluster(DeviceGraph(channels, tuple(devices)), "drawn")


@st.composite
def rings(draw: st.DrawFn) -> Cluster:
    """Devices and switches in a ring, linked one way or both, so that most transfers take a route of several hops."""
    count = draw(st.integers(3, 5))
    channels = tuple(
        GraphChannel(
            bandwidth=draw(st.sampled_from([1.0, 16.0])),
            latency_us=draw(st.sampled_from([0.0, 5.0])),
            duplex=draw(st.booleans()),
        )
        for _ in range(2)
    )
    devices = []
    for i in range(count):
        ways = [(i + 1) % count, (i - 1) % count][: draw(st.integers(1, 2))]
        devices.append(
            GraphDevice(
                model=f"device {i}",
                clock=1000,
                peak_gflops=100,
                memory=1,
                type="switch" if i and draw(st.booleans()) else "gpu",
                neighbours=tuple(Neighbour(j, draw(st.integers(0, 1))) for j in ways),
            )
        )
    return as_cluster(DeviceGraph(channels, tuple(devices)), "ring")


@st.composite
def published_settings(draw: st.DrawFn) -> Settings:
    """Settings that the published simulator has."""
    batches = draw(st.integers(1, 5))
    return Settings(
        batch_size=draw(st.sampled_from([None, 4])),
        batches=batches,
        pipeline_batches=draw(st.integers(1, batches)),
        include_backward=draw(st.booleans()),
        comp_penalization=0.9,
        comm_penalization=0.25,
        memory_penalization_factor=1.0,
        mode=COMPAT,
    )


@dataclass(order=True)
class Due:
    end: float
    kind: str = field(compare=False)
    place: int = field(compare=False)
    item: Any = field(compare=False)
    batch: int = field(compare=False)


class Literal:
    """The published rules, one by one, on sets and dictionaries."""

    def __init__(self, net: Net, t: Tables, place: tuple[int, ...]) -> None:
        self.net, self.t, self.place = net, t, place
        self.heap: list[Due] = []
        self.queues: dict[tuple[str, int], deque[Any]] = defaultdict(deque)
        self.busy: set[tuple[str, int]] = set()
        self.available: set[tuple[Any, ...]] = set()
        self.next = 0
        self.handled: list[Due] = []
        base: dict[int, int] = defaultdict(int)
        for layer, device in enumerate(place):
            base[device] += int(t.resident[layer])
        self.memory, self.peak = dict(base), dict(base)
        self.stored: dict[tuple[Any, ...], int] = defaultdict(int)

    def run(self) -> tuple[float, list[int], int]:
        self.start(0.0)
        now = 0.0
        while self.heap:
            due = heapq.heappop(self.heap)
            now = due.end
            self.handled.append(due)
            getattr(self, due.kind)(due, now)
            for device, level in self.memory.items():
                self.peak[device] = max(self.peak.get(device, 0), level)
            self.start(now)
        return now, [self.peak.get(device, 0) for device in range(self.t.devices)], len(self.handled)

    def start(self, now: float) -> None:
        present = {due.batch for due in self.heap} | {item[-1] for queue in self.queues.values() for item in queue}
        roots = [i for i, parents in enumerate(self.net.parents) if not parents]
        closed = any(("device", self.place[root]) in self.busy for root in roots)
        if self.next == self.t.batches or len(present) >= self.t.in_flight or closed:
            return
        for device in sorted({self.place[root] for root in roots}):
            for root in roots:
                if self.place[root] == device:
                    self.queues["device", device].append((root, False, self.next))
            self.wake("device", device, now)
        self.next += 1

    def wake(self, kind: str, number: int, now: float) -> None:
        if (kind, number) not in self.busy:
            self.busy.add((kind, number))
            heapq.heappush(self.heap, Due(now, f"wakeup_{kind}", number, None, self.queues[kind, number][0][-1]))

    def wakeup_device(self, due: Due, now: float) -> None:
        self.run_head(due.place, now)

    def wakeup_channel(self, due: Due, now: float) -> None:
        self.send_head(due.place, now)

    def run_head(self, device: int, now: float) -> None:
        queue = self.queues["device", device]
        if not queue:
            self.busy.discard(("device", device))
            return
        layer, backward, batch = queue.popleft()
        took = float(self.t.times[(layer + backward * self.t.layers) * self.t.devices + device])
        heapq.heappush(self.heap, Due(now + took, "op_done", device, (layer, backward), batch))

    def send_head(self, channel: int, now: float) -> None:
        queue = self.queues["channel", channel]
        if not queue:
            self.busy.discard(("channel", channel))
            return
        layer, backward, source, target, group, batch = queue.popleft()
        t = self.t
        nbytes = sum(int(t.nbytes[one]) for one in group) if backward else int(t.nbytes[layer])
        hop = t.route[source * t.devices + target]
        took = max(float(t.cycle[source]), nbytes / t.gigabyte / float(t.hop_rate[hop]) * 1000 / t.network)
        item = (layer, backward, source, target, group)
        heapq.heappush(self.heap, Due(now + took, "transfer_done", channel, item, batch))

    def op_done(self, due: Due, now: float) -> None:
        (layer, backward), device, batch = due.item, due.place, due.batch
        if not backward:
            self.available.add(("value", layer, batch, device))
        groups: dict[int, list[int]] = {}
        successors = self.net.parents[layer] if backward else self.net.children[layer]
        for other in successors:
            if self.place[other] != device:
                groups.setdefault(self.place[other], []).append(other)
                continue
            if backward:
                self.available.add(("gradient", layer, other, batch, device))
            if self.runnable(other, backward, batch):
                self.queues["device", device].append((other, backward, batch))
        for target, group in groups.items():
            channel = int(self.t.hop_lane[self.t.route[device * self.t.devices + target]])
            self.queues["channel", channel].append((layer, backward, device, target, tuple(group), batch))
            self.wake("channel", channel, now)
        if not backward and not successors and self.t.backward:
            self.queues["device", device].append((layer, True, batch))
        self.run_head(device, now)
        if not backward:
            local = sum(self.place[child] == device for child in self.net.children[layer])
            self.store(("value", layer, batch), device, layer, local + len(groups))
            return
        for parent in self.net.parents[layer]:
            self.store(("gradient", layer, parent, batch), device, parent, 1)
        for parent in self.net.parents[layer]:
            self.store(("value", parent, batch), device, parent, -1)
        for child in self.net.children[layer]:
            self.store(("gradient", child, layer, batch), device, layer, -1)

    def transfer_done(self, due: Due, now: float) -> None:
        (layer, backward, source, target, group), batch = due.item, due.batch
        if not backward:
            self.available.add(("value", layer, batch, target))
        for other in group:
            if backward:
                self.available.add(("gradient", layer, other, batch, target))
            if self.runnable(other, backward, batch):
                self.queues["device", target].append((other, backward, batch))
                self.wake("device", target, now)
        self.send_head(due.place, now)
        if not backward:
            self.store(("value", layer, batch), source, layer, -1)
            self.store(("value", layer, batch), target, layer, len(group))
            return
        for other in group:
            self.store(("gradient", layer, other, batch), source, other, -1)
            self.store(("gradient", layer, other, batch), target, other, 1)

    def runnable(self, layer: int, backward: bool, batch: int) -> bool:
        device = self.place[layer]
        if backward:
            return all(
                ("gradient", child, layer, batch, device) in self.available for child in self.net.children[layer]
            )
        return all(("value", parent, batch, device) in self.available for parent in self.net.parents[layer])

    def store(self, tensor: tuple[Any, ...], device: int, layer: int, references: int) -> None:
        """Add references to a tensor of the size of the layer's output; it has bytes while it has references."""
        before = self.stored[*tensor, device]
        self.stored[*tensor, device] = after = before + references
        size = int(self.t.nbytes[layer])
        self.memory[device] = self.memory.get(device, 0) + size * ((after > 0) - (before > 0))
