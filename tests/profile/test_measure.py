"""Measured durations: of the ops alone, one to one with the Graph, and only of steps that repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tensortide.errors import CaptureError, WorkloadError
from tensortide.profile.measure import measure
from tensortide.recorder import capture
from tests.recorder.workloads import Net, checkpointed, classifier

BUSY_S = 0.005


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("workload", [classifier, checkpointed])
def test_there_is_one_positive_duration_per_op_of_the_graph_that_a_capture_gives(workload: Callable[..., Any]) -> None:
    graph, durations = measure(workload, repeats=2)
    assert len(durations.ns) == len(graph) > 20
    assert min(durations.ns) >= 1
    assert (durations.kind, durations.unknown) == ("measured", 0)
    durations.check(graph)
    durations.check(capture(workload, real=True))
    durations.check(capture(workload))  # a fake step has the same ops


def test_the_source_says_where_and_how(one_thread: None) -> None:
    text = measure(classifier, repeats=3)[1].source
    assert text.startswith("measured on ")
    assert f"torch {torch.__version__}, 1 thread, median of 3 steps; its ops are " in text


@torch.library.custom_op("tensortide_tests::slow", mutates_args=(), schema="(Tensor x) -> Tensor")
def slow(x: torch.Tensor) -> torch.Tensor:
    """An op that takes its time."""
    compute(BUSY_S)
    return x.clone()


def compute(seconds: float) -> None:
    """Take ``seconds`` of this thread: other work of the machine changes nothing."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_only_what_an_op_does_itself_is_on_the_clock(one_thread: None) -> None:
    x = torch.ones(4)

    def step() -> torch.Tensor:
        y: torch.Tensor = slow(x + 1)
        compute(4 * BUSY_S)
        return y * 2

    graph, durations = measure(step, repeats=3, clock="thread")
    taken = {op.name: ns for op, ns in zip(graph, durations.ns, strict=True)}
    busy = taken.pop("tensortide_tests.slow.default")
    assert 0.99 * BUSY_S <= busy / 1e9 < 4 * BUSY_S
    assert set(taken) == {"aten.add.Tensor", "aten.mul.Tensor"}
    assert sum(taken.values()) / 1e9 < BUSY_S


def test_large_ops_make_up_most_of_a_step(one_thread: None) -> None:
    layer = torch.nn.Linear(512, 512)
    x = torch.randn(512, 512)
    graph, durations = measure(layer, (x,), loss="sum", optimizer="sgd", clock="thread", repeats=3)
    share = sum(durations.ns) / _seconds(layer, x) / 1e9
    assert 0.2 < share < 5
    longest = max(range(len(graph)), key=durations.ns.__getitem__)
    assert graph[longest].name in ("aten.addmm.default", "aten.mm.default", "aten._foreach_add_.List")
    assert "its own time" in durations.source


def _seconds(layer: torch.nn.Linear, x: torch.Tensor) -> float:
    """The least processor time of three plain steps."""
    seconds = []
    for _ in range(3):
        start = time.thread_time()
        layer(x).sum().backward()
        torch.optim.SGD(layer.parameters(), lr=0.0).step()
        layer.zero_grad()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def test_sums_that_the_engine_makes_are_measured_as_it_makes_them_when_watched() -> None:
    x = torch.randn(8, 8, requires_grad=True)

    def step() -> None:
        y = x * 2
        (y.sin() + y.cos() + y).sum().backward()
        x.grad = None

    graph, durations = measure(step, repeats=1)
    assert "aten.add_.Tensor" in [op.name for op in graph]
    durations.check(graph)


def test_nothing_of_the_users_changes() -> None:
    model, seed = Net(), torch.random.initial_seed()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    measure(model, torch.randn(4, 8), loss="sum", optimizer="adam", repeats=2)
    assert model.calls == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.random.initial_seed() == seed
    assert torch.get_rng_state().shape == state.shape


def test_steps_of_different_ops_are_an_error() -> None:
    x, turns = torch.ones(4), [0]

    def step() -> torch.Tensor:
        turns[0] += 1
        y = x + 1
        return y * 2 if turns[0] < 5 else y - 2

    with pytest.raises(CaptureError, match=r"op 1 is aten.mul.Tensor in one, aten.sub.Tensor in anot"):
        measure(step, repeats=5)
    assert turns == [0]


def test_so_are_steps_of_other_shapes_or_lengths() -> None:
    x, turns = torch.ones(16), [0]

    def shrinking() -> torch.Tensor:
        turns[0] += 1
        return x[turns[0] :] * 2

    def growing() -> torch.Tensor:
        turns[0] += 1
        y = x
        for _ in range(turns[0]):
            y = y * 2
        return y

    with pytest.raises(CaptureError, match="do not run the same ops"):
        measure(shrinking)
    with pytest.raises(CaptureError, match=r"is absent in one, aten.mul.Tensor"):
        measure(growing)


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(CaptureError, match="repeats is at least 1"):
        measure(classifier, repeats=0)
    with pytest.raises(CaptureError, match="cannot measure a int"):
        measure(3)
    with pytest.raises(CaptureError, match="go with a model"):
        measure(classifier, loss="sum")
    with pytest.raises(WorkloadError, match="no example"):
        measure("no such workload")

    def failing() -> None:
        raise RuntimeError("no luck today")

    with pytest.raises(CaptureError, match="no luck today"):
        measure(failing)


def test_the_clock_of_one_thread_wants_one_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(CaptureError, match="does not see the work of 2"):
            measure(classifier, clock="thread")
    finally:
        torch.set_num_threads(before)


def test_an_example_is_measured_by_its_name_and_tells_how_far_it_is() -> None:
    said: list[str] = []
    sizes = {"batch": 2, "inputs": 8, "hidden": 8, "classes": 4}
    graph, durations = measure("mlp", hyperparameters=sizes, repeats=2, progress=said.append)
    assert len(graph) == len(durations)
    assert said[0] == "building the workload"
    assert said[-1] == "measuring 2 of 2"
