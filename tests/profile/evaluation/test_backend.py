"""PyTorch's backend: its Graphs are those of real calls, and the model is left as it was."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tensortide
from tensortide.errors import CaptureError, MetricError, Unavailable
from tensortide.graph.model import Graph, Phase, Role
from tensortide.measures.backend import Arguments, Backend, backend_of, forward_times_ns
from tensortide.profile.evaluation.backend import BACKEND
from tensortide.profile.evaluation.modes import restored

backend: Backend = BACKEND


class Net(nn.Module):
    """Convolution, batch norm and dropout; named and positional arguments, nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)
        self.calls: list[tuple[bool, bool, bool]] = []

    def forward(self, x: Tensor, *, scale: Tensor | None = None) -> dict[str, Any]:
        self.calls.append((self.training, self.norm.training, torch.is_grad_enabled()))
        hidden = self.drop(self.norm(self.conv(x)).mean((2, 3)))
        out = self.head(hidden if scale is None else hidden * scale)
        return {"logits": out, "more": [hidden, (out.argmax(1), None)]}


ARGUMENTS = Arguments((torch.ones(2, 3, 6, 6),), {"scale": torch.full((2, 1), 2.0)})


def state(model: nn.Module) -> Any:
    """All that may change of a model and of the process."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return (
        [module.training for module in model.modules()],
        {name: (id(t), t.data_ptr(), t.device, t.dtype, t._version) for name, t in tensors.items()},
        {name: t.tolist() for name, t in tensors.items()},
        {name: None if p.grad is None else (id(p.grad), p.grad.tolist()) for name, p in model.named_parameters()},
        [set(vars(module)) for module in model.modules()],
        (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()),
        (torch.is_grad_enabled(), torch.get_num_threads()),
    )


@pytest.fixture(params=["training", "evaluation", "mixed"])
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    """A model in each kind of modes, with gradients; it is the same after the test."""
    model = Net()
    model.head(torch.ones(1, 4)).sum().backward()
    model.train(request.param != "evaluation")
    if request.param == "mixed":
        model.norm.eval()
    before = copy.deepcopy(state(model))
    yield model
    model.calls.clear()
    assert state(model) == before


def names(graph: Graph, phase: Phase = Phase.FORWARD) -> list[str]:
    return [op.name for op in graph if op.phase is phase]


def test_the_forward_graph_is_of_evaluation_mode(net: Net) -> None:
    graph = backend.forward_graph(net, ARGUMENTS)
    assert {op.phase for op in graph.ops} == {Phase.FORWARD}
    assert "aten.native_dropout.default" not in names(graph)
    saved = [s for s in graph.storages if s.role is Role.BUFFER]
    written = {storage for op in range(len(graph)) for storage in graph.index.writes[op]}
    assert saved
    assert not any(graph.storages[s].role is Role.BUFFER for s in written)
    assert {op.module for op in graph} >= {"conv", "norm", "head"}
    assert graph.meta.captured_on == "fake"
    assert graph.meta.workload == "Net"


def test_the_forward_graph_is_that_of_capture(net: Net) -> None:
    plain = copy.deepcopy(net).eval()
    theirs = tensortide.capture(plain, (ARGUMENTS.positional[0],))
    ours = backend.forward_graph(net, Arguments(ARGUMENTS.positional))
    assert [op.name for op in ours] == [op.name for op in theirs]
    assert [op.module for op in ours] == [op.module for op in theirs]


def test_the_training_graph_has_the_backward_of_every_float_output(net: Net) -> None:
    graph = backend.training_graph(net, ARGUMENTS)
    forward, backward = names(graph), names(graph, Phase.BACKWARD)
    assert forward.count("aten.sum.default") == 2  # logits and hidden, not the classes
    assert "aten.convolution_backward.default" in backward
    assert "aten.native_batch_norm_backward.default" in backward
    assert "aten.bernoulli_.float" in forward  # dropout
    frozen = net.training and not net.norm.training  # as the user trains it
    (norm,) = (op for op in graph if op.name == "aten.native_batch_norm.default")
    assert dict(norm.call.arguments)["training"] is not frozen


def test_outputs_are_released_before_the_backward() -> None:
    model = nn.Linear(4, 8)
    graph = backend.training_graph(model, Arguments((torch.ones(2, 4),)))
    first = next(i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD)
    outputs = [s for s in graph.storages if s.nbytes == 2 * 8 * 4 and s.birth is not None and s.birth < first]
    assert outputs
    assert all(s.death is not None and s.death <= first for s in outputs)


def test_a_model_without_a_backward_has_no_training_graph() -> None:
    model = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(Unavailable, match="output of the model takes gradients"):
        backend.training_graph(model, Arguments((torch.ones(1, 2),)))
    assert names(backend.forward_graph(model, Arguments((torch.ones(1, 2),))))


class OwnTrain(nn.Module):
    """``train`` does more than set flags: batch norm stays frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def train(self, mode: bool = True) -> OwnTrain:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)  # type: ignore[no-any-return]


def test_the_training_mode_is_the_models_own() -> None:
    model = OwnTrain().eval()
    graph = backend.training_graph(model, Arguments((torch.ones(2, 3),)))
    written = {storage for op in range(len(graph)) for storage in graph.index.writes[op]}
    assert not any(graph.storages[storage].role is Role.BUFFER for storage in written)
    assert (model.training, model.norm.training) == (False, False)


def test_a_graph_is_captured_by_a_call_of_ones_own(net: Net) -> None:
    def call(model: Any, inputs: Any) -> Any:
        return model(inputs["image"] * 2)["logits"]

    given: Any = {"image": torch.ones(2, 3, 6, 6)}
    assert names(backend.forward_graph(net, given, call=call))[0] == "aten.mul.Tensor"
    assert names(backend.training_graph(net, given, call=call)).count("aten.sum.default") == 1


def test_a_graph_of_a_gpu_needs_none(net: Net) -> None:
    graph = backend.forward_graph(net, ARGUMENTS, device="cuda")
    on_host = [s.nbytes for s in graph.storages if s.device != "cuda:0"]
    assert on_host == [8]  # the counter of batch norm
    with pytest.raises(CaptureError, match="not on 'tpu'"):
        backend.forward_graph(net, ARGUMENTS, device="tpu")


def test_forward_calls_are_timed_from_outside(net: Net) -> None:
    times = forward_times_ns(backend, net, ARGUMENTS, warmup=2, runs=3)
    assert len(times) == 3
    assert min(times) > 0
    assert net.calls == [(False, False, False)] * 5
    for warmup, runs in ((-1, 3), (0, 0)):
        with pytest.raises(MetricError, match="runs is at least 1"):
            forward_times_ns(backend, net, ARGUMENTS, warmup=warmup, runs=runs)


class Nested(nn.Sequential):
    """A container of its own kind, whose inner calls take most of the time."""

    def forward(self, x: Tensor) -> Tensor:
        for module in self:
            x = module(x)
        return x


def test_a_call_is_not_averaged_with_those_nested_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1_000_000))
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(now) * 1000)
    model = Nested(Nested(nn.Linear(4, 4)), Nested(nn.Linear(4, 4)))
    assert forward_times_ns(backend, model, Arguments((torch.ones(1, 4),)), runs=4, warmup=1) == [1000] * 4


def test_evaluation_restores_whatever_happens(net: Net) -> None:
    def evaluate() -> None:
        with backend.evaluating(net, "cpu") as place:
            assert not torch.is_grad_enabled()
            assert not any(module.training for module in net.modules())
            assert place((np.ones(2), {"x": torch.ones(1)}, "text"))[0].dtype == torch.float64
            torch.rand(3)
            np.random.rand()
            net.train()
            raise KeyError

    with pytest.raises(KeyError):
        evaluate()


def test_tensors_that_were_moved_are_put_back(net: Net) -> None:
    with restored(net):
        net.double()
        assert net.conv.weight.dtype == torch.float64
        net.to("meta")
        assert net.conv.weight.is_meta


def test_evaluation_is_on_the_device_that_is_named(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensortide.profile.evaluation.modes.device_of", torch.device)  # meta stands for a GPU
    with backend.evaluating(net, "meta") as place:
        assert {p.device.type for p in net.parameters()} == {b.device.type for b in net.buffers()} == {"meta"}
        positional, named = place(ARGUMENTS)
        assert net(*positional, **named)["logits"].is_meta


def test_a_model_without_values_has_graphs_alone() -> None:
    model, given = nn.Linear(2, 2).to("meta"), Arguments((torch.ones(1, 2),))
    assert {s.device for s in backend.training_graph(model, given).storages} == {"meta"}
    with pytest.raises(MetricError, match="Linear is on the device 'meta'"):
        forward_times_ns(backend, model, given)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_model_is_evaluated_and_restored() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    with backend.evaluating(model):
        assert not any(module.training for module in model.modules())
    assert all(module.training for module in model.modules())
    with pytest.raises(CaptureError, match="TorchScript"):
        backend.forward_graph(model, Arguments((torch.ones(1, 2),)))


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "", "meta", "cpu:x"])
def test_a_device_that_is_not_here_is_refused(net: Net, device: str) -> None:
    with pytest.raises(MetricError, match="device"), backend.evaluating(net, device):
        pass


@dataclass
class Output:
    """An output that PyTorch's trees do not know."""

    logits: Tensor


def test_outputs_are_found_in_dataclasses() -> None:
    class Model(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return Output(super().forward(x))

    graph = backend.training_graph(Model(2, 2), Arguments((torch.ones(1, 2),)))
    assert names(graph).count("aten.sum.default") == 1


def test_models_and_tensors_are_recognized() -> None:
    assert backend_of(Net()) is BACKEND
    assert BACKEND.recognizes(torch.ones(1))
    with pytest.raises(MetricError, match="dict is no model of torch"):
        backend_of({})


@pytest.mark.parametrize(
    ("scores", "last", "expected"),
    [
        (torch.tensor([[0.1, 0.7, 0.2], [3.0, 1.0, 2.0]]), False, [[1, 2, 0], [0, 2, 1]]),
        (torch.tensor([[1.0, 1.0, 0.0]]), False, [[0, 1, 2]]),  # of equal ones the first leads
        (torch.tensor([[0.5], [-0.5], [0.0]]), False, [[1, 0], [0, 1], [0, 1]]),
        (torch.tensor([0.5, -0.5]), False, [[1, 0], [0, 1]]),
        (torch.tensor([[[1.0, 2.0], [4.0, 3.0]]]), True, [[1, 0], [0, 1]]),
        (torch.tensor([[[1.0, 2.0], [4.0, 1.0]]]), False, [[1, 0], [0, 1]]),
    ],
)
def test_classes_are_ranked(scores: Tensor, last: bool, expected: list[list[int]]) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert backend.ranking(scores.to(dtype), 9, last=last).tolist() == expected
        assert backend.ranking(scores.to(dtype), 1, last=last).tolist() == [row[:1] for row in expected]


def test_numbers_of_anything() -> None:
    made: list[Callable[[list[float]], Any]] = [list, np.array, torch.tensor, lambda x: torch.tensor(x).bfloat16()]
    for make in made:
        assert backend.array(make([1.0, 2.0])).tolist() == [1.0, 2.0]
