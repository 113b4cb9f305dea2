"""The bound of a path split among devices: no placement undercuts it, and it proves what no other bound does."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.placements import ACCURATE, COMPAT, Net, NetProblem, OpTimes, Settings
from tensortide.placements.simulator import split_path
from tensortide.placements.simulator.detours import detours, longest_path
from tensortide.plans.compiled import IS_COMPILED
from tensortide.timing.paleo.layers import Entry
from tests.placements.cases import cluster, net
from tests.placements.drawn import clusters, nets, rings
from tests.placements.test_options import CHAIN, DATA, PAIR, STAR


@st.composite
def problems(draw: st.DrawFn) -> NetProblem:
    """A small net with times about as long as transfers, on clusters with little memory or much."""
    layers, machine = draw(nets(most=6)), draw(clusters(most=3) | rings())
    shape = (len(layers.order), len(machine.devices))
    scale = 10.0 ** draw(st.integers(-5, 0))
    numbers = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=shape[0], max_size=shape[0])
    factors = st.lists(st.sampled_from([1.0, 1.0, 2.5]), min_size=shape[1], max_size=shape[1])
    forward, backward = (scale * np.outer(draw(numbers), draw(factors)) for _ in range(2))
    batches = draw(st.integers(1, 8))
    settings = Settings(
        batches=batches,
        pipeline_batches=draw(st.integers(1, batches)),
        include_backward=draw(st.booleans()),
        comm_penalization=0.5,
        memory_penalization_factor=draw(st.sampled_from([0.0, 1e-6, 1.0])),
        mode=ACCURATE if machine.name == "ring" else draw(st.sampled_from([ACCURATE, COMPAT])),
    )
    return NetProblem(layers, machine, settings, times=OpTimes(forward, backward, 0.3 * forward))


@given(problems())
def test_no_placement_undercuts_the_bound(problem: NetProblem) -> None:
    rows = np.array(list(itertools.product(range(problem.devices), repeat=len(problem.names))))
    scores, _ = problem.evaluate(rows)
    assert problem.bounds().split_path_ms <= scores.min() * (1 + 1e-12)


def figures(name: str, graph: str, batches: int = 1, in_flight: int = 1, gpu_gb: float | None = None) -> NetProblem:
    """A published problem: batch 128, p .9, q .25, 1 ms for a byte over memory."""
    found = cluster(graph)
    if gpu_gb is not None:
        devices = (msgspec.structs.replace(one, memory=gpu_gb) if one.type == "gpu" else one for one in found.devices)
        found = msgspec.structs.replace(found, devices=tuple(devices))
    settings = Settings(
        batch_size=128,
        batches=batches,
        pipeline_batches=in_flight,
        comp_penalization=0.9,
        comm_penalization=0.25,
        memory_penalization_factor=1.0,
        mode=COMPAT,
    )
    return NetProblem(net(name), found, settings)


def test_known_optima_of_published_problems_are_nearly_proved() -> None:
    # the work of the branches beside the path decides; then memory; then the pipeline, where the optimum is 199.079
    assert figures("resnet50", "malvik").bounds().best_ms == pytest.approx(203.40464699968, rel=1e-9)
    assert 56.224 < figures("alex_v2", "malvik-4gpu-reduced-alexnet").bounds().best_ms <= 56.2251
    piped = figures("alex_v2", "malvik-4gpu-reduced-alexnet", 10, 4, 32.0)
    assert 189.8 < piped.bounds().best_ms <= 199.0792
    assert figures("resnet50", "malvik-4gpu-reduced-resnet", 10, 4, 32.0).bounds().best_ms > 825


@pytest.mark.parametrize(
    ("in_flight", "bound"),
    [
        (1, 96),  # both on one device: 6 batches of 16 ms
        (2, 60),  # the first device: 6 * 8 ms, and 6 ms each before the first batch returns and after the last has left
        (6, 58),  # the second device: 6 * 8 ms, after 4 + 1 ms of the first and before as much
    ],
)
def test_a_chain_of_two_equal_layers_is_bounded_by_hand(in_flight: int, bound: float) -> None:
    fours = np.full((2, 2), 4.0)
    settings = Settings(batches=6, pipeline_batches=in_flight)
    problem = NetProblem(CHAIN, PAIR, settings, times=OpTimes(fours, fours))  # an output takes 1 ms there, 1 ms back
    assert problem.bounds().split_path_ms == pytest.approx(bound, rel=1e-3)
    best = problem.evaluate(np.array([*itertools.product(range(2), repeat=2)]))[0].min()
    assert bound <= best <= 1.11 * bound


def test_the_layer_in_the_middle_waits_for_those_before_it_alone() -> None:
    # 2 ms, then 20 ms, then 6 ms: what follows the long layer passes while it has other batches
    layers = Net("chain", {**CHAIN.entries, "b": Entry(type="Softmax", parents=("a",))})
    times = np.outer([1.0, 10.0, 3.0], np.ones(3))
    settings = Settings(batches=7, pipeline_batches=4)
    problem = NetProblem(layers, STAR, settings, times=OpTimes(times, times))
    best = problem.evaluate(np.array([*itertools.product(range(3), repeat=3)]))[0].min()
    assert problem.bounds().split_path_ms == pytest.approx(2 + 2 + 7 * 20, rel=1e-3)
    assert 2 + 2 + 7 * 20 <= best <= 1.01 * (2 + 2 + 7 * 20)


def test_memory_that_one_device_lacks_splits_the_path() -> None:
    devices = tuple(msgspec.structs.replace(one, memory=0.0015) for one in PAIR.devices)
    small = msgspec.structs.replace(PAIR, devices=devices)
    layers = Net("chain", {**CHAIN.entries, "b": Entry(type="Softmax", parents=("a",))})
    fours = np.full((3, 2), 4.0)
    # b keeps the output of a, a that of data: 2 MB do not fit into 1.5, and a byte more costs 1 ms
    problem = NetProblem(layers, small, Settings(), times=OpTimes(fours, fours))
    assert problem.bounds().split_path_ms == pytest.approx(24 + 2, rel=1e-3)


def test_a_detour_is_cut_with_the_path_beside_it() -> None:
    entries = {
        "data": DATA,
        "a": Entry(type="InnerProduct", parents=("data",), num_outputs=10),
        "b": Entry(type="Concatenate", parents=("a", "data"), dim=1),
    }
    times = OpTimes(np.full((3, 2), 1.0), np.full((3, 2), 1.0))
    t = NetProblem(Net("skip", entries), PAIR, Settings(), times=times).tables
    where = np.arange(2)
    path = longest_path(t, where)
    assert path == [0, 1, 2]
    (found,) = detours(t, where, path)
    assert (found.start, found.end, found.cut, found.is_direct) == (0, 2, 0, True)


@pytest.mark.skipif(not IS_COMPILED, reason="needs Numba")
def test_compiled_and_plain_splits_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = figures("resnet50", "malvik-4gpu-reduced-resnet", 10, 4)
    compiled = problem.bounds()
    monkeypatch.setattr(split_path, "cheapest", split_path.cheapest.py_func)  # type: ignore[attr-defined]
    assert problem.bounds() == compiled
