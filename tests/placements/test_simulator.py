"""Runs of random nets: the kernel, an oracle and the published rules agree; bounds and conservation laws hold."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.placements import ACCURATE, COMPAT, Cluster, Net, NetProblem, Settings, Simulation, simulate
from tensortide.placements.search.hill import HillClimbing
from tensortide.timing.clusters import ClusterLink
from tests.oracles import net_layout, net_simulation
from tests.placements.cases import PUBLISHED
from tests.placements.cases import cluster as published_cluster
from tests.placements.cases import net as published_net
from tests.placements.drawn import Literal, clusters, nets, published_settings, rings


def drawn_placement(data: st.DataObject, net: Net, cluster: Cluster) -> tuple[int, ...]:
    devices = st.integers(0, len(cluster.devices) - 1)
    return tuple(data.draw(st.lists(devices, min_size=len(net.order), max_size=len(net.order))))


def assert_oracle_agrees(found: Simulation) -> None:
    """The oracle plays the same events at the same times."""
    events: list[tuple[object, ...]] = []
    outcome = net_simulation.run(net_layout.Reader(found.tables), found.placement, lambda *event: events.append(event))
    assert (outcome.makespan, tuple(outcome.peaks)) == (found.makespan, found.peaks)
    assert (outcome.events, outcome.ops, outcome.transfers) == (found.events, found.ops, found.transfers)
    columns = [column.tolist() for column in found.record]
    assert [list(column) for column in zip(*events, strict=True)] == columns


@given(nets(), clusters(), published_settings(), st.data())
def test_kernel_and_oracle_follow_the_published_rules(
    net: Net, cluster: Cluster, settings: Settings, data: st.DataObject
) -> None:
    place = drawn_placement(data, net, cluster)
    found = simulate(net, cluster, place, settings)
    makespan, peaks, events = Literal(net, found.tables, place).run()
    assert found.makespan == makespan
    assert list(found.peaks) == peaks
    assert found.events == events
    assert_oracle_agrees(found)


@given(nets(), clusters(), st.data())
def test_kernel_and_oracle_agree_on_every_option(net: Net, cluster: Cluster, data: st.DataObject) -> None:
    batches = data.draw(st.integers(1, 4))
    rank = st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=len(net.order), max_size=len(net.order)).map(tuple)
    settings = Settings(
        batches=batches,
        pipeline_batches=data.draw(st.integers(1, 4)),
        include_backward=data.draw(st.booleans()),
        mode=data.draw(st.sampled_from([COMPAT, ACCURATE])),
        ties=data.draw(st.sampled_from(["heap", "fifo"])),
        egress=data.draw(st.sampled_from(["link", "device"])),
        op_gap_us=data.draw(st.sampled_from([0.0, 5.7])),
        transfer_overhead_us=data.draw(st.sampled_from([0.0, 25.0])),
        priority=data.draw(st.none() | rank),
        optimizer=data.draw(st.sampled_from(["sgd", "momentum", "adam"])),
    )
    place = drawn_placement(data, net, cluster)
    found = simulate(net, cluster, place, settings)
    assert_oracle_agrees(found)
    assert_conserves(found)
    if settings.mode is ACCURATE or settings.include_backward:
        base = np.zeros(len(cluster.devices), np.int64)
        np.add.at(base, np.array(place), found.tables.resident)
        assert found.memory.nbytes[:, -1].tolist() == base.tolist()  # all that a batch stores is released


@given(nets(), rings(), st.sampled_from([None, 5.7]), st.data())
def test_kernel_and_oracle_agree_on_routes(
    net: Net, cluster: Cluster, overhead: float | None, data: st.DataObject
) -> None:
    devices = st.sampled_from(cluster.placeable)
    place = data.draw(st.lists(devices, min_size=len(net.order), max_size=len(net.order)))
    found = simulate(net, cluster, place, batches=3, pipeline_batches=2, transfer_overhead_us=overhead or 0)
    assert_oracle_agrees(found)
    assert_conserves(found)
    sent = {(e.batch, e.layer, e.backward, e.target) for e in found.trace if e.kind == "transfer"}
    assert len(sent) == found.transfers


def assert_conserves(found: Simulation) -> None:
    """Every part of every batch runs once; no device or lane does two things at a time; bounds hold."""
    events = [event for event in found.trace if event.kind != "wakeup"]
    ops = [(event.batch, event.layer, event.backward) for event in events if event.kind == "op"]
    assert len(set(ops)) == len(ops) == found.ops - sum(event.kind == "update" for event in events)
    settings = found.settings
    updates = [(event.batch, event.layer) for event in events if event.kind == "update"]
    assert len(ops) == settings.batches * len(found.net.order) * (1 + settings.include_backward)
    weights = sum(1 for layer in found.net.layers(settings.batch_size) if layer.params)
    trained = weights if settings.include_backward and settings.mode.update else 0
    assert len(set(updates)) == len(updates) == trained * (settings.batches // found.tables.step_batches)
    for key in {(event.on_lane, event.resource) for event in events}:
        spans = sorted((e.start, e.end) for e in events if (e.on_lane, e.resource) == key)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    problem = NetProblem(found.net, found.cluster, found.settings)
    score = found.makespan + sum(found.over_use) * problem.penalty_ms_per_byte
    assert problem.bounds.best_ms <= score * (1 + 1e-12)


@given(nets(most=6), clusters(most=3))
def test_bounds_hold_for_every_placement(net: Net, cluster: Cluster) -> None:
    problem = NetProblem(net, cluster, replace(PUBLISHED, batches=2, pipeline_batches=2))
    rows = np.array(list(itertools.product(range(len(cluster.devices)), repeat=len(net.order))))
    scores, over = problem.evaluate(rows)
    assert problem.bounds.best_ms <= scores.min() * (1 + 1e-12)
    single = simulate(net, cluster, rows[0].tolist(), problem.settings)
    assert (scores[0], over[0]) == (single.score, sum(single.over_use))


@given(nets(), clusters(), st.data())
def test_like_devices_may_change_places(net: Net, cluster: Cluster, data: st.DataObject) -> None:
    place = drawn_placement(data, net, cluster)
    count = len(cluster.devices)
    devices = tuple(msgspec.structs.replace(cluster.devices[0], name=str(i)) for i in range(count))
    links = tuple(ClusterLink(i, j, 0) for i, j in itertools.permutations(range(count), 2))
    alike = Cluster(cluster.name, devices, links, cluster.channels[:1])
    last = len(alike.devices) - 1
    swapped = tuple(last - device for device in place)
    one, other = (simulate(net, alike, each, PUBLISHED, ties="fifo", batch_size=None) for each in (place, swapped))
    roots = {place[i] for i, parents in enumerate(net.parents) if not parents}
    if len(roots) == 1:  # devices of several inputs are woken in order of their numbers
        assert one.makespan == other.makespan
        assert one.peaks == other.peaks[::-1]


def played() -> str:
    """A placement played and evaluated, and a search of its problem, as text."""
    place = [(5 * i) % 3 for i in range(15)]
    settings = replace(PUBLISHED, batches=3, pipeline_batches=2)
    found = simulate(published_net("alex_v2"), published_cluster("malvik"), place, settings)
    problem = NetProblem(published_net("alex_v2"), published_cluster("malvik"), settings)
    scores, over = problem.evaluate(np.random.default_rng(0).integers(0, 3, (20, 15)))
    best = HillClimbing().search(problem, 60)
    of_run = found.makespan, found.peaks, found.trace, found.memory.nbytes.tolist()
    return repr((of_run, scores.tolist(), over.tolist(), best.placement, best.score_ms))


def test_without_numba_a_run_is_the_same() -> None:
    code = (
        "import sys; sys.modules['numba'] = None; from tensortide.compiled import IS_COMPILED; "
        "from tests.placements.test_simulator import played; assert not IS_COMPILED; print(played())"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert alone.stdout == played() + "\n"


def test_threads_score_side_by_side_with_the_same_results() -> None:
    problem = NetProblem(published_net("alex_v2"), published_cluster("malvik"), PUBLISHED)
    rows = np.random.default_rng(0).integers(0, 3, (400, 15))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(problem.evaluate, np.split(rows, 8)))
    assert np.concatenate([scores for scores, _ in parts]).tolist() == problem.evaluate(rows)[0].tolist()


def test_problems_and_runs_can_be_sent_to_other_processes() -> None:
    problem = NetProblem(published_net("mnist"), published_cluster("malvik"), PUBLISHED)
    row = np.array([[1, 2] * 4 + [1]])
    scores, _ = problem.evaluate(row)
    assert problem.bounds == pickle.loads(pickle.dumps(problem)).bounds
    assert pickle.loads(pickle.dumps(problem)).evaluate(row)[0].tolist() == scores.tolist()
    run = simulate(published_net("mnist"), published_cluster("malvik"), row[0].tolist(), PUBLISHED)
    assert pickle.loads(pickle.dumps(run)).trace == run.trace


def test_the_order_of_ties_is_an_option_that_changes_no_work() -> None:
    place = [(3 * i) % 5 for i in range(74)]
    settings = replace(PUBLISHED, batches=4, pipeline_batches=4)
    graph = published_cluster("malvik-4gpu-reduced-resnet")
    heap, fifo = (simulate(published_net("resnet50"), graph, place, settings, ties=ties) for ties in ("heap", "fifo"))
    orders = [[event[:6] for event in run.trace if event.kind != "wakeup"] for run in (heap, fifo)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert fifo.makespan == pytest.approx(heap.makespan, rel=0.05)
