"""GraphModules and joint graphs in memory; places, strides and roles of nodes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import experimental
from torch.fx import GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import ShapeProp

import tensortide
from tensortide.cost import count
from tensortide.cost.parameters import model_sizes
from tensortide.errors import WorkloadError
from tensortide.graph import Graph, Phase
from tests.importers.exported.archives import macs, opened, saved


class Net(nn.Module):
    """A convolution and a linear layer, with their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.conv(x)).flatten(1)
        return nn.functional.cross_entropy(self.fc(hidden), y)


class Tuple(nn.Module):
    """A model whose output is a tuple."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> tuple[Any]:
        return (self.model(*inputs),)


INPUTS = torch.randn(2, 3, 6, 6), torch.tensor([1, 2])
FORWARD = 2 * 36 * 4 * 3 * 9 + 2 * 144 * 10


def by_phase(graph: Graph) -> dict[Phase, int]:
    found = dict.fromkeys((Phase.FORWARD, Phase.BACKWARD), 0)
    for op, priced in zip(graph, count(graph, strict=True).costs, strict=True):
        found[op.phase] += priced.cost.macs if priced.cost else 0
    return found


def test_a_joint_program_is_the_training_step_without_its_optimizer() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = experimental._export_forward_backward(torch.export.export(Net(), INPUTS))
    joint, step = opened(program), tensortide.capture(Net(), INPUTS, loss="output")
    assert by_phase(joint) == by_phase(step)
    assert model_sizes(joint).parameters == model_sizes(step).parameters
    assert model_sizes(joint).gradient_bytes == model_sizes(step).gradient_bytes


def joint_graph(model: nn.Module, *, named: bool) -> GraphModule:
    """The joint graph that AOTAutograd makes of a model, with the names of parameters or without."""
    from torch._functorch import aot_autograd, partitioners

    tools: Any = aot_autograd

    found: list[GraphModule] = []

    def partition(joint: GraphModule, *args: Any, **options: Any) -> Any:
        found.append(joint)
        return partitioners.default_partition(joint, *args, **options)

    def boxed(module: GraphModule, _: Any) -> Any:
        return tools.make_boxed_func(module.forward)

    how: dict[str, Any] = {"fw_compiler": boxed, "bw_compiler": boxed, "partition_fn": partition}
    if named:
        tools.aot_module_simplified(Tuple(model), INPUTS, **how)
        return found[0]
    parameters = dict(model.named_parameters())

    def call(x: torch.Tensor, y: torch.Tensor, *values: torch.Tensor) -> Any:
        return torch.func.functional_call(model, dict(zip(parameters, values, strict=True)), (x, y))

    tools.aot_function(call, **how)(*INPUTS, *parameters.values())
    return found[0]


@pytest.mark.parametrize("named", [True, False])
def test_a_joint_graph_of_aotautograd_is_the_training_step(named: bool) -> None:
    joint, step = opened(joint_graph(Net(), named=named)), tensortide.capture(Net(), INPUTS, loss="output")
    assert by_phase(joint) == by_phase(step)
    assert model_sizes(joint).parameters == model_sizes(step).parameters
    assert model_sizes(joint).gradient_bytes == model_sizes(step).gradient_bytes


def test_a_joint_module_of_aotautograd_with_its_signature_is_the_training_step() -> None:
    from torch._functorch import aot_autograd

    tools: Any = aot_autograd
    module, signature = tools.aot_export_module(Tuple(Net()), INPUTS, trace_joint=True, output_loss_index=0)
    joint, step = opened(module, signature=signature), tensortide.capture(Net(), INPUTS, loss="output")
    assert by_phase(joint) == by_phase(step)
    assert model_sizes(joint).trainable == model_sizes(step).trainable
    assert {entry.name for entry in joint.named if entry.role == "gradient"} == {
        f"model.{name}.grad" for name in ("conv.weight", "conv.bias", "fc.weight", "fc.bias")
    }


@pytest.mark.filterwarnings("ignore")
def test_the_compiled_view_of_a_workload_has_the_products_of_the_eager_one() -> None:
    settings = {"batch": 3, "inputs": 7, "hidden": 5, "layers": 2, "classes": 4}
    compiled = opened("mlp", hyperparameters=settings, compiled=True)
    eager = opened("mlp", hyperparameters=settings)
    assert compiled.meta.graphs
    assert count(compiled).total.macs == count(eager).total.macs


def test_a_graph_module_of_the_dispatcher_is_read_as_it_is() -> None:
    model = nn.Linear(6, 4)
    traced = make_fx(lambda x: torch.relu(model(x)), tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        torch.randn(3, 6)
    )
    graph = opened(traced)
    assert count(graph).total.macs == 3 * 6 * 4
    assert {storage.role for storage in graph.storages} >= {"parameter", "input", "output"}


def test_a_graph_module_without_shapes_says_how_to_get_them() -> None:
    traced = symbolic_trace(Net())
    with pytest.raises(WorkloadError, match=r"carry no shapes.*inputs=\(x,\)"):
        opened(traced)
    assert macs(traced, inputs=INPUTS) == FORWARD
    with pytest.raises(WorkloadError, match="has no symbols"):
        opened(traced, inputs=INPUTS, hyperparameters={"batch": 4})
    ShapeProp(traced).propagate(*INPUTS)
    assert macs(traced) == FORWARD


def test_nodes_have_their_modules_and_lines() -> None:
    graph = opened(torch.export.export(Net(), INPUTS))
    places = {op.name: (op.module, op.source.code if op.source else "") for op in graph}
    assert places["aten.conv2d.default"] == ("conv", "hidden = torch.relu(self.conv(x)).flatten(1)")
    assert places["aten.linear.default"][0] == "fc"
    assert graph.index.devices.keys() == {"cpu"}


def test_frozen_and_tied_parameters() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight
            self.scale = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, ids: torch.Tensor) -> Any:
            return self.head(self.embed(ids) * self.scale)

    sizes = model_sizes(opened(torch.export.export(Tied(), (torch.tensor([1, 2]),))))
    assert (sizes.parameters, sizes.trainable) == (9 * 4 + 4, 9 * 4)


def test_another_object_is_nothing_that_is_opened() -> None:
    with pytest.raises(WorkloadError, match="ExportedProgram, GraphModule"):
        opened(object())


class Solved(nn.Module):
    """Solves a system: decomposed, its check for errors is kept in order by a token."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        solved: torch.Tensor = torch.linalg.solve(x, x)
        inverse: torch.Tensor = torch.linalg.inv(x)
        return solved + inverse


def test_tokens_that_keep_effects_in_order_are_no_data(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.export.export(Solved(), (torch.eye(4),)).run_decompositions()
    assert "with_effects" in str(program.graph)
    for target in (program, saved(program, tmp_path / "solved.pt2")):
        graph = opened(target)
        assert count(graph, strict=True).total.macs == (4**3 // 3 + 4**3) + 4**3
        assert [graph.calls[op.call].op for op in graph.ops].count("aten._linalg_check_errors.default") == 2
