"""Gradients exchanged beside the computation: what runs when, what is exposed."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import NothingFits, RequestError
from tensortide.graph import Graph, Phase, Role
from tensortide.graph.communication import kind_of, moves_data
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed.configuration import Configuration
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, follow, place, placed, ready
from tensortide.placements.graphs.exchanges import EXCHANGES, exchanges_of
from tensortide.placements.graphs.problem import GraphProblem
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.plans import Compute, Send
from tensortide.plans.lanes import check_lanes
from tensortide.recorder.torch_compat import assign_buckets
from tensortide.reports.blocks import Table
from tensortide.reports.pictures import Spans
from tensortide.reports.sections.placed_step import section
from tensortide.run.placed.exchange import combined, reduction
from tensortide.studies.scale.stage import added_exchange_ns, stage
from tensortide.timelines.data_parallel import FIRST_BUCKET_BYTES
from tensortide.timing.collectives import COLLECTIVES
from tensortide.timing.collectives import nodes_of as node
from tensortide.timing.durations import Durations, identity
from tensortide.timing.links import Link
from tests.examples.tiny import TINY
from tests.placements.graphs.steps import BRIEF, GPU, cluster

SLOWER = Fraction(15, 100)
"""Part of a device's rate that an exchange takes."""
FAST, SLOW = (Link("wire", Fraction(rate * 10**9), 1_000) for rate in (300, 20))


@functools.cache
def wide(rows: int = 2048) -> Graph:
    """Layers of 4 MiB each, whose update is a few ops for each."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6)))
    return tensortide.capture(model, torch.randn(rows, 1024), loss="sum", optimizer="sgd")


@functools.cache
def tiny(name: str) -> Graph:
    return tensortide.capture(name, hyperparameters={**TINY[name], "batch": 4, "optimizer": "sgd"}, real=True)


def on_groups(graph: Graph, link: Link = FAST, size: int = 1, **options: object) -> PlacedStep:
    """Two groups of ``size`` devices, units in stretches on them, whose hosts take no time unless ``options`` say."""
    settings = PlaceOptions(data=2, **{"launch": "none"} | options)  # type: ignore[arg-type]
    prepared = ready(graph, cluster(2 * size, link), settings)
    count = len(prepared.problem.names)
    return placed(prepared, [unit * size // count for unit in range(count)])


def shared(spans: list[tuple[int, int]], start: int, end: int) -> int:
    return sum(max(0, min(stop, end) - max(begin, start)) for begin, stop in spans)


def buckets_of_pytorch(tensors: list[torch.Tensor], numbers: list[int], first: int, limit: int) -> list[list[int]]:
    """The buckets of tensors by their numbers, as ``DistributedDataParallel`` fills them in the order of gradients."""
    if not tensors:
        return []
    groups, _ = assign_buckets(tensors, [first, limit], [False] * len(tensors), list(range(len(tensors))))
    return [[numbers[place] for place in group] for group in groups]


def assert_beside(found: PlacedStep) -> None:
    """Check a run against its graph, from the times of its ops.

    Buckets start when their last gradient has been written, and its views made, and the one before has arrived; they
    take the time of the collective. An op takes longer by what an exchange takes from it. No op reads what an exchange
    brings before the last one has arrived, nor does any of the update of its device run.
    """
    run, graph, replicas = found.simulated, found.ready.graph, found.ready.replicas
    assert replicas is not None
    start, end, device = run.start_ns.tolist(), run.end_ns.tolist(), run.device.tolist()
    owner = graph.index.owner
    made = [
        {*writes, *(owner[t] for t in op.outputs)} for op, writes in zip(graph.ops, graph.index.writes, strict=True)
    ]
    exchanges = {op: own for own in found.exchange_runs for bucket in own for op in bucket.ops}
    assert run.step.beside is not None
    for number, own in enumerate(found.exchange_runs):
        ops = [op for op in sorted(exchanges) if device[op] == number]
        views = [graph.tensors[graph.ops[op].inputs[0]] for op in ops]
        tensors = [torch.empty(view.shape, dtype=getattr(torch, view.dtype)) for view in views]
        limits = run.step.beside.first_bytes, run.step.beside.bucket_bytes
        assert [list(bucket.ops) for bucket in own] == buckets_of_pytorch(tensors, ops, *limits)
        assert found.averages[number].buffers_bytes == sum(tensor.nbytes for tensor in tensors)
        before, spans = 0, [(bucket.start_ns, bucket.end_ns) for bucket in own]
        for bucket in own:
            written = {storage for op in bucket.ops for storage in graph.index.writes[op]}
            assert sum(int(graph.storages[storage].nbytes) for storage in written) == bucket.nbytes
            makers = [op for op in range(min(bucket.ops)) if written & made[op]]
            assert bucket.start_ns == max(before, *(end[op] for op in makers))
            assert {(start[op], end[op]) for op in bucket.ops} == {(bucket.start_ns, bucket.end_ns)}
            exact = replicas.exchange_ns("all_reduce", number, bucket.nbytes)
            assert bucket.end_ns - bucket.start_ns == pytest.approx(exact, rel=2e-3, abs=1)
            before = bucket.end_ns
            later = [op for op in range(len(graph)) if op not in exchanges and op > min(bucket.ops)]
            users = [op for op in later if written & {*graph.index.reads[op], *graph.index.writes[op]}]
            update = [op for op in later if device[op] == number and graph.ops[op].phase is Phase.OPTIMIZER]
            assert users
            assert all(start[op] >= spans[-1][1] for op in (*users, *update))
        for op in range(len(graph)):
            if device[op] == number and op not in exchanges:
                lost = SLOWER * shared(spans, start[op], end[op])
                assert end[op] - start[op] - lost == pytest.approx(run.step.ns[op][number], abs=2 + len(spans))
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(spans)))
        if own:
            times = [bucket.end_ns - bucket.start_ns for bucket in own]
            assert times[-1] <= found.averages[number].exposed_ns <= sum(times)
    assert found.bounds.best_ms * 1e6 <= found.step_ns
    check_lanes(found.plan, graph)
    assert follow(found.ready, found.plan).makespan_ns == found.step_ns


def test_levels_leave_out_the_workspace_of_exchanges_beside_compute_as_peaks_do() -> None:
    ops = len(on_groups(wide()).ready.graph)
    found = on_groups(wide(), workspace=[1 << 26] * ops)
    assert any(found.exchange_runs)
    assert [int(level.level.max()) for level in found.timeline.levels] == list(found.simulated.peak_bytes)


def at_start(found: PlacedStep, device: int) -> int:
    times, level = found.timeline.levels[device]
    return int(level[times == 0][-1])


def test_peaks_have_the_buffers_of_buckets() -> None:
    """One more copy of all gradients, all the time: those of the weights and biases of six layers."""
    for size in (1, 2):
        apart, beside = (on_groups(wide(), size=size, overlap=overlap) for overlap in (False, True))
        buffers = [one.buffers_bytes for one in beside.averages]
        assert sum(buffers) == 6 * 1024 * 1025 * 4
        assert {one.buffers_bytes for one in apart.averages} == {0}
        for number, (peak, own) in enumerate(zip(beside.simulated.peak_bytes, buffers, strict=True)):
            assert peak == beside.timeline.levels[number].level.max()
            assert at_start(beside, number) - at_start(apart, number) == own > 0
            if size == 1:
                assert peak == apart.simulated.peak_bytes[0] + own
        units = beside.ready.problem.memory.sum() - apart.ready.problem.memory.sum()
        assert units == beside.ready.problem.resident.sum() - apart.ready.problem.resident.sum()
        assert units == 6 * 1024 * 1025 * 4


def test_a_step_is_refused_whose_buffers_have_no_room() -> None:
    weights = 6 * 1024 * 1025 * 4
    small = cluster(2, FAST, capacity_bytes=weights + (10 << 20))
    ready(wide(), small, PlaceOptions(data=2, overlap=False))
    with pytest.raises(NothingFits, match="bytes throughout"):
        ready(wide(), small, PlaceOptions(data=2))


@pytest.mark.parametrize("link", [FAST, SLOW])
@pytest.mark.parametrize("bucket_bytes", [0, 6 << 20, None, 1 << 40])
def test_exchanges_run_beside_the_computation_of_one_device(link: Link, bucket_bytes: int | None) -> None:
    found = on_groups(wide(), link, bucket_bytes=bucket_bytes)
    assert_beside(found)
    (own,) = found.exchange_runs
    assert len(own) == {0: 12, 6 << 20: 4, None: 2, 1 << 40: 1}[bucket_bytes]
    busy = found.simulated.busy_ns[0]
    assert found.step_ns == busy + found.averages[0].exposed_ns
    times = sum(bucket.end_ns - bucket.start_ns for bucket in own)
    alone = int(found.simulated.step.computing_ns.sum())
    assert busy - alone == pytest.approx(SLOWER * (times - found.averages[0].exposed_ns), abs=4 * len(own))


@pytest.mark.parametrize(
    ("name", "size", "bucket_bytes"),
    [
        ("gpt2", 1, 0),
        ("gpt2", 3, None),
        ("gpt2", 3, 4096),
        pytest.param("resnet18_cifar", 3, 4096, marks=pytest.mark.slow),
    ],
)
def test_each_stage_of_a_group_has_buckets_of_its_own(name: str, size: int, bucket_bytes: int | None) -> None:
    found = on_groups(tiny(name), size=size, bucket_bytes=bucket_bytes)
    assert_beside(found)
    gradients = {e.tensor for e in tiny(name).named if e.role is Role.PARAMETER}
    storages = {tiny(name).tensors[tensor].storage for tensor in gradients}
    whole = sum(int(tiny(name).storages[storage].nbytes) for storage in storages)
    assert sum(one.gradients_bytes for one in found.averages) == whole


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_gradients_of_several_micro_batches_travel_with_the_last(schedule: ScheduleName) -> None:
    found = on_groups(wide(), SLOW, 2, schedule=schedule, micro_batches=3)
    assert_beside(found)
    assert sum(one.gradients_bytes for one in found.averages) == 6 * 1024 * 1025 * 4
    late, early = (own[0].start_ns for own in found.exchange_runs)
    assert early < late  # the last stage has its gradients first


def clipped() -> Callable[[], None]:
    """A step that clips gradients by their norm: of all layers, wherever they are."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 6)

    def step() -> None:
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_means_are_sent_to_other_devices_once_they_have_arrived() -> None:
    """In the Plan too: a send of a mean stands after the last all-reduce of its lane, and before the update."""
    grouping = Grouping("closure", free_backward=True)
    options = PlaceOptions(grouping, data=2, bucket_bytes=100, launch="none")
    prepared = ready(tensortide.capture(clipped(), real=True), cluster(6), options)
    draw, graph, sent = random.Random(0), prepared.graph, 0
    for _ in range(8):
        found = placed(prepared, [draw.randrange(3) for _ in prepared.problem.names])
        assert_beside(found)
        exchanges = {op for own in found.exchange_runs for bucket in own for op in bucket.ops}
        for lane in found.plan.lanes:
            reduced: set[int] = set()
            for number, step in enumerate(lane.steps):
                if isinstance(step, Compute) and step.op in exchanges:
                    reduced |= set(graph.index.writes[step.op])
                if isinstance(step, Send) and step.storage in reduced:
                    sent += 1
                    rest = {later.op for later in lane.steps[number:] if isinstance(later, Compute)}
                    assert rest.isdisjoint(exchanges)
    assert sent > 10


def test_the_step_is_that_of_scale_with_overlap() -> None:
    """Its closed formula adds what is exposed and what is lost to a step that no exchange slows down. It has a gradient
    ready once it is written, and here it is once autograd has also made a view of it."""
    nodes = node(GPU, devices_per_node=2, link_gbytes_per_s=300)
    found = on_groups(wide(), bucket_bytes=1)
    rank = per_rank(wide(), Degrees(data=2), bucket_bytes=1).graph
    one = Configuration(batch=2048, micro_batch=1024, data=2, overlap_data=True)
    other = stage(rank, one, nodes, GPU)
    passes = other.forward_ns + other.backward_ns + other.update_ns
    exchange = found.step_ns - int(found.simulated.step.computing_ns.sum())
    assert exchange == pytest.approx(added_exchange_ns(other, one), rel=0.1)
    assert found.step_ns == pytest.approx(passes + added_exchange_ns(other, one), rel=0.02)


def test_without_overlap_each_gradient_takes_its_time_on_the_device() -> None:
    apart, beside = on_groups(wide(), overlap=False), on_groups(wide())
    ns = beside.simulated.step.ns
    assert (apart.simulated.step.ns == ns).all()
    assert apart.step_ns == ns.sum() == apart.simulated.busy_ns[0]
    (one,), (other,) = apart.averages, beside.averages
    assert one.exposed_ns == sum(ns[op][0] for run in apart.exchange_runs[0] for op in run.ops)
    assert one.gradients_bytes == other.gradients_bytes
    assert apart.ready.graph == beside.ready.graph
    assert beside.step_ns < apart.step_ns


def test_the_first_bucket_is_small() -> None:
    graph, found = tiny("gpt2"), on_groups(tiny("gpt2"))
    assert found.averages[0].exchanges == 1
    assert found.averages[0].gradients_bytes < FIRST_BUCKET_BYTES
    assert on_groups(wide()).exchange_runs[0][0].nbytes >= FIRST_BUCKET_BYTES
    assert on_groups(graph, bucket_bytes=0).averages[0].exchanges > 20


def test_known_times_of_a_bucket_are_those_of_its_gradients() -> None:
    prepared = ready(wide(), cluster(2), PlaceOptions(data=2, launch="none"))
    times = Durations((7,) * len(prepared.graph), "given", "estimated", graph=identity(prepared.graph))
    known = ready(wide(), cluster(2), PlaceOptions(data=2, launch="none"), {"gpu0": times})
    found = placed(known, [0] * len(known.problem.names))
    for bucket in found.exchange_runs[0]:
        assert bucket.end_ns - bucket.start_ns == 7 * len(bucket.ops)


def test_searches_and_their_files_tell_buckets_apart() -> None:
    problems: list[GraphProblem] = [
        ready(tiny("gpt2"), cluster(4), PlaceOptions(data=2, **each)).problem
        for each in ({}, {"overlap": False}, {"bucket_bytes": 4096})
    ]
    assert len({problem.digest for problem in problems}) == 3
    found = place(
        tiny("gpt2"), cluster(4, SLOW), PlaceOptions(data=2, bucket_bytes=4096, launch="none"), by=BRIEF, budget=15
    )
    assert_beside(found)
    score, _ = found.ready.problem.evaluate(np.array(found.simulated.place))
    assert score[0] == found.step_ns / 1e6


def test_lanes_of_the_timeline_have_each_exchange_on_the_link_that_leaves_the_group() -> None:
    found = on_groups(wide(), SLOW, 2)
    line = found.timeline
    assert line.lanes[-2:] == ("gpu0 > gpu2", "gpu1 > gpu3")
    events = line.events
    for number, own in enumerate(found.exchange_runs):
        on_link = events.lane == len(line.lanes) - 2 + number
        assert {*events.index[on_link].tolist()} == {op for bucket in own for op in bucket.ops}
    assert sorted(line.run_op.tolist()) == list(range(len(found.ready.graph)))
    assert line.makespan_ns == found.step_ns
    assert all(0 < one.idle_share < 1 for one in found.devices)


def test_every_row_of_the_table_is_a_collective_that_steps_have_and_processes_run() -> None:
    """A row needs a price, ops of the step, and a mean that ranks compute."""
    assert EXCHANGES.keys() <= COLLECTIVES.keys()
    graph = on_groups(wide()).ready.graph
    collectives = [op for op in graph if moves_data(op.name)]
    assert {kind_of(op.name) for op in collectives} == EXCHANGES.keys()
    assert [each.op for each in exchanges_of(graph)] == [op.index for op in collectives]
    for op in collectives:
        assert combined([torch.tensor(2.0), torch.tensor(6.0)], reduction(op.call)) == 4


def test_buckets_of_less_than_nothing_are_refused() -> None:
    with pytest.raises(RequestError, match="--bucket-bytes takes a whole number from 0, not -1"):
        PlaceOptions(data=2, bucket_bytes=-1)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("link", [FAST, SLOW])
def test_hosts_issue_ops_beside_exchanges(link: Link, size: int) -> None:
    """Exchanges are launched as gradients are ready, and take the host no time."""
    found, free = on_groups(wide(), link, size, launch="eager"), on_groups(wide(), link, size)
    assert found.step_ns > free.step_ns >= free.bounds.critical_path_ms * 1e6 - 1
    assert found.step_ns >= found.bounds.best_ms * 1e6 - 1
    line, run, step = found.timeline, found.simulated, found.simulated.step
    assert len(set(line.lanes)) == len(line.lanes)
    rings = [lane for lane in line.lanes if lane in step.beside.lanes]  # type: ignore[union-attr]
    assert len(rings) == len(line.hosts) == size
    events = line.events
    on_ring = np.isin(events.lane, [line.lanes.index(lane) for lane in rings])
    assert sorted(events.index[on_ring]) == np.flatnonzero(~step.computes).tolist()
    assert (run.issuing_ns[~step.computes] == 0).all()
    computing = step.computes
    assert (run.start_ns[computing] >= run.issued_ns[computing]).all()
    for device in range(size):
        own = np.flatnonzero(computing & (run.device == device))
        order = own[np.lexsort((run.end_ns[own], run.start_ns[own]))]
        assert (run.start_ns[order][1:] >= run.end_ns[order][:-1]).all()


def test_the_picture_has_one_run_for_each_bucket() -> None:
    """As many as the table counts, from when a bucket left to when it had arrived, with all its gradients."""
    found = on_groups(wide(), size=2)
    document = section(found)
    table = next(block for block in document.blocks if isinstance(block, Table) and block.key == "exchanges")
    counted = next(column.values for column in table.columns if column.key == "exchanges")
    (picture,) = (block for block in document.blocks if isinstance(block, Spans))
    assert found.simulated.step.beside is not None
    for device, lane in enumerate(found.simulated.step.beside.lanes):
        (drawn,) = (each for each in picture.lanes if each.label == lane)
        runs = found.exchange_runs[device]
        assert len(drawn.start) == counted[device] == len(runs) > 1
        assert [*zip(drawn.start, drawn.end, strict=True)] == [(each.start_ns, each.end_ns) for each in runs]
        assert drawn.names == tuple(
            f"bucket {turn} of {len(runs)}: {len(each.ops)} gradient{'s' * (len(each.ops) > 1)}"
            for turn, each in enumerate(runs, 1)
        )
        assert set(drawn.kinds) == {"exchange"}


def test_what_waits_for_its_host_is_not_slowed_by_an_exchange() -> None:
    """Small layers: the device is idle until its host has issued the next op, while gradients are exchanged."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(24)))
    graph = tensortide.capture(model, torch.randn(8, 64), loss="sum", optimizer="sgd", real=True)
    found = on_groups(graph, SLOW, bucket_bytes=20_000, launch="eager")
    run, step = found.simulated, found.simulated.step
    assert len(found.exchange_runs[0]) > 4
    update = int(step.tables.exchanges.update)
    ops = np.flatnonzero(step.computes & (np.arange(len(run.start_ns)) < update))
    assert run.start_ns[ops].tolist() == np.maximum(run.issued_ns[ops], [0, *run.end_ns[ops][:-1]]).tolist()
    assert (run.start_ns[ops][1:] > run.end_ns[ops][:-1]).mean() > 0.5
    assert step.issue_ns[~step.computes].sum() == 0
    assert found.bounds.best_ms <= found.step_ns / 1e6
