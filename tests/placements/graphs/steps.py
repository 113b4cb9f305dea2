"""Steps and machines for tests of placements: small models, a pipeline written by hand, and a check of runs."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import strategies as st

import tensortide
from tensortide.graph import Graph, Phase, Role
from tensortide.placements.graphs.placeable import placeable
from tensortide.placements.graphs.simulate import Simulated
from tensortide.placements.search.best import Best
from tensortide.timing.catalogue import Device, device
from tensortide.timing.clusters import Channel, Cluster, ClusterDevice, both_ways, joined
from tensortide.timing.links import Link
from tests.examples.tiny import TINY
from tests.graphs import Builder

GPU: Device = device("A100-SXM-80GB")
BRIEF = Best(planned=300)
"""The default search with fewer proposals that are estimated, which take most of its time where few are simulated."""
FREE = Link("free", Fraction(10**30), 0)
"""A link whose transfers take 1 ns."""


@functools.cache
def captured(name: str) -> Graph:
    """A built-in model, tiny and with few ops of an optimizer, as it is placed: captured on real tensors, which take
    less than fake ones then."""
    settings = {**TINY[name], "optimizer": "sgd"}
    return placeable(tensortide.capture(name, hyperparameters=settings, real=True))


def cluster(count: int, link: Link | None = None, capacity_bytes: int | None = None) -> Cluster:
    """``count`` GPUs of one type, each two joined."""
    return joined([GPU] * count, link or Link("wire", Fraction(25 * 10**9), 2_000), capacity_bytes=capacity_bytes)


def line(count: int, *, duplex: bool = True) -> Cluster:
    """GPUs of which each is joined to the next one only."""
    devices = tuple(ClusterDevice(f"gpu{i}", GPU) for i in range(count))
    channel = Channel(Link("wire", Fraction(10**9), 300), duplex)
    return Cluster("line", devices, both_ways([(i, i + 1) for i in range(count - 1)]), (channel,) * (count - 1))


def pipeline(stages: int, nbytes: int = 100) -> Graph:
    """A step of ``stages`` modules in a row: one forward op each, one backward op that reads what that left behind and
    makes the gradient of its parameter, one op of the optimizer."""
    builder = Builder()
    modules = [builder.module(f"s{i}") for i in range(stages)]
    weights = [builder.storage(1000, Role.PARAMETER, name=f"s{i}.weight") for i in range(stages)]
    value = builder.storage(nbytes, Role.INPUT)
    saved = []
    for i in range(stages):
        left = builder.storage(nbytes, Role.ACTIVATION, birth=i, death=2 * stages - i)
        builder.op([value, weights[i]], [left], module=modules[i], name="test.forward.default")
        saved.append(left)
        value = left
    gradients = {}
    flow = saved[-1]
    for i in reversed(range(stages)):
        op = len(builder.ops)
        out = builder.storage(nbytes, Role.TEMPORARY, birth=op, death=op + 2 if i else op + 1)
        gradients[i] = builder.storage(1000, Role.GRADIENT, birth=op, death=3 * stages, name=f"s{i}.weight")
        builder.op(
            [saved[i], flow, weights[i]],
            [out, gradients[i]],
            module=modules[i],
            phase=Phase.BACKWARD,
            name="test.backward.default",
        )
        flow = out
    for i in range(stages):
        builder.op(
            [weights[i], gradients[i]], [weights[i]], mutated=(0,), phase=Phase.OPTIMIZER, name="test.update_.default"
        )
    return builder.graph()


def pipeline_ns(graph: Graph, forward_ns: int, backward_ns: int) -> list[int]:
    """Times of the ops of a pipeline: sums and updates take none."""
    times = {"test.forward.default": forward_ns, "test.backward.default": backward_ns}
    return [times.get(op.name, 0) for op in graph]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to four devices, each two joined or in a line."""
    count = draw(st.integers(1, 4))
    if draw(st.booleans()):
        return line(count, duplex=draw(st.booleans()))
    return cluster(count, Link("wire", Fraction(draw(st.integers(1, 10)) * 10**8), draw(st.integers(0, 500))))


def assert_legal(run: Simulated) -> None:
    """Check a run against its graph: nothing starts too early or overlaps, no device waits while an op is ready, and
    every value is copied once to each device that reads it."""
    step, values = run.step, run.step.values.values
    home = [run.place[unit] for unit in step.units.home]
    start, end = run.start_ns.tolist(), run.end_ns.tolist()
    device = run.device.tolist()
    assert all(device[op] == run.place[unit] for op, unit in enumerate(step.units.of_op))
    assert all(end[op] - start[op] == step.ns[op][device[op]] for op in range(len(device)))
    left, arrived = _transfers(run)
    for copied, target in arrived:
        assert any(device[op] == target for op in values[copied].readers)
    earliest = [0] * len(device)
    for number, value in enumerate(values):
        made = end[value.writer] if value.writer >= 0 else 0
        for op in value.readers:
            there = made if device[op] == home[value.storage] else arrived.get((number, device[op]), made)
            assert (number, device[op]) in arrived or value.free or device[op] == home[value.storage]
            earliest[op] = max(earliest[op], there)
        if value.next >= 0:
            writer = values[value.next].writer
            readers = [end[op] for op in value.readers if op != writer and device[op] == home[value.storage]]
            earliest[writer] = max([earliest[writer], *readers, *left.get(number, ())])
    views = _views(step.graph)
    for op in range(len(device)):
        for earlier in views.get(op, ()):
            if device[earlier] == device[op]:
                earliest[op] = max(earliest[op], end[earlier])
        earliest[op] = max(earliest[op], int(run.issued_ns[op]))
        assert start[op] >= earliest[op]
    _assert_busy(device, start, end, earliest)


def _views(graph: Graph) -> dict[int, set[int]]:
    """The ops that make the views that an op uses."""
    made: dict[int, int] = {}
    found: defaultdict[int, set[int]] = defaultdict(set)
    for op, record in enumerate(graph.ops):
        for tensor in record.inputs:
            if tensor in made:
                found[op].add(made[tensor])
        written = graph.index.writes[op]
        made.update({tensor: op for tensor in record.outputs if graph.index.owner[tensor] not in written})
    return found


def _transfers(run: Simulated) -> tuple[dict[int, list[int]], dict[tuple[int, int], int]]:
    """When copies of each value have left their source, and when they arrive; queues take one at a time."""
    step = run.step
    left: defaultdict[int, list[int]] = defaultdict(list)
    arrived: dict[tuple[int, int], int] = {}
    by_queue: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    columns = (run.sent, run.send_lane, run.send_target, run.send_start_ns, run.send_end_ns)
    for value, lane, target, begin, finish in zip(*(column.tolist() for column in columns), strict=True):
        by_queue[step.cluster.queues[lane]].append((begin, finish))
        hop = step.cluster.wires[lane]
        record = step.values.values[value]
        assert finish - begin == hop.transfer_ns(record.nbytes)
        if hop.source == run.place[step.units.home[record.storage]]:
            left[value].append(finish)
            assert begin >= (run.end_ns[record.writer] if record.writer >= 0 else 0)
        if hop.target == target:
            assert (value, target) not in arrived
            arrived[value, target] = finish
    for spans in by_queue.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    return left, arrived


def _assert_busy(device: Sequence[int], start: Sequence[int], end: Sequence[int], earliest: Sequence[int]) -> None:
    """A device runs one op at a time, and until an op starts that was ready, it is never idle."""
    for each in set(device):
        ops = sorted((op for op, one in enumerate(device) if one == each), key=lambda op: (start[op], end[op]))
        free = 0
        idle: list[tuple[int, int]] = []
        for op in ops:
            assert start[op] >= free
            if start[op] > free:
                idle.append((free, start[op]))
            free = max(free, end[op])
        for op in ops:
            waits = [(max(begin, earliest[op]), min(stop, start[op])) for begin, stop in idle]
            assert all(begin >= stop for begin, stop in waits)
