"""What a capture writes down: ops in order, lifetimes, roles, phases, places in the code, recomputation."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide import capture
from tensortide.graph import Graph, OpView, Phase, Role
from tensortide.recorder import context
from tensortide.reports.sections import Step
from tests.recorder.workloads import ALL, Net, checkpointed, classifier, tied


def graph_of(name: str, **more: Any) -> Graph:
    workload, settings = ALL[name]
    return capture(workload, hyperparameters={**settings, **more})


def ops(graph: Graph, name: str) -> list[OpView]:
    return [op for op in graph if op.name.split(".")[1] == name]


def test_phases_modules_and_lines() -> None:
    graph = graph_of("adamw")
    [conv] = [op for op in ops(graph, "native_batch_norm") if op.phase is Phase.FORWARD]
    assert (conv.module, conv.source.function if conv.source else "") == ("norm", "Net.forward")
    [back] = ops(graph, "native_batch_norm_backward")
    assert (back.phase, back.module, back.source) == (Phase.BACKWARD, "norm", conv.source)
    updates = ops(graph, "addcdiv_")
    assert {op.phase for op in updates} == {Phase.OPTIMIZER}
    assert all(op.source is not None and op.source.code == "update.step()" for op in updates)
    assert all(op.source is not None and Path(op.source.file).name == "workloads.py" for op in graph)
    losses = ops(graph, "_log_softmax")
    assert [op.module for op in losses] == ["(outside)"]


def test_roles_of_storages() -> None:
    graph = graph_of("adamw")
    by_role = Counter(storage.role for storage in graph.storages)
    model = Net()
    parameters = len(list(model.parameters()))
    assert by_role[Role.PARAMETER] == by_role[Role.GRADIENT] == parameters
    assert by_role[Role.OPTIMIZER_STATE] == 3 * parameters
    assert by_role[Role.BUFFER] == len(list(model.buffers()))
    assert {s.name for s in graph.storages if s.role is Role.INPUT} == {"x", "labels"}
    assert [s.name for s in graph.storages if s.role is Role.OUTPUT] == ["output"]
    kept = {s.birth for s in graph.storages if s.role is Role.ACTIVATION and s.birth is not None}
    assert {graph[i].name for i in kept} >= {
        "aten.addmm.default",
        "aten.relu.default",
        "aten.native_batch_norm.default",
    }


def test_parameters_are_named_and_sized() -> None:
    graph = graph_of("adamw")
    expected = {name: (tuple(p.shape), p.requires_grad) for name, p in Net().named_parameters()}
    found = {n.name: (graph.tensors[n.tensor].shape, n.trainable) for n in graph.named if n.role is Role.PARAMETER}
    assert found == expected


def test_tied_weights_are_two_names_of_one_tensor() -> None:
    graph = capture(tied)
    entries = [n for n in graph.named if n.role is Role.PARAMETER]
    assert [n.name for n in entries] == ["0.weight", "1.weight"]
    assert len({n.tensor for n in entries}) == 1
    assert sum(s.role is Role.GRADIENT for s in graph.storages) == 1


def test_lifetimes_are_those_of_eager_execution() -> None:
    """A chain of elementwise ops keeps two blocks alive at a time; what autograd saves lives until its backward."""

    def workload() -> Any:
        x = torch.randn(1000)
        weight = torch.randn(1000, requires_grad=True)

        def step() -> None:
            y = x + 1
            y = y + 2
            y = y + 3
            loss = (weight * y).sum()
            del y
            loss.backward()
            weight.grad = None

        return step

    graph = capture(workload)
    adds = [op.index for op in ops(graph, "add")]
    lives = {s.birth: s.death for s in graph.storages if s.birth in adds}
    assert [lives[i] for i in adds[:2]] == [adds[1] + 1, adds[2] + 1]
    gradient = [op.index for op in ops(graph, "mul") if op.phase is Phase.BACKWARD]
    assert lives[adds[2]] == gradient[-1] + 1


@pytest.mark.parametrize("real", [True, False])
def test_a_module_made_in_the_step_is_released_with_its_last_name(real: bool) -> None:
    """As a model that is copied for an inner loop: watching the copy does not keep its parameters resident."""
    model, x = torch.nn.Linear(8, 8), torch.randn(2, 8)

    def step() -> None:
        copied = copy.deepcopy(model)
        target = copied(x).detach()
        del copied
        (model(x) - target).sum().backward()

    graph = capture(step, real=real)
    copies = [s for s in graph.storages if s.birth is not None and graph[s.birth].name == "aten.clone.default"]
    forward = [i for i, op in enumerate(graph) if op.name == "aten.addmm.default"]
    assert len(copies) == 2  # gradients are not copied
    assert all(s.death is not None and s.death <= forward[1] for s in copies)


def test_the_meta_device_is_not_the_one_that_figures_are_about() -> None:
    """Tensors there have no bytes, however many they seem."""

    def workload() -> Any:
        model, x = torch.nn.Linear(8, 8), torch.randn(2, 8)

        def step() -> Any:
            large = torch.nn.Linear(1000, 1000, device="meta")
            (model(x).sum() * sum(p.numel() for p in large.parameters())).backward()

        return step

    graph = capture(workload)
    assert [*graph.index.devices] == ["cpu", "meta"]
    assert tensortide.timeline(graph).device == "cpu"


def test_the_first_step_creates_optimizer_state() -> None:
    steady = graph_of("adamw")
    first = capture(classifier, first_step=True)
    created = [s for s in first.storages if s.role is Role.OPTIMIZER_STATE]
    assert created
    assert all(s.birth is not None for s in created if s.nbytes > 4)
    assert all(s.birth is None for s in steady.storages if s.role is Role.OPTIMIZER_STATE)
    assert (steady.meta.step, first.meta.step) == ("steady", "first")


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_marked(reentrant: bool) -> None:
    graph = capture(checkpointed, hyperparameters={"reentrant": reentrant})
    again = [op for op in graph if op.op.recompute]
    forward = [op.name for op in graph if op.phase is Phase.FORWARD and op.op.module >= 0]
    assert {op.phase for op in again} == {Phase.BACKWARD}
    assert [op.name for op in again if "detach" not in op.name][:3] == [n for n in forward if "detach" not in n][:3]
    assert not [op for op in graph_of("adamw") if op.op.recompute]
    assert not [op for op in graph_of("second-order") if op.op.recompute]


def test_mutation_and_aliases() -> None:
    graph = graph_of("adamw")
    update = ops(graph, "lerp_")[0]
    assert update.written_storages == {update.inputs[0].storage}
    assert graph.storages[update.inputs[0].storage].role is Role.OPTIMIZER_STATE
    transposed = ops(graph, "t")[0]
    assert transposed.is_view
    assert transposed.outputs[0].storage == transposed.inputs[0].storage
    assert not update.is_view


def test_accumulation_runs_the_model_more_than_once() -> None:
    graph = graph_of("accumulation")
    assert len([op for op in ops(graph, "native_batch_norm") if op.phase is Phase.FORWARD]) == 3
    parameters = len(list(Net().parameters()))
    assert sum(s.role is Role.GRADIENT for s in graph.storages) == parameters


def test_autocast_casts_are_recorded() -> None:
    graph = graph_of("autocast")
    assert {op.outputs[0].dtype for op in ops(graph, "addmm")} == {"bfloat16"}
    assert ops(graph, "_to_copy")


def test_clipping_and_clearing_are_neither_forward_nor_backward() -> None:
    graph = graph_of("clipping")
    assert {op.phase for op in ops(graph, "_foreach_norm")} == {Phase.OTHER}


def test_the_scaler_is_assumed_to_find_no_overflow() -> None:
    graph = graph_of("scaler")
    assert graph.meta.assumptions == ("the gradient scaler finds no overflow",)
    assert any(op.phase is Phase.OPTIMIZER for op in graph)


def test_both_branches_of_an_unknown_conditional() -> None:
    def workload() -> Any:
        layer = nn.Linear(8, 8)
        x = torch.randn(2, 8)

        def step() -> Any:
            y = layer(x)
            two = lambda t: (t @ layer.weight) @ layer.weight  # noqa: E731
            one = lambda t: t @ layer.weight  # noqa: E731
            z = torch.cond(y.sum() > 0, two, one, (y,))
            z.sum().backward()
            layer.zero_grad()
            return z

        return step

    graph = capture(workload)
    products = [op for op in ops(graph, "mm") if op.phase is Phase.FORWARD]
    assert [op.op.branch for op in products] == [0, 0, 1]
    assert [(b.conditional, b.arm, b.parent) for b in graph.branches] == [(0, 0, -1), (0, 1, -1)]
    backward = Counter(op.op.branch for op in ops(graph, "mm") if op.phase is Phase.BACKWARD)
    assert backward[0] == 4
    assert backward[1] == 2
    real = capture(workload, real=True)
    assert len([op for op in ops(real, "mm") if op.phase is Phase.FORWARD]) in (1, 2)
    assert not real.branches


def test_several_models_are_told_apart() -> None:
    def workload() -> Any:
        generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)

        def step() -> torch.Tensor:
            loss: torch.Tensor = critic(generator(torch.ones(3, 2))).sum()
            loss.backward()
            return loss

        return step

    graph = capture(workload)
    assert {n.name for n in graph.named if n.role is Role.PARAMETER} == {
        *("generator.weight", "generator.bias", "critic.weight", "critic.bias")
    }
    assert {op.module for op in ops(graph, "addmm")} == {"generator", "critic"}


def test_nothing_is_allocated() -> None:
    """A model of 400 GB is captured; its parameters are where the Graph says they are: nowhere."""

    def workload(width: int = 100_000) -> Any:
        model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(10)))
        update = torch.optim.AdamW(model.parameters())
        x = torch.randn(16, width)

        def step() -> torch.Tensor:
            loss: torch.Tensor = model(x).sum()
            loss.backward()
            update.step()
            update.zero_grad()
            return loss

        return step

    graph = capture(workload)
    assert sum(s.nbytes for s in graph.storages if s.role is Role.PARAMETER) == 10 * 4 * 100_000**2


def test_inputs_may_be_nested_positional_or_by_keyword() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, batch: dict[str, Any], scale: float = 1.0) -> dict[str, torch.Tensor]:
            return {"y": self.layer(batch["x"][0]) * scale}

    batch = {"x": [torch.randn(2, 4)]}
    for inputs in ((batch,), {"batch": batch, "scale": 2.0}):
        graph = capture(Nested(), inputs, loss=lambda out: out["y"].sum(), optimizer="sgd")
        assert [op.phase for op in ops(graph, "addmm")] == [Phase.FORWARD]
    graph = capture(Nested(), (batch,))
    assert {op.phase for op in graph} == {Phase.FORWARD}
    assert len(ops(graph, "addmm")) == 1


def test_an_input_that_requires_a_gradient_is_an_input() -> None:
    graph = graph_of("second-order")
    roles = {n.name: n.role for n in graph.named}
    assert roles["x"] is Role.INPUT
    assert roles["0.weight"] is Role.PARAMETER
    bare = capture(ALL["attention"][0])
    assert {n.name: n.role for n in bare.named}["q"] is Role.PARAMETER
    held = capture(ALL["custom-function"][0])
    assert {n.name: n.role for n in held.named}["weight"] is Role.PARAMETER


def test_a_parameter_whose_data_is_exchanged_is_one_parameter() -> None:
    def workload() -> Any:
        layer = nn.Linear(4, 4, bias=False)
        x = torch.randn(2, 4)

        def step() -> torch.Tensor:
            kept = layer.weight.data
            layer.weight.data = kept + 1
            loss: torch.Tensor = layer(x).sum()
            loss.backward()
            layer.weight.data = kept.clone()
            layer.zero_grad()
            return loss

        return step

    graph = capture(workload)
    assert [n.name for n in graph.named if n.role is Role.PARAMETER] == ["weight"]
    assert sum(s.role is Role.PARAMETER for s in graph.storages) == 2


def test_a_model_that_returns_its_loss() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.layer(x).sum())

    graph = capture(Model(), torch.randn(2, 4), loss="output", optimizer="sgd")
    assert Phase.OPTIMIZER in {op.phase for op in graph}


def test_ops_of_a_thread_without_python_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator's backward runs on a thread of its own, where no Python frame is below the op."""
    frameless = SimpleNamespace(_getframe=lambda depth: SimpleNamespace(f_back=None))
    monkeypatch.setattr(context, "sys", frameless)
    graph = capture(classifier)
    assert all(op.source is None for op in graph)
    assert {op.phase for op in graph} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert [op.module for op in ops(graph, "native_batch_norm_backward")] == ["norm"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["wrapped", "in place", "not"])
def test_eager_ops_of_a_compiled_model_are_called_so(kind: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    called: Any = torch.compile(model) if kind == "wrapped" else model
    if kind == "in place":
        model.compile()
    step = Step(capture(lambda: called(x).sum().backward()))
    assert [op.name for op in step.graph][:3] == ["aten.t.default", "aten.addmm.default", "aten.relu.default"]
    assert ("eager ops of a torch.compile'd model" in " ".join(step.document().subtitle)) == (kind != "not")


@pytest.mark.parametrize(("steps", "critic", "loops"), [(1, 1, False), (1, 5, False), (3, 1, True), (3, 2, True)])
def test_a_loop_of_training_steps_in_one_call_is_called_that(steps: int, critic: int, loops: bool) -> None:
    models = [torch.nn.Linear(4, 4) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

    def train() -> None:
        for _ in range(steps):
            for which in (*[0] * critic, 1):
                models[which](torch.ones(2, 4)).sum().backward()
                optimizers[which].step()

    said = capture(train, name="train.py:train").meta.assumptions
    expected = f"{steps * (critic + 1)} optimizer steps inside one call of train, all counted: tensortide report -- "
    assert [text.startswith(expected) and "python train.py" in text for text in said] == [True] * loops
