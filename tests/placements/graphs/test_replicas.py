"""Groups of devices with a part of the batch each: bytes by hand, times of the collective model, groups that differ."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from fractions import Fraction

import msgspec
import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import DegreesError, PlanError
from tensortide.graph import Graph, Phase, Role
from tensortide.graph.communication import moves_data
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import PlacedStep, PlaceOptions, follow, place, placed, ready
from tensortide.placements.graphs.replicas import replica_groups
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.studies.scale.stage import added_exchange_ns, stage
from tensortide.timing.catalogue import device
from tensortide.timing.clusters import Channel, Cluster
from tensortide.timing.collectives import nodes_of as node
from tensortide.timing.durations import Durations, identity
from tensortide.timing.links import Link
from tests.examples.tiny import TINY
from tests.placements.graphs.steps import BRIEF, GPU, assert_legal, cluster

ROWS, WIDTHS, F32 = 12, (6, 8, 4), 4
OF_LAYER = tuple((a + 1) * b * F32 for a, b in itertools.pairwise(WIDTHS))
"""Bytes of the weight and the bias of each of two layers."""
HALVES = {"1": 1, "(outside)": 1}
"""The second layer and the loss on the second device."""


@functools.cache
def step(rows: int = ROWS) -> Graph:
    model = nn.Sequential(nn.Linear(*WIDTHS[:2]), nn.Linear(*WIDTHS[1:]))
    return tensortide.capture(model, torch.randn(rows, WIDTHS[0]), loss="sum", optimizer="sgd", real=True)


def put(on: dict[str, int], devices: int, data: int, graph: Graph | None = None, **options: object) -> PlacedStep:
    """The step on groups that exchange gradients one by one, each unit on the device of its name, or on the first of
    the group."""
    options = {"overlap": False} | options
    prepared = ready(graph or step(), cluster(devices), PlaceOptions(data=data, **options))  # type: ignore[arg-type]
    found = placed(prepared, [on.get(name, 0) for name in prepared.problem.names])
    if options.get("schedule") != "1f1b":  # which waits although an op is ready
        assert_legal(found.simulated)
    assert found.simulated.makespan_ns == follow(prepared, found.plan).makespan_ns
    return found


def all_reduces(found: PlacedStep) -> list[int]:
    return [op.index for op in found.ready.graph if moves_data(op.name)]


def test_one_group_is_the_step_without_groups() -> None:
    one, none = (
        place(step(), cluster(2), options, by=BRIEF, budget=30) for options in (PlaceOptions(data=1), PlaceOptions())
    )
    assert one.ready.graph == none.ready.graph
    assert one.ready.problem.digest == none.ready.problem.digest
    assert (one.step_ns, one.plan, one.link_bytes) == (none.step_ns, none.plan, none.link_bytes)


def test_bytes_of_two_groups_of_two_devices() -> None:
    found = put(HALVES, 4, 2)
    middle = ROWS // 2 * WIDTHS[1] * F32  # an activation there, its gradient back, of half of the batch
    assert {name: nbytes for name, nbytes in found.link_bytes.items() if nbytes} == {
        "gpu0 > gpu1": middle,
        "gpu1 > gpu0": middle,
        "gpu2 > gpu3": middle,
        "gpu3 > gpu2": middle,
        "gpu0 > gpu2": OF_LAYER[0],
        "gpu2 > gpu0": OF_LAYER[0],
        "gpu1 > gpu3": OF_LAYER[1],
        "gpu3 > gpu1": OF_LAYER[1],
    }
    assert [lane.device for lane in found.plan.lanes] == ["gpu0", "gpu1"]


def test_each_link_of_a_ring_has_its_share() -> None:
    found = put({}, 3, 3)
    each = sum(round(Fraction(2 * 2, 3) * bucket.nbytes) for bucket in found.exchange_runs[0])
    assert found.averages[0].gradients_bytes == sum(OF_LAYER)
    assert {name: nbytes for name, nbytes in found.link_bytes.items() if nbytes} == {
        "gpu0 > gpu1": each,
        "gpu1 > gpu2": each,
        "gpu2 > gpu0": each,
    }


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_gradients_of_several_micro_batches_are_exchanged_once(schedule: ScheduleName) -> None:
    found = put(HALVES, 4, 2, schedule=schedule, micro_batches=3)
    assert found.link_bytes["gpu0 > gpu2"] == OF_LAYER[0]
    assert found.link_bytes["gpu0 > gpu1"] == 3 * ROWS // 2 * WIDTHS[1] * F32
    graph, run = found.ready.graph, found.simulated
    backward = [i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD]
    for op in all_reduces(found):
        own = [i for i in backward if set(graph.index.writes[i]) & set(graph.index.writes[op])]
        assert own
        assert all(run.end_ns[i] <= run.start_ns[op] for i in own)


def test_every_gradient_is_averaged_before_the_optimizer_reads_it() -> None:
    for options in ({}, {"shards": (Shard("1", "output", 2),)}, {"micro_batches": 2, "schedule": "gpipe"}):
        graph = put({}, 2, 2, **options).ready.graph
        seen: set[int] = set()
        for op in graph:
            if moves_data(op.name):
                seen.update(graph.index.writes[op.index])
            elif op.phase is Phase.OPTIMIZER:
                read = {s for s in graph.index.reads[op.index] if graph.storages[s].role.name == "GRADIENT"}
                assert read <= seen
        assert sum(int(graph.storages[s].nbytes) for s in seen) == sum(OF_LAYER)


def test_each_all_reduce_takes_the_time_of_the_collective_model() -> None:
    """And the step that of ``scale`` with as small buckets, on the same link, where nothing overlaps."""
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(3)))
    graph = tensortide.capture(model, torch.randn(4096, 2048), loss="sum", optimizer="sgd")
    link = Link("nvlink", Fraction(300 * 10**9), 1_000)
    prepared = ready(graph, cluster(2, link), PlaceOptions(data=2, overlap=False))
    found = placed(prepared, [0] * len(prepared.problem.names))
    nodes = node(GPU, devices_per_node=2, link_gbytes_per_s=300)
    rank = per_rank(graph, Degrees(data=2), bucket_bytes=1).graph
    one = Configuration(batch=4096, micro_batch=2048, data=2)
    other = stage(rank, one, nodes, GPU)
    run = found.simulated
    times = sum(int(run.end_ns[op] - run.start_ns[op]) for op in all_reduces(found))
    assert times == pytest.approx(sum(bucket.ns for bucket in other.buckets), abs=len(other.buckets))
    whole = other.forward_ns + other.backward_ns + other.update_ns + added_exchange_ns(other, one)
    assert found.step_ns == pytest.approx(whole, rel=0.02)
    assert found.bounds.best_ms * 1e6 <= found.step_ns


def test_known_times_are_those_of_exchanges_too() -> None:
    options = PlaceOptions(data=2, overlap=False, launch="none")
    prepared = ready(step(), cluster(2), options)
    times = Durations((7,) * len(prepared.graph), "given", "estimated", graph=identity(prepared.graph))
    known = ready(step(), cluster(2), options, {"gpu0": times})
    assert placed(known, [0] * len(known.problem.names)).step_ns == 7 * len(prepared.graph)


@pytest.mark.parametrize("name", ["gpt2", "resnet18_cifar", "llama"])
def test_all_trainable_parameters_are_exchanged(name: str) -> None:
    graph = tensortide.capture(name, hyperparameters={**TINY[name], "batch": 4}, real=True)
    prepared = ready(graph, cluster(2), PlaceOptions(data=2))
    found = placed(prepared, [0] * len(prepared.problem.names))
    parameters = {e.tensor for e in graph.named if e.role is Role.PARAMETER}
    storages = {graph.tensors[tensor].storage for tensor in parameters}
    assert found.averages[0].gradients_bytes == sum(int(graph.storages[storage].nbytes) for storage in storages)


def test_memory_of_a_group_is_that_of_a_part_of_the_batch() -> None:
    found, half = put(HALVES, 4, 2), put(HALVES, 2, 1, step(ROWS // 2))
    assert [one.peak_bytes for one in found.devices] == [one.peak_bytes for one in half.devices]


def test_a_step_that_fits_no_device_fits_in_groups() -> None:
    model = nn.Sequential(nn.Linear(64, 512), nn.Linear(512, 512))
    graph = tensortide.capture(model, torch.randn(2048, 64), loss="sum", optimizer="sgd", real=True)
    small = cluster(2, capacity_bytes=10 << 20)
    alone = ready(graph, small, PlaceOptions())
    assert not placed(alone, [0] * len(alone.problem.names)).fits
    assert place(graph, small, PlaceOptions(data=2), by=BRIEF, budget=5).fits


def test_latency_of_the_links_counts() -> None:
    near, far = (put_on(Link("wire", Fraction(25 * 10**9), latency)) for latency in (0, 500_000))
    assert far.step_ns - near.step_ns > 4 * 500_000  # two hops for each of four parameters


def put_on(link: Link) -> PlacedStep:
    prepared = ready(step(), cluster(2, link), PlaceOptions(data=2, overlap=False))
    return placed(prepared, [0] * len(prepared.problem.names))


def test_directions_that_share_a_queue_share_its_rate() -> None:
    both = cluster(2)
    one = msgspec.structs.replace(both, channels=(Channel(both.channels[0].link, duplex=False),))
    rates = [replica_groups(each, 2).rings[0].bytes_per_ns for each in (both, one)]
    assert rates == [25.0, 12.5]


def on_one(machine: Cluster, *pairs: tuple[int, int], duplex: bool = True) -> Cluster:
    """``machine`` with the links of ``pairs``, or of all, on one channel."""
    links = [
        msgspec.structs.replace(each, channel=len(machine.channels))
        if not pairs or tuple(sorted((each.source, each.target))) in pairs
        else each
        for each in machine.links
    ]
    channels = (*machine.channels, Channel(machine.channels[0].link, duplex))
    return msgspec.structs.replace(machine, links=tuple(links), channels=channels)


@pytest.mark.parametrize("data", [2, 4])
def test_links_of_a_ring_on_one_channel_share_its_rate(data: int) -> None:
    machine = cluster(4)
    one_way, both_ways = on_one(machine, duplex=False), on_one(machine)
    rates = [replica_groups(each, data).rings[0].bytes_per_ns for each in (one_way, both_ways, machine)]
    # Of two devices one lane goes each way; round four of them three go up and one down.
    assert rates == pytest.approx([25 / data, 25 / (data - 1), 25])


def other_queue(machine: Cluster) -> Cluster:
    """Both ways share a queue in the first pair of devices, and have one each in the second."""
    return on_one(machine, (0, 1), duplex=False)


def other_device(machine: Cluster) -> Cluster:
    last = msgspec.structs.replace(machine.devices[3], row=device("H100-SXM-80GB"))
    return msgspec.structs.replace(machine, devices=(*machine.devices[:3], last))


def other_memory(machine: Cluster) -> Cluster:
    last = msgspec.structs.replace(machine.devices[3], capacity_bytes=1000)
    return msgspec.structs.replace(machine, devices=(*machine.devices[:3], last))


def without(machine: Cluster, *pair: int) -> Cluster:
    left = tuple(each for each in machine.links if {each.source, each.target} != {*pair})
    return msgspec.structs.replace(machine, links=left)


@pytest.mark.parametrize(
    ("change", "data", "text"),
    [
        (other_device, 2, "group 1 differs from group 0: gpu3 is H100-SXM-80GB .*, gpu1 is A100-SXM-80GB"),
        (other_memory, 2, "group 1 differs from group 0: gpu3 is A100-SXM-80GB with 1,000 bytes, gpu1 is"),
        (lambda m: without(m, 2, 3), 2, "from gpu2 to gpu3 leads no link, from gpu0 to gpu1 25 GB/s, 2 us"),
        (lambda m: without(m, 1, 3), 2, "gpu1 and gpu3 correspond to each other .* they need a link of their own"),
        (other_queue, 2, "from gpu2 to gpu3 leads 25 GB/s, 2 us, from gpu0 to gpu1 25 GB/s, 2 us, one queue"),
        (lambda _: on_one(cluster(6), (0, 1), (0, 2)), 2, "other links inside it share a channel"),
        (lambda m: m, 3, "4 devices are not 3 equal groups: 4 / 3 is not whole"),
    ],
)
def test_groups_that_cannot_be_are_refused(change: Callable[[Cluster], Cluster], data: int, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        ready(step(), change(cluster(4)), PlaceOptions(data=data))


def test_a_batch_that_groups_do_not_divide_is_refused() -> None:
    with pytest.raises(DegreesError, match=r"batch 12 / 8 parts .* is not whole"):
        ready(step(), cluster(8), PlaceOptions(data=8))
