"""An op costs the same in every vocabulary."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from tensortide.cost import Cost, count
from tensortide.graph import GraphBuilder, Out
from tests.cost.probe import cost_of_call, tensor

Given: TypeAlias = dict[str, int]
Figures: TypeAlias = tuple[int, int, int]

PAIRS = (
    "aten.add onnx.Add jax.add tf.AddV2 tflite.ADD",
    "aten.div onnx.Div jax.div tf.RealDiv tflite.DIV keras.ops_Divide",
    "tf.DivNoNan keras.ops_DivideNoNan",
    "aten.remainder aten.fmod onnx.Mod jax.rem tf.FloorMod tflite.FLOOR_MOD tflite.STABLEHLO_REMAINDER keras.ops_Fmod",
    "aten.nextafter jax.nextafter tf.NextAfter keras.ops_Nextafter",
    "tf.LeftShift tf.RightShift tflite.RIGHT_SHIFT jax.shift_left keras.ops_LeftShift onnx.BitShift",
    "tf.UnsortedSegmentMax tflite.UNSORTED_SEGMENT_MAX keras.ops_SegmentMax",
    "tf.UnsortedSegmentSum tflite.UNSORTED_SEGMENT_SUM keras.ops_SegmentSum",
    "tf.BroadcastArgs tflite.BROADCAST_ARGS",
    "tf.InTopKV2 keras.ops_InTopK",
    "aten.threshold_backward derived.ReluGrad derived.ThresholdedReluGrad tf.ReluGrad",
    "aten.hardtanh_backward derived.ClipGrad tf.Relu6Grad",
    "aten.leaky_relu_backward derived.LeakyReluGrad tf.LeakyReluGrad",
    "aten.sigmoid_backward derived.SigmoidGrad derived.TanhGrad tf.TanhGrad",
    "derived.EluGrad derived.SeluGrad tf.EluGrad tf.SeluGrad",
    "aten.softplus_backward derived.SoftplusGrad tf.SoftplusGrad",
    "derived.SoftsignGrad tf.SoftsignGrad",
    "derived.SqrtGrad tf.SqrtGrad",
    "derived.ReciprocalGrad tf.ReciprocalGrad",
    "aten.silu_backward derived.SwishGrad",
    "aten.mish_backward derived.MishGrad",
    "aten.gelu_backward derived.GeluGrad",
    "aten.hardswish_backward derived.HardSwishGrad",
    "aten.hardsigmoid_backward derived.HardSigmoidGrad",
)
"""Names of the same function of two tensors."""

ALIKE = (
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
    "aten.threshold onnx.ThresholdedRelu keras.activation_threshold",
    "aten.conj_physical jax.conj tf.Conj keras.ops_Conj",
    "onnx.Range jax.iota tf.Range tflite.RANGE tflite.STABLEHLO_IOTA keras.ops_Arange",
    "aten._unique onnx.Unique tf.Unique tflite.UNIQUE keras.ops_Unique",
    "aten.topk onnx.TopK jax.top_k tf.TopKV2 tflite.TOPK_V2 keras.ops_TopK",
    "jax.cumsum onnx.CumSum",
)
"""Names of the same function of a tensor."""

MOVES = (
    "onnx.Cast jax.convert_element_type tf.Cast tflite.CAST keras.ops_Cast",
    "onnx.OneHot tf.OneHot tflite.ONE_HOT keras.ops_OneHot",
)
"""Names of the same movement of bytes."""

ROWS = (
    "aten.sum onnx.ReduceSum jax.reduce_sum tf.Sum tflite.SUM keras.ops_Sum",
    "aten.mean onnx.ReduceMean tf.Mean tflite.MEAN keras.ops_Mean",
    "aten.prod onnx.ReduceProd jax.reduce_prod tf.Prod tflite.REDUCE_PROD keras.ops_Prod",
    "aten.logsumexp onnx.ReduceLogSumExp",
    "aten.amax onnx.ReduceMax jax.reduce_max tf.Max tflite.REDUCE_MAX keras.ops_Max keras.ops_Argmin",
)
"""Names of the same reduction of rows."""


FIGURES: dict[str, tuple[Given, Figures]] = {
    "jax.cummax": ({"axis": 0}, (2 * 5, 0, 2 * 5)),
    "jax.cumlogsumexp": ({"axis": 1}, (5 * 12, 2 * 12, 12)),
    "keras.ops_Cumsum": ({"axis": 0}, (2 * 5, 0, 0)),
    "keras.ops_Nancumprod": ({}, (14, 0, 0)),  # all elements, one row
    "keras.ops_Logspace": ({}, (3 * 15, 15, 0)),
    # squares, their sum, a division, a root: of windows of 2 by 2
    "tflite.L2_POOL_2D": ({"filter_width": 2, "filter_height": 2}, (15 * (4 + 3 + 1 + 1), 15, 0)),
    "tflite.MAX_POOL_2D": ({"filter_width": 2, "filter_height": 2}, (15 * 3, 0, 15 * 3)),
    "tflite.AVERAGE_POOL_2D": ({"filter_width": 2, "filter_height": 2}, (15 * 4, 15, 0)),
}
"""Attributes of ops that no other vocabulary has, or has with its own; FLOPs, special functions and comparisons of
(3, 5), counted by hand."""


def cost_of(name: str, *more: tuple[int, ...], out: tuple[int, ...] = (3, 5)) -> Cost:
    b = GraphBuilder()
    given = [b.input(f"x{number}", shape) for number, shape in enumerate([(3, 5), *more])]
    b.op(name, *given, out=Out(out))
    return count(b.build(), strict=True).total.cost


def assert_alike(names: str, *more: tuple[int, ...], out: tuple[int, ...] = (3, 5)) -> None:
    costs = {name: cost_of(name, *more, out=out) for name in names.split()}
    work = {(cost.elementwise_flops, cost.transcendentals, cost.comparisons, cost.int_ops) for cost in costs.values()}
    assert len(work) == 1, costs
    assert work != {(0, 0, 0, 0)}


@pytest.mark.parametrize("names", ALIKE)
def test_a_function_costs_the_same_whatever_it_is_called(names: str) -> None:
    assert_alike(names)


@pytest.mark.parametrize("names", PAIRS)
def test_a_function_of_two_tensors_costs_the_same_whatever_it_is_called(names: str) -> None:
    assert_alike(names, (3, 5))


@pytest.mark.parametrize("names", ROWS)
def test_a_reduction_costs_the_same_whatever_it_is_called(names: str) -> None:
    assert_alike(names, out=(3,))


@pytest.mark.parametrize("names", MOVES)
def test_a_movement_is_the_same_whatever_it_is_called(names: str) -> None:
    costs = {name: cost_of(name) for name in names.split()}
    assert {(cost.flops, cost.int_ops, cost.read_bytes, cost.written_bytes) for cost in costs.values()} == {
        (0, 0, 60, 60)
    }, costs


@pytest.mark.parametrize("name", FIGURES)
def test_an_op_costs_what_is_counted_by_hand(name: str) -> None:
    given, expected = FIGURES[name]
    cost = cost_of_call(name, {"x": tensor(3, 5), **given}, tensor(3, 5))
    assert (cost.elementwise_flops, cost.transcendentals, cost.comparisons) == expected


@pytest.mark.parametrize(("layer", "gates"), [("LSTM", 4), ("GRU", 3), ("SimpleRNN", 1)])
def test_biases_of_a_recurrent_layer_are_two_additions_per_gate(layer: str, gates: int) -> None:
    """Three steps of two units on rows of 5: one bias with the input, one with the state."""
    flops = []
    for biased in (False, True):
        shapes = {"x": (3, 5), "kernel": (5, 2 * gates), "recurrent_kernel": (2, 2 * gates)}
        if biased:
            shapes["bias"] = (2, 2 * gates)
        given = {name: tensor(*shape) for name, shape in shapes.items()}
        cost = cost_of_call(f"keras.{layer}", given, tensor(3, 2))
        assert cost.macs == 3 * (5 + 2) * 2 * gates
        flops.append(cost.elementwise_flops)
    assert flops[1] - flops[0] == 3 * 2 * 2 * gates


@pytest.mark.parametrize(("name", "read"), [("tf.ScatterAdd", 16 + 40 + 40), ("tf.ScatterUpdate", 16 + 40)])
def test_updates_in_place_touch_their_rows_alone(name: str, read: int) -> None:
    """Two rows of 5 by two indices: rows that are added to are read, too."""
    given = {"ref": tensor(100, 5), "indices": tensor(2, dtype="int64"), "updates": tensor(2, 5)}
    cost = cost_of_call(name, given, tensor(100, 5))
    assert (cost.read_bytes, cost.written_bytes) == (read, 40)
