"""An op costs the same in every vocabulary."""

from __future__ import annotations

import pytest

from tensortide.cost import Cost, count
from tensortide.graph import GraphBuilder

ALIKE = (
    "aten.add onnx.Add jax.add tf.AddV2 tflite.ADD",
    "aten.div onnx.Div jax.div tf.RealDiv tflite.DIV keras.ops_Divide",
    "aten.remainder onnx.Mod tf.FloorMod tflite.FLOOR_MOD",
    "aten.tanh onnx.Tanh jax.tanh tf.Tanh tflite.TANH keras.activation_tanh",
    "aten.relu onnx.Relu tf.Relu tflite.RELU keras.activation_relu",
    "aten.relu6 tf.Relu6 tflite.RELU6 keras.activation_relu6",
    "aten.sigmoid onnx.Sigmoid jax.logistic tf.Sigmoid tflite.LOGISTIC keras.activation_sigmoid",
    "aten.silu onnx.Swish keras.activation_silu",
    "aten.leaky_relu onnx.LeakyRelu tf.LeakyRelu tflite.LEAKY_RELU keras.activation_leaky_relu",
    "aten.gelu onnx.Gelu tflite.GELU keras.activation_gelu",
    "aten.softplus onnx.Softplus tf.Softplus keras.activation_softplus",
    "onnx.Softsign tf.Softsign keras.activation_softsign",
    "aten.elu onnx.Elu tf.Elu tflite.ELU keras.activation_elu",
    "aten.selu onnx.Selu tf.Selu keras.activation_selu",
    "aten.mish onnx.Mish keras.activation_mish",
    "aten.hardsigmoid onnx.HardSigmoid keras.activation_hard_sigmoid",
    "aten.softmax onnx.Softmax tf.Softmax tflite.SOFTMAX keras.activation_softmax",
    "aten.log_softmax onnx.LogSoftmax tf.LogSoftmax tflite.LOG_SOFTMAX keras.activation_log_softmax",
    "aten.hardswish onnx.HardSwish tflite.HARD_SWISH keras.activation_hard_silu",
)
"""Names of the same function of one or two tensors."""


def cost_of(name: str) -> Cost:
    b = GraphBuilder()
    x = b.input("x", (3, 5))
    given = [x, b.input("y", (3, 5))] if name in ALIKE[0] + ALIKE[1] + ALIKE[2] else [x]
    b.op(name, *given, out=x)
    return count(b.build(), strict=True).total.cost


@pytest.mark.parametrize("names", ALIKE)
def test_a_function_costs_the_same_whatever_it_is_called(names: str) -> None:
    costs = {name: cost_of(name) for name in names.split()}
    work = {(cost.elementwise_flops, cost.transcendentals, cost.comparisons, cost.int_ops) for cost in costs.values()}
    assert len(work) == 1, costs


@pytest.mark.parametrize("name", ["keras.ops_Argmax", "keras.ops_Argmin", "keras.ops_Max", "keras.ops_Min"])
def test_the_largest_of_a_row_is_found_by_comparisons(name: str) -> None:
    cost = cost_of(name)
    assert cost.comparisons == cost.elementwise_flops > 0
