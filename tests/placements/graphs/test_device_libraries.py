"""Workspaces of libraries in placed steps: each device that multiplies has its own, of the size for its type."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import NothingFits
from tensortide.graph import Graph, Phase, Role
from tensortide.placements.graphs import PlacedStep, PlaceOptions, Ready, placed, ready
from tensortide.timelines import timeline
from tensortide.timing.catalogue import device
from tensortide.timing.clusters import Cluster, joined
from tensortide.timing.links import link

A100, H100, T4 = 8_519_680, 32 << 20, 8_519_680
"""Bytes of one workspace, as PyTorch has them."""
CPU = "Intel i9-13900K"


@functools.cache
def multiplying() -> Graph:
    """Three layers, and what multiplies nothing between them, trained on an A100."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))
    return capture(model, torch.randn(16, 64), loss="sum", optimizer="sgd", machine="A100-SXM-80GB")


def bare(graph: Graph) -> Graph:
    """``graph`` without the storages of libraries."""
    others = tuple(held for held in graph.storages if held.role is not Role.LIBRARY)
    assert others == graph.storages[: len(others)]
    return msgspec.structs.replace(graph, storages=others)


def machine(*names: str, capacity_bytes: int | None = None) -> Cluster:
    return joined([device(name) for name in names], link("300GB/s,2us"), capacity_bytes=capacity_bytes)


def counted(prepared: Ready, place: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The workspaces of each device, by the names and phases of the ops there."""
    handles: list[set[bool]] = [set() for _ in sizes]
    for op, unit in enumerate(prepared.problem.step.units.of_op):
        view = prepared.graph[op]
        if view.name in ("aten.addmm.default", "aten.mm.default"):
            handles[place[unit]].add(view.phase is Phase.BACKWARD)
    return [len(own) * nbytes for own, nbytes in zip(handles, sizes, strict=True)]


def both(cluster: Cluster, options: PlaceOptions) -> tuple[Ready, Ready]:
    return ready(multiplying(), cluster, options), ready(bare(multiplying()), cluster, options)


def libraries(found: PlacedStep) -> tuple[int, ...]:
    """The bytes of libraries on each device."""
    return tuple(one.libraries_bytes for one in found.devices)


def test_a_layer_on_each_device_has_two_workspaces_there() -> None:
    """By hand: the forward pass multiplies in the main thread, the backward pass in that of autograd."""
    prepared, without = both(machine("A100-SXM-80GB", "H100-SXM-80GB"), PlaceOptions())
    names = prepared.problem.names
    place = [int(name == "2") for name in names]
    assert sum(place) == 1
    run = placed(prepared, place)
    assert libraries(run) == (2 * A100, 2 * H100)
    alone = placed(without, place).simulated.peak_bytes
    assert run.simulated.peak_bytes == (alone[0] + 2 * A100, alone[1] + 2 * H100)
    assert run.step_ns == placed(without, place).step_ns


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (("A100-SXM-80GB", "A100-SXM-80GB"), (A100, A100)),
        (("A100-SXM-80GB", "H100-SXM-80GB"), (A100, H100)),
        (("T4", CPU), (T4, 0)),
    ],
)
def test_every_placement_counts_what_its_ops_use(names: Sequence[str], sizes: Sequence[int], batches: int) -> None:
    """All placements: peaks are those without libraries and, by hand, the workspaces of the ops on each device."""
    options = PlaceOptions(micro_batches=batches, schedule="1f1b" if batches > 1 else "recorded")
    prepared, without = both(machine(*names), options)
    seen = set()
    for place in itertools.product(range(2), repeat=len(prepared.problem.names)):
        pinned = prepared.problem.pinned(place)
        one, other = (each.problem.simulator.run(pinned) for each in (prepared, without))
        expected = counted(prepared, pinned, sizes)
        assert one.peak_bytes == tuple(map(sum, zip(other.peak_bytes, expected, strict=True)))
        assert one.start_ns.tolist() == other.start_ns.tolist()
        levels = placed(prepared, place).timeline.levels
        assert one.peak_bytes == tuple(int(level.level.max(initial=0)) for level in levels)
        seen.add(tuple(expected))
    assert len(seen) == (2 if 0 in sizes else 3)  # products on one GPU, on the other, on both


def test_one_device_has_the_bytes_of_the_captured_step() -> None:
    prepared = ready(multiplying(), machine("A100-SXM-80GB"), PlaceOptions(launch="none"))
    run = placed(prepared, [0] * len(prepared.problem.names))
    assert libraries(run) == (2 * A100,)
    times = prepared.problem.step.ns[:, 0].tolist()
    assert run.simulated.peak_bytes == (timeline(prepared.graph, durations_ns=times, lifetimes="last_use").peak_bytes,)


def test_a_library_whose_ops_are_unknown_is_on_every_device_with_ops() -> None:
    """By hand: 1,000 bytes with the name of no handle, beside the workspaces of BLAS on the devices that multiply."""
    graph = multiplying()
    other = msgspec.structs.replace(graph.storages[-1], nbytes=1000, name="workspace of another library")
    assert other.role is Role.LIBRARY
    graph = msgspec.structs.replace(graph, storages=(*graph.storages, other))
    prepared = ready(graph, machine("A100-SXM-80GB", "H100-SXM-80GB", CPU))
    names = prepared.problem.names
    normalizing = [int(name == "3") for name in names]
    assert sum(normalizing) == 1
    assert libraries(placed(prepared, normalizing)) == (2 * A100 + 1000, 1000, 0)
    assert libraries(placed(prepared, [0] * len(names))) == (2 * A100 + 1000, 0, 0)


def test_a_configured_workspace_is_that_of_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":1024:1")
    graph = capture(nn.Linear(8, 8), torch.randn(2, 8), machine="A100-SXM-80GB")
    prepared = ready(graph, machine("A100-SXM-80GB", "H100-SXM-80GB"))
    units = len(prepared.problem.names)
    assert [libraries(placed(prepared, [at] * units)) for at in range(2)] == [(1 << 20, 0), (0, 1 << 20)]


@pytest.mark.parametrize("capacity", [2 * A100 + 70_000, 2 * A100 + 100_000, 4 * A100])
def test_no_placement_that_fits_undercuts_the_bound(capacity: int) -> None:
    """Brute force: where all layers do not fit beside the workspaces, the slow device must have one."""
    options = PlaceOptions(launch="none", priority="recorded")
    prepared, without = both(machine("A100-SXM-80GB", "T4", capacity_bytes=capacity), options)
    every = np.array([*itertools.product(range(2), repeat=len(prepared.problem.names))])
    scores, over = prepared.problem.evaluate(every)
    sizes = (A100, T4)
    for place, bytes_over in zip(every, over, strict=True):
        alone = without.problem.simulator.run(place).peak_bytes
        needs = [a + b for a, b in zip(alone, counted(prepared, place, sizes), strict=True)]
        assert bytes_over == sum(max(0, need - capacity) for need in needs)
    assert (over == 0).any()
    assert prepared.problem.bounds.best_ms <= scores[over == 0].min()
    assert prepared.problem.bounds.work_ms >= without.problem.bounds.work_ms


def test_workspaces_raise_the_bound_where_memory_is_tight() -> None:
    """Beside the workspaces the fast device has room for one of three layers, whose parameters stay throughout."""
    slow = msgspec.structs.replace(device("T4"), fp32_tflops=0.0001, memory_gbytes_per_s=0.1)
    machines = joined([device("A100-SXM-80GB"), slow], link("300GB/s,2us"))
    fast = msgspec.structs.replace(machines.devices[0], capacity_bytes=2 * A100 + 18_000)
    machines = msgspec.structs.replace(machines, devices=(fast, machines.devices[1]))
    prepared, without = both(machines, PlaceOptions(launch="none"))
    assert prepared.problem.bounds.work_ms > 1.05 * without.problem.bounds.work_ms


def test_a_unit_that_does_not_fit_beside_its_workspace_is_named() -> None:
    cluster = machine("A100-SXM-80GB", "A100-SXM-80GB", capacity_bytes=2 * A100)
    with pytest.raises(NothingFits, match=r"unit '0' needs 17,\S+ bytes throughout, 17,039,360 of them workspaces of"):
        ready(multiplying(), cluster, PlaceOptions())
    ready(bare(multiplying()), cluster, PlaceOptions())
