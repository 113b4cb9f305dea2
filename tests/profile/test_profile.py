"""The account of a measured step: exact under a clock that the test turns, whole under a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tensortide.errors import CaptureError, NotHere, RequestError, TimesError
from tensortide.profile.kernels import measure_kernels, profiled
from tensortide.profile.measure import measure
from tensortide.profile.stopwatch import Clocks
from tensortide.recorder import capture
from tensortide.timing import Durations
from tensortide.timing.durations import Measurement
from tensortide.timing.traced import from_trace
from tests.recorder.workloads import classifier


class Hands:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


HANDS = Hands()
STILL = Clocks(HANDS, HANDS)


@torch.library.custom_op("tensortide_tests::takes", mutates_args=(), schema="(Tensor x, int ns) -> Tensor")
def takes(x: torch.Tensor, ns: int) -> torch.Tensor:
    """An op that takes so many nanoseconds of the test's clock."""
    HANDS.ns += ns
    return x.clone()


def measured(durations: Durations) -> Measurement:
    assert durations.measurement is not None
    return durations.measurement


def test_a_clock_that_only_ops_move_gives_their_durations_exactly() -> None:
    weight = torch.ones(3, requires_grad=True)

    def step() -> None:
        HANDS.ns += 300
        x = takes(weight.detach(), 1000)
        HANDS.ns += 200
        takes(x, 70_000)
        HANDS.ns += 40
        loss = (weight * x).sum()
        HANDS.ns += 7
        loss.backward()
        HANDS.ns += 5
        weight.grad = None

    graph, durations = measure(step, repeats=3, clocks=STILL)
    found = measured(durations)
    assert [ns for op, ns in zip(graph, durations.ns, strict=True) if "takes" in op.name] == [1000, 70_000]
    assert sum(durations.ns) == 71_000 + len(graph) - 2  # what takes no time is told as 1 ns
    assert found.min_ns == found.p90_ns == found.wall_ns == found.thread_ns == durations.ns
    assert set(found.samples) == {3}
    assert found.overhead_ns == {"forward": 540, "backward": 12}  # a gap is of the phase that it leads to
    assert found.hook_ns == 0
    assert found.step is not None
    assert found.step.median_ns == 71_000 + 552
    assert found.explained_ns(durations.ns) == found.step.median_ns + len(graph) - 2


def test_the_median_the_least_and_the_ninth_of_ten_are_kept() -> None:
    turn = [0]

    def step() -> None:
        turn[0] += 1
        takes(torch.ones(2), 100 * (turn[0] % 7 + 1))

    graph, durations = measure(step, repeats=21, clocks=STILL)
    found = measured(durations)
    op = next(i for i, op in enumerate(graph) if "takes" in op.name)
    assert 100 <= found.min_ns[op] <= durations.ns[op] <= found.p90_ns[op] <= 700
    assert not found.steady


def test_a_real_step_is_told_by_both_clocks_and_with_its_surroundings() -> None:
    graph, durations = measure(classifier, repeats=2, clock="thread", threads=1)
    found = measured(durations)
    assert durations.ns == found.thread_ns
    assert len(found.wall_ns) == len(graph)
    assert set(found.overhead_ns) == {op.phase.value for op in graph.ops}
    assert found.machine is not None
    assert (found.machine.device, found.machine.threads) == ("cpu", 1)
    assert found.machine.versions["torch"] == str(torch.__version__)
    assert found.hooked is not None
    assert found.hooked.n == 2
    assert found.step is not None
    assert found.step.n == 3
    assert 2 <= found.warm_up <= 12


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    measure(classifier, repeats=1, threads=1)
    assert torch.get_num_threads() == before
    with pytest.raises(CaptureError, match="cannot run on 0 threads"):
        measure(classifier, threads=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_here_is_said() -> None:
    with pytest.raises(NotHere, match="there is no device cuda here"):
        measure(classifier, device="cuda")
    with pytest.raises(RequestError, match="measures on cpu and cuda"):
        measure(classifier, device="tpu")


# -- by way of the profiler -------------------------------------------------------------------------


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def test_the_profilers_trace_of_a_step_has_its_ops() -> None:
    model, x = network(), torch.randn(5, 8)
    graph = capture(model, x, loss="sum", optimizer="sgd")

    def step() -> None:
        (0 + model(x).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step()
    trace = profiled(step, 3, devices=False)
    assert len(trace.steps) == 3
    durations = from_trace(graph, trace)
    found = measured(durations)
    missing = {graph[i].name for i in found.stand_ins}
    assert missing <= {"aten.detach.default"}  # saved tensors are detached below what the profiler sees
    assert set(found.samples) <= {0, 3}
    assert min(durations.ns) > 0
    timed = measure_kernels(graph, step, 2, warm_up=2, steady=True, progress=lambda message: None)
    assert (timed.kind, measured(timed).how) == ("measured", "step")
    assert measured(timed).step is not None
    other = capture(network(), torch.randn(50, 8), loss="sum", optimizer="sgd")
    with pytest.raises(TimesError, match="a trace of other sizes"):
        from_trace(other, trace)


def test_a_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    from tensortide.timing.kineto import read_trace

    event = {"ph": "X", "cat": "cpu_op", "name": "mylib::op", "ts": 1.5, "dur": 2, "pid": 1, "tid": 1}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(TimesError, match=r"t\.json has no op of this graph: its ops are mylib::op"):
        from_trace(capture(network(), torch.randn(5, 8)), read_trace(path))
