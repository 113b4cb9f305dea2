"""Training steps derived from inference models have the products of the steps that PyTorch runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import tensortide
from tensortide.cost import count
from tensortide.errors import WorkloadError
from tensortide.graph import Graph, Phase, Role, unrolled
from tensortide.importers.onnx.rules.derived import OPTIMIZERS
from tensortide.importers.onnx.training.elements import SAVED
from tests.importers.onnx.build import FLOAT, INT64, node, stored
from tests.importers.onnx.build import model as built
from tests.importers.onnx.models import model, truth
from tests.importers.onnx.twins import TWINS, captured, exported
from tests.marks import some_slow

TRUTH = truth()


def derived(name: str, **options: Any) -> Graph:
    return tensortide.open(model(name), train=True, hyperparameters=TRUTH[name].get("at"), **options).graph


def activations(graph: Graph) -> int:
    return sum(storage.nbytes for storage in graph.storages if storage.role is Role.ACTIVATION)


MORE = {
    "mlp": (0.9, 1.1),
    "resnet": (0.7, 1.1),
    "decoder": (0.9, 1.8),
    "recurrent": (0.2, 0.4),
    "convolutions": (0.7, 1.4),
}
"""Bounds of the activations by those of PyTorch. Its kernels of LSTMs also keep a workspace; where it saves both the
input of a normalization and what a ReLU wrote in place of, we save each tensor once; its SiLU is two ops here. A
Transpose is a copy in ONNX, of heads and of weights that the exporter has not folded; in PyTorch it is a view."""


@pytest.mark.parametrize("name", some_slow(TWINS, ["decoder", "resnet"]))
def test_products_parameters_and_activations_are_those_of_the_torch_twin(name: str) -> None:
    found, twin = tensortide.open(exported(name), train=True).graph, captured(name)
    ours, theirs = count(found, strict=True), count(twin)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert ours.by_phase[phase.value].macs == theirs.by_phase[phase.value].macs
    assert ours.sizes.parameters == theirs.sizes.parameters
    assert ours.sizes.gradient_bytes == ours.sizes.parameter_bytes
    assert ours.sizes.optimizer_state_bytes == 2 * ours.sizes.parameter_bytes
    low, high = MORE[name]
    assert low < activations(found) / activations(twin) < high


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Abs": torch.abs, "Celu": torch.celu, "Cos": torch.cos, "Cosh": torch.cosh, "Elu": functional.elu,
    "Exp": torch.exp, "FastGelu": lambda x: functional.gelu(x, approximate="tanh"), "Gelu": functional.gelu,
    "HardSwish": functional.hardswish, "Mish": functional.mish, "Neg": torch.neg,
    "Pow": lambda x: x**2, "QuickGelu": lambda x: x * torch.sigmoid(1.702 * x), "Reciprocal": torch.reciprocal,
    "Relu": torch.relu, "Selu": torch.selu, "Sigmoid": torch.sigmoid, "Sin": torch.sin, "Sqrt": torch.sqrt,
    "Swish": functional.silu, "Tanh": torch.tanh,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_gradient_saves_determines_it(name: str) -> None:
    """Of a result that two elements share, no formula could tell two slopes."""
    positive = name in ("Reciprocal", "Sqrt")
    x = torch.linspace(0.1 if positive else -4, 4, 4001, dtype=torch.float64, requires_grad=True)
    y = FUNCTIONS[name](x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    if not SAVED[name]:
        assert bool((slope == slope[0]).all())
    elif SAVED[name] == "y":
        found, order = y.detach().sort()
        steps = slope[order].diff().abs()
        # where results are as close as they come, so are slopes, but at the corners of ReLU and its like
        assert int((steps > 100 * found.diff() + 0.02).sum()) <= 1


def test_a_loss_in_the_graph_is_where_gradients_begin() -> None:
    step = count(derived("embedding_loss"), strict=True)
    assert step.by_phase["backward"].macs == TRUTH["embedding_loss"]["train"]["backward_macs"]
    assert "its loss is the scalar output" in step.graph.meta.assumptions[-1]


def test_loops_go_backward_in_loops_of_as_many_trips() -> None:
    graph = derived("scan")
    assert [loop.trips for loop in graph.loops] == [6, 6]
    assert graph.loops[1].gradient_of == 0
    n, d, h, trips = 3, 5, 7, 6
    weights, state, head = n * (d * h + h * h), n * h * h, n * h * 2
    assert count(graph, strict=True).by_phase["backward"].macs == trips * (weights + state) + 2 * head


def test_every_iteration_of_a_loop_saves_its_own() -> None:
    graph = derived("scan")
    written_out = unrolled(graph)
    assert activations(written_out) == 6 * activations(graph)
    assert count(written_out).total.macs == count(graph).total.macs


def test_arms_go_backward_in_arms() -> None:
    low, high = count(derived("if_branches"), strict=True).range
    # then: 192 forward, its weight's gradient; else: 1024 and 768, the second with both gradients; 48 after, with both
    assert low.macs == 2 * 192 + 3 * 48
    assert high.macs == 2 * 1024 + 3 * 768 + 3 * 48


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    graph = tensortide.open(exported("convolutions"), train=True).graph
    made = [graph.calls[op.call].op for op in graph.ops]
    assert made.count("derived.ConvGradW") == 2
    assert made.count("derived.ConvGradX") == 1
    assert made.count("derived.ConvTransposeGradX") == 1


KEYS = {"k": (FLOAT, [2, 6, 16]), "v": (FLOAT, [2, 6, 16]), "past": (FLOAT, [2, 4, 4, 4]), "decay": (FLOAT, [2, 6, 4]),
        "beta": (FLOAT, [2, 6, 4])}  # fmt: skip
HEADS = {"q_num_heads": 4, "kv_num_heads": 4}
DEFINED = {
    "RotaryEmbedding": (node("RotaryEmbedding", "y c s p", "z", num_heads=4),
                        {"c": (FLOAT, [50, 2]), "s": (FLOAT, [50, 2]), "p": (INT64, [2, 6])}),
    "MeanVarianceNormalization": (node("MeanVarianceNormalization", "y", "z", axes=[0, 2]), {}),
    "CastLike": (node("CastLike", "y x", "z"), {}),
    "SwiGLU": (node("SwiGLU", "y x", "z"), {}),
    "CausalConvWithState": (node("CausalConvWithState", "y kernel", "z state"), {}),
    "LinearAttention": (node("LinearAttention", "y k v", "z state", update_rule="linear", **HEADS), KEYS),
    "LinearAttention with a decay":
        (node("LinearAttention", "y k v past decay beta", "z state", **HEADS), KEYS),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFINED)
def test_an_op_without_a_gradient_of_ours_is_trained_by_the_body_that_defines_it(name: str) -> None:
    defined, inputs = DEFINED[name]
    kept = [stored("w", FLOAT, [16, 16], 1.0), stored("kernel", FLOAT, [6, 1, 3], 1.0)]
    shapes = {"x": (FLOAT, [2, 6, 16]), **inputs}
    made = built([node("MatMul", "x w", "y"), defined], shapes, "z", kept, opset=28)
    graph = tensortide.open(made, train=True).graph
    counted = count(graph)
    assert not counted.coverage.missing
    assert not any("no rule knows" in note for note in graph.meta.assumptions)
    product = 2 * 6 * 16 * 16  # forward, and once more for the gradient of the weight
    least = 2 * product
    assert counted.total.macs == least if "Linear" not in name and "Conv" not in name else counted.total.macs > least
    (out,) = [graph.tensors[each.tensor] for each in graph.named if each.name == "z"]
    assert tuple(map(int, out.shape)) == (2, 6, 16)
    assert {loop.trips for loop in graph.loops} <= {6}  # the sequence, step by step
    whole = tensortide.open(made).graph
    assert [op.name for op in whole] == ["onnx.MatMul", f"onnx.{name.split()[0]}"]


def test_an_op_whose_gradient_nobody_knows_is_unknown_by_its_name() -> None:
    import onnx
    from onnx import helper

    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Det", ["y"], ["z"], name="det")]
    ports = [helper.make_tensor_value_info("x", 1, [4, 4])], [helper.make_tensor_value_info("z", 1, [])]
    weight = helper.make_tensor("w", 1, [4, 4], [0.0] * 16)
    graph = helper.make_graph(nodes, "det", *ports, [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert isinstance(made, onnx.ModelProto)
    counted = count(tensortide.open(made, train=True).graph)
    assert [group.name for group in counted.coverage.missing] == ["derived.DetGrad"]
    assert "no rule knows the gradient of onnx.Det" in counted.graph.meta.assumptions


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_steps_every_parameter_once(optimizer: str) -> None:
    graph = derived("functions", optimizer=optimizer)
    counted = count(graph, strict=True)
    steps = [op for op in graph.ops if op.phase is Phase.OPTIMIZER]
    assert len(steps) == 12  # tensors
    assert counted.by_phase["optimizer"].flops == OPTIMIZERS[optimizer].flops * 1536
    named = [entry for entry in graph.named if entry.role is Role.OPTIMIZER_STATE]
    if not OPTIMIZERS[optimizer].factored:
        assert len(named) == 12 * len(OPTIMIZERS[optimizer].state)


def test_an_unknown_optimizer_or_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(WorkloadError, match="adamw"):
        derived("functions", optimizer="adm")
