"""Channels that exchanges share with transfers: hand counts, and every random step as plain Python plays it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.graph import Graph, Phase, Role
from tensortide.placements.graphs import Grouping, PlaceOptions, placed, ready, units_of
from tensortide.placements.graphs.channels import SharedChannel
from tensortide.placements.graphs.exchanges import Beside, ExchangeOp
from tensortide.placements.graphs.placed_timeline import PlacedTimeline
from tensortide.placements.graphs.replicas import replica_groups
from tensortide.placements.graphs.schedules import MicroBatchSchedule
from tensortide.placements.graphs.simulate import Simulated, Simulator
from tensortide.placements.graphs.tables import Step, step_of
from tensortide.timing.links import Link
from tests.graphs import Builder
from tests.placements.graphs.slow_events import SlowRun
from tests.placements.graphs.steps import cluster, clusters, line
from tests.placements.graphs.test_replicas import HALVES, on_one
from tests.placements.graphs.test_replicas import step as two_layers

BYTE_NS = Link("wire", Fraction(10**9), 0)
"""A link over which a byte takes a nanosecond."""


def beside(exchanges: Sequence[ExchangeOp], devices: int, channels: Sequence[SharedChannel], limit: int = 0) -> Beside:
    """Exchanges whose buckets take the times of their ops."""
    sizes = np.arange(1, 2 + sum(each.nbytes for each in exchanges))
    streams = len({(each.kind, each.dtype) for each in exchanges})
    times = np.full((devices, streams, len(sizes)), -1)
    return Beside(tuple(exchanges), sizes, times, limit, limit, ("ring",) * devices, tuple(channels))


def small() -> Graph:
    """A gradient on one device, a value that it sends to another one, and an exchange; 4 ops and an update."""
    builder = Builder()
    weight = builder.storage(40, Role.PARAMETER)
    other = builder.storage(40, Role.PARAMETER)
    gradient = builder.storage(40, Role.GRADIENT, birth=0)
    builder.op([weight], [gradient], phase=Phase.BACKWARD)
    sent = builder.storage(50, birth=1, death=3)
    builder.op([weight], [sent], phase=Phase.BACKWARD)
    builder.op([sent, other], [builder.storage(8, birth=2)], phase=Phase.BACKWARD)
    builder.op([gradient], mutated=(0,), name="c10d.allreduce_.default", phase=Phase.OPTIMIZER)
    builder.op([weight, gradient], mutated=(0,), name="test.update_.default", phase=Phase.OPTIMIZER)
    return builder.graph()


def played(channels: Sequence[SharedChannel]) -> Simulated:
    graph = small()
    units = units_of(graph, Grouping("closure"))
    exchange = ExchangeOp(3, "all_reduce", "uint8", 40)
    step = step_of(units, cluster(2, BYTE_NS), [[10, 10, 5, 100, 1]] * 2, beside=beside([exchange], 2, channels))
    on_second = units.of_op[2]
    return Simulator(step, MicroBatchSchedule(priority="recorded")).run(
        [int(u == on_second) for u in range(len(units))]
    )


def test_an_exchange_and_a_transfer_share_a_channel() -> None:
    """The exchange starts at 10. The second op takes 10 / 0.85 ns beside it, so the transfer starts at 22. Alone they
    take 100 and 50. Together each takes twice as long: the transfer ends at 122, when 88 - 50 of the exchange are
    left."""
    alone, together = played(()), played([SharedChannel({0: 1}, {0: 1})])
    for run, sent, exchanged in ((alone, 72, 110), (together, 122, 160)):
        assert run.end_ns.tolist() == [10, 22, sent + 5, exchanged, exchanged + 1]
        assert (run.send_start_ns.tolist(), run.send_end_ns.tolist()) == ([22], [sent])
    assert played([SharedChannel({1: 1}, {0: 1})]).end_ns.tolist() == alone.end_ns.tolist()  # the way back
    twice = played([SharedChannel({0: 1}, {0: 2})])  # 100 = 12 + 75 * 2 / 3 + ...: the transfer has a third
    assert twice.end_ns[3] == 10 + 12 + 132
    assert twice.send_end_ns[0] == 22 + 132 + 50 - 44


@st.composite
def steps(draw: st.DrawFn) -> tuple[Step, list[int]]:
    """Layers in a row, whose gradients of several dtypes are exchanged beside others, on any cluster and channels."""
    builder, count = Builder(), draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 30).map(lambda size: 4 * size), min_size=count, max_size=count))
    weights = [builder.storage(size, Role.PARAMETER) for size in sizes]
    value, saved = builder.storage(64, Role.INPUT), list[int]()
    for weight in weights:
        left = builder.storage(draw(st.integers(0, 200)), birth=len(builder.ops))
        builder.op(
            [value, weight, *draw(st.lists(st.sampled_from(saved), max_size=1) if saved else st.just([]))], [left]
        )
        saved.append(left)
        value = left
    gradients = []
    for weight, left, size in reversed([*zip(weights, saved, sizes, strict=True)]):
        flow = builder.storage(draw(st.integers(1, 200)), birth=len(builder.ops))
        gradients.append(builder.storage(size, Role.GRADIENT, birth=len(builder.ops)))
        builder.op([value, left, weight], [flow, gradients[-1]], phase=Phase.BACKWARD)
        if draw(st.booleans()):
            builder.op([gradients[-1], flow], mutated=(0,), phase=Phase.BACKWARD)
        value = flow
    dtypes = [draw(st.sampled_from(("float32", "int32", "uint32"))) for _ in gradients]
    exchanges = []
    for gradient, dtype in zip(gradients, dtypes, strict=True):
        op = builder.op([gradient], mutated=(0,), name="c10d.allreduce_.default", phase=Phase.OPTIMIZER)
        exchanges.append(
            ExchangeOp(op, "all_reduce", dtype, int(builder.storages[builder.tensors[gradient].storage].nbytes))
        )
    for weight, gradient in zip(reversed(weights), gradients, strict=True):
        builder.op([weight, gradient], mutated=(0,), name="test.update_.default", phase=Phase.OPTIMIZER)
    return _on_any_machine(draw, builder.graph(), exchanges)


def _on_any_machine(draw: st.DrawFn, graph: Graph, exchanges: list[ExchangeOp]) -> tuple[Step, list[int]]:
    machine = draw(st.one_of(clusters(), st.just(line(3, duplex=False))))
    times = [[draw(st.integers(1, 300)) for _ in range(len(graph))] for _ in machine.devices]
    few = st.integers(1, 3)
    queues = st.dictionaries(st.sampled_from(sorted(set(machine.queues)) or [0]), few, max_size=3)
    rings = st.dictionaries(st.integers(0, len(machine) - 1), few, min_size=1)
    channels = [
        SharedChannel(own if machine.queues else {}, ring)
        for own, ring in draw(st.lists(st.tuples(queues, rings), max_size=3))
    ]
    made = beside(exchanges, len(machine), channels, draw(st.integers(0, 250)))
    made = replace(made, first_bytes=draw(st.integers(0, made.bucket_bytes)))
    if draw(st.booleans()):
        slopes = np.array([[draw(st.integers(0, 9)) for _ in made.streams] for _ in machine.devices])
        made = replace(made, size_ns=7 + slopes[:, :, None] * made.sizes)
    units = units_of(graph, Grouping("closure"))
    step = step_of(units, machine, times, beside=made)
    return step, [draw(st.integers(0, len(machine) - 1)) for _ in range(len(units))]


@pytest.mark.property
@given(steps())
def test_steps_run_as_plain_python_plays_them(drawn: tuple[Step, list[int]]) -> None:
    step, place = drawn
    run = Simulator(step, MicroBatchSchedule(priority="recorded")).run(place)
    slow = SlowRun(step, place)
    assert run.start_ns.tolist() == slow.start
    assert run.end_ns.tolist() == slow.end
    columns = (run.sent, run.send_lane, run.send_start_ns, run.send_end_ns)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == sorted(slow.sends)
    levels = PlacedTimeline(run).levels
    assert run.peak_bytes == tuple(int(level.level.max(initial=0)) for level in levels)


def test_groups_on_one_channel_have_a_part_of_its_rate() -> None:
    """Of 25 GB/s on one channel for all: two groups send to their second device at once, beside two lanes of each of
    two rings."""
    machine = on_one(cluster(4), duplex=False)
    groups, apart = replica_groups(machine, 2), replica_groups(cluster(4), 2)
    rates = [[float(lane.bytes_per_s) / 1e9 for lane in each.cluster.wires] for each in (groups, apart)]
    assert rates == [[12.5, 12.5], [25, 25]]
    assert groups.channels == (SharedChannel({0: 2}, {0: 2, 1: 2}),)
    assert apart.channels == ()
    assert [ring.bytes_per_ns for ring in groups.rings] == [12.5, 12.5]


def test_the_channels_of_a_ring_are_those_that_others_pass() -> None:
    first = replica_groups(on_one(cluster(4), (0, 1), (0, 2)), 2)  # the first device has one channel for both
    assert first.channels == (SharedChannel({0: 1}, {0: 1}), SharedChannel({1: 1}, {0: 1}))
    assert [float(lane.bytes_per_s) for lane in first.cluster.wires] == [25e9, 25e9]
    between = replica_groups(on_one(cluster(4), (0, 2), (1, 3)), 2)  # the groups have one channel between them
    assert between.channels == (SharedChannel({}, {0: 1, 1: 1}),) * 2
    apart = replica_groups(on_one(cluster(4), (0, 2)), 2)
    assert apart.channels == ()


def test_gradients_and_activations_on_one_channel_take_longer() -> None:
    slow = Link("wire", Fraction(10**7), 1_000)
    options = PlaceOptions(data=2, bucket_bytes=0, launch="none", priority="recorded")
    found = []
    for pairs in ((), ((0, 1), (1, 3))):
        prepared = ready(two_layers(), on_one(cluster(4, slow), *pairs) if pairs else cluster(4, slow), options)
        found.append(placed(prepared, [HALVES.get(name, 0) for name in prepared.problem.names]))
    apart, together = found
    assert together.link_bytes == apart.link_bytes
    assert together.step_ns > apart.step_ns
    assert len({each.ready.problem.digest for each in found}) == 2
