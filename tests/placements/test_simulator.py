"""Runs of random nets: kernel, plain Python and the published rules agree; bounds and conservation laws hold."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensortide.placements import (
    ACCURATE,
    COMPAT,
    Cluster,
    Neighbour,
    Net,
    NetProblem,
    Settings,
    Simulation,
    simulate,
)
from tensortide.placements.simulator import plain
from tensortide.placements.simulator.layout import Reader
from tests.placements.cases import PUBLISHED
from tests.placements.drawn import Literal, clusters, nets, published_settings


def drawn_placement(data: st.DataObject, net: Net, cluster: Cluster) -> tuple[int, ...]:
    devices = st.integers(0, len(cluster.devices) - 1)
    return tuple(data.draw(st.lists(devices, min_size=len(net.order), max_size=len(net.order))))


def assert_plain_agrees(found: Simulation) -> None:
    """Plain Python plays the same events at the same times."""
    events: list[tuple[object, ...]] = []
    outcome = plain.run(Reader(found.tables), found.placement, lambda *event: events.append(event))
    assert (outcome.makespan, tuple(outcome.peaks)) == (found.makespan, found.peaks)
    assert (outcome.events, outcome.ops, outcome.transfers) == (found.events, found.ops, found.transfers)
    columns = [column.tolist() for column in found.record]
    assert [list(column) for column in zip(*events, strict=True)] == columns


@given(nets(), clusters(), published_settings(), st.data())
def test_kernel_and_plain_python_follow_the_published_rules(
    net: Net, cluster: Cluster, settings: Settings, data: st.DataObject
) -> None:
    place = drawn_placement(data, net, cluster)
    found = simulate(net, cluster, place, settings)
    makespan, peaks, events = Literal(net, found.tables, place).run()
    assert found.makespan == makespan
    assert list(found.peaks) == peaks
    assert found.events == events
    assert_plain_agrees(found)


@given(nets(), clusters(), st.data())
def test_kernel_and_plain_python_agree_on_every_option(net: Net, cluster: Cluster, data: st.DataObject) -> None:
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
        optimizer_states=data.draw(st.sampled_from([0.0, 2.0])),
    )
    place = drawn_placement(data, net, cluster)
    found = simulate(net, cluster, place, settings)
    assert_plain_agrees(found)
    assert_conserves(found)
    if settings.mode is ACCURATE or settings.include_backward:
        base = np.zeros(len(cluster.devices), np.int64)
        np.add.at(base, np.array(place), found.tables.resident)
        assert found.memory.nbytes[:, -1].tolist() == base.tolist()  # all that a batch stores is released


def assert_conserves(found: Simulation) -> None:
    """Every part of every batch runs once; no device or lane does two things at a time; bounds hold."""
    events = [event for event in found.trace if event.kind != "wakeup"]
    ops = [(event.batch, event.layer, event.backward) for event in events if event.kind == "op"]
    assert len(set(ops)) == len(ops) == found.ops
    assert found.ops == found.settings.batches * len(found.net.order) * (1 + found.settings.include_backward)
    for key in {(event.on_lane, event.resource) for event in events}:
        spans = sorted((e.start, e.end) for e in events if (e.on_lane, e.resource) == key)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    problem = NetProblem(found.net, found.cluster, found.settings)
    assert problem.bounds().best_ms <= found.makespan * (1 + 1e-12)


@given(nets(most=6), clusters(most=3))
def test_bounds_hold_for_every_placement(net: Net, cluster: Cluster) -> None:
    problem = NetProblem(net, cluster, replace(PUBLISHED, batches=2, pipeline_batches=2))
    rows = np.array(list(itertools.product(range(len(cluster.devices)), repeat=len(net.order))))
    scores, over = problem.evaluate(rows)
    assert problem.bounds().best_ms <= scores.min() * (1 + 1e-12)
    single = simulate(net, cluster, rows[0].tolist(), problem.settings)
    assert (scores[0], over[0]) == (single.score, sum(single.over_use))


@given(nets(), clusters(), st.data())
def test_like_devices_may_change_places(net: Net, cluster: Cluster, data: st.DataObject) -> None:
    place = drawn_placement(data, net, cluster)
    count = len(cluster.devices)
    devices = tuple(
        msgspec.structs.replace(cluster.devices[0], neighbours=tuple(Neighbour(j, 0) for j in range(count) if j != i))
        for i in range(count)
    )
    alike = Cluster(cluster.name, cluster.channels[:1], devices)
    last = len(alike.devices) - 1
    swapped = tuple(last - device for device in place)
    one, other = (simulate(net, alike, each, PUBLISHED, ties="fifo", batch_size=None) for each in (place, swapped))
    roots = {place[i] for i, parents in enumerate(net.parents) if not parents}
    if len(roots) == 1:  # devices of several inputs are woken in order of their numbers
        assert one.makespan == other.makespan
        assert one.peaks == other.peaks[::-1]
