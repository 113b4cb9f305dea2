"""Ops executed alone: all of them, on operands that they accept; what cannot be is named, counted and inferred."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
import torch

from tensortide.errors import CaptureError, UnknownCost
from tensortide.graph import Graph
from tensortide.importers.imported import Imported
from tensortide.profile import isolated
from tensortide.profile.host import own_device
from tensortide.profile.isolated import BIAS, measure_isolated
from tensortide.recorder import capture
from tensortide.recorder.execute import Operands
from tensortide.targets.durations import with_durations
from tensortide.targets.requests import TimesRequest
from tensortide.timing.standins import require_all
from tests.examples.tiny import TINY
from tests.marks import some_slow
from tests.profile.test_profile import HANDS, STILL, measured, takes


@pytest.mark.parametrize(
    "name", some_slow(["gpt2", "gru", "unet", "mixtral", "word2vec", "inception_v3"], {"inception_v3"})
)
def test_every_op_of_a_model_is_executed(name: str) -> None:
    graph = capture(name, hyperparameters=TINY[name], real=True)
    durations = measure_isolated(graph)
    found = measured(durations)
    assert found.stand_ins == {}
    assert len(durations) == len(graph)
    assert min(found.samples) >= 3
    assert all(low <= mid <= high for low, mid, high in zip(found.min_ns, durations.ns, found.p90_ns, strict=True))
    assert found.notes == (BIAS,)
    durations.check(graph)


def test_operands_are_legal_where_random_ones_are_not() -> None:
    square = torch.rand(9, 9)
    positive, x, rows = square @ square.T + torch.eye(9), torch.rand(6, 5), torch.tensor([1, 3, 4])
    likely, mask = torch.rand(7, 3, 10).log_softmax(-1), x > 0.5
    bag, first = torch.nn.EmbeddingBag(50, 4), torch.zeros(6, 2, dtype=torch.long)

    def step() -> None:
        torch.linalg.cholesky(positive)
        torch.linalg.inv(positive)
        torch.linalg.solve(positive, square)
        x[rows], x[mask], x.nonzero(), torch.masked_select(x, mask)
        y = x.clone()
        y[rows] = 0
        y[mask] = 1.0
        y.scatter_(1, first, 1.0), x.gather(1, first), y.t_().t_()
        torch.bucketize(x, torch.arange(5.0)), torch.multinomial(x, 2), torch.bernoulli(x)
        torch.nn.functional.binary_cross_entropy(x, (x > 0.5).float())
        torch.nn.functional.ctc_loss(
            likely, torch.ones(3, 4, dtype=torch.long), torch.tensor([7, 7, 7]), torch.tensor([4, 4, 4])
        )
        bag(torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2]))
        torch.repeat_interleave(x, torch.tensor([1, 2, 3, 1, 1, 1]), 0)
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.rand(6, 3, 4), torch.tensor([6, 4, 2]))
        torch.nn.utils.rnn.pad_packed_sequence(packed)
        pooled, at = torch.nn.functional.max_pool2d(torch.rand(1, 1, 4, 4), 2, return_indices=True)
        torch.nn.functional.max_unpool2d(pooled, at, [2, 2])
        torch.as_strided(x, (2, 2), (5, 1), 3), rows // 2, rows % 3, x.take(rows), x.to(torch.float8_e4m3fn)

    graph = capture(step, real=True)
    assert measured(measure_isolated(graph)).stand_ins == {}


@torch.library.custom_op("tensortide_tests::picky", mutates_args=(), schema="(Tensor x) -> Tensor")
def picky(x: torch.Tensor) -> torch.Tensor:
    """Takes nothing but sevens."""
    if not bool((x == 7).all()):
        raise RuntimeError("no sevens")
    return x.clone()


def test_what_cannot_be_executed_is_named_counted_and_inferred() -> None:
    graph = capture(lambda: picky(torch.full((64, 64), 7.0)) @ torch.rand(64, 64), real=True)
    durations = measure_isolated(graph)
    found = measured(durations)
    (index, reason), *others = found.stand_ins.items()
    assert others == []
    assert graph[index].name == "tensortide_tests.picky.default"
    assert "RuntimeError: no sevens" in reason
    assert durations.unknown == 1
    assert durations.ns[index] > 0
    assert found.ceilings is not None
    assert "1 of them inferred" in durations.source
    with pytest.raises(UnknownCost, match=r"picky.default x1: it cannot be executed in isolation"):
        require_all(graph, found.stand_ins)


def test_what_does_not_fit_into_memory_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = capture(_large)
    monkeypatch.setattr(isolated, "available_bytes", lambda: 10_000)
    reasons = measured(measure_isolated(graph)).stand_ins
    assert {graph[i].name for i in reasons} == {"aten.mm.default", "aten.select.int"}  # a view too needs what it views
    assert all("does not fit into memory" in reason for reason in reasons.values())
    monkeypatch.setattr(isolated, "available_bytes", lambda: 0)
    with pytest.raises(CaptureError, match="no op of the graph could be executed in isolation: it does not fit"):
        measure_isolated(graph)


WIDE, SMALL = torch.rand(100, 100), torch.ones(2)


def _large() -> torch.Tensor:
    return (WIDE @ WIDE)[0, :2] + SMALL


def test_distinct_ops_are_executed_once_and_like_ops_take_the_same_time() -> None:
    def step() -> None:
        for x in (torch.ones(3), torch.ones(3), torch.ones(4)):
            takes(x, 5000)
        takes(torch.ones(3), 7000)

    graph = capture(step, real=True)
    durations = measure_isolated(graph, clocks=STILL)
    times = [ns for op, ns in zip(graph, durations.ns, strict=True) if "takes" in op.name]
    assert times == [5000, 5000, 5000, 7000]
    assert f"distinct of {len(graph)} ops" in durations.source


def test_what_an_op_writes_in_place_is_fresh_each_time() -> None:
    x = torch.full((4,), 1.5)
    seen: list[float] = []

    @torch.library.custom_op("tensortide_tests::doubles_", mutates_args=("x",), schema="(Tensor(a!) x) -> ()")
    def doubles(x: torch.Tensor) -> None:
        seen.append(float(x.max()))
        x.mul_(2)

    graph = capture(lambda: doubles(x), real=True)
    seen.clear()
    measure_isolated(graph)
    assert len(seen) > 3
    assert len(set(seen)) == 1


# -- on an accelerator ------------------------------------------------------------------------------


class Null:
    """A device that is none: its queue runs an op when the host calls it, at the time of the test's clock."""

    def __init__(self) -> None:
        self.idle, self.calls = True, list[str]()
        null = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                null.idle, self.ns = False, HANDS.ns
                null.calls.append("record")

            def elapsed_time(self, other: Event) -> float:
                assert null.idle, "read before the queue has come so far"
                return (other.ns - self.ns) / 1e6

        self.Event = Event

    def synchronize(self) -> None:
        self.idle = True
        self.calls.append("synchronize")

    def get_device_name(self) -> str:
        return "Null 1"


@pytest.fixture
def null(monkeypatch: pytest.MonkeyPatch) -> Null:
    """The null device in place of GPUs; its tensors are those of the CPU."""
    device = Null()
    monkeypatch.setattr(torch, "get_device_module", lambda kind: device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(isolated, "AHEAD_BYTES", 8)
    monkeypatch.setattr(isolated, "device_context", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(isolated, "Operands", lambda op, device: Operands(op, "cpu"))
    return device


X = torch.ones(3)


def test_events_of_the_device_time_an_op_and_not_the_clock_of_the_host(null: Null) -> None:
    graph = capture(lambda: takes(takes(X, 5000), 7000).add(1), real=True)
    durations = measure_isolated(graph, device="cuda")
    assert durations.ns == (5000, 7000, 1)
    assert measured(durations).stand_ins == {}
    assert measured(durations).machine is not None
    assert "in isolation, on Null 1" in durations.source
    assert null.calls[:4] == ["synchronize", "record", "record", "synchronize"]


def test_kernels_of_a_gpu_are_measured_on_one_that_is_here(null: Null) -> None:
    graph = capture(lambda: takes(X, 5000), real=True)

    def on(device: str) -> Graph:
        return msgspec.structs.replace(
            graph, storages=tuple(msgspec.structs.replace(storage, device=device) for storage in graph.storages)
        )

    assert [own_device(on(device)) for device in ("cuda:0", "unknown", "cpu")] == ["cuda", "cuda", "cpu"]
    step = with_durations(Imported(on("cuda:0")), TimesRequest(measure=True))
    assert step.durations is not None
    assert step.durations.ns == (5000,)
    assert "on Null 1" in step.durations.source


def test_without_a_gpu_the_kernels_of_one_are_measured_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    graph = capture(lambda: X + 1, real=True)
    storages = tuple(msgspec.structs.replace(storage, device="cuda:0") for storage in graph.storages)
    assert own_device(msgspec.structs.replace(graph, storages=storages)) == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_takes_longer_for_more() -> None:
    small, large = (torch.rand(size, size) for size in (256, 4096))
    durations = measure_isolated(capture(lambda: (small @ small, large @ large), real=True), device="cuda")
    assert measured(durations).stand_ins == {}
    assert 1_000 < durations.ns[0] < durations.ns[1]
