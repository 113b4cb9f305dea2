"""Cost rules of the ops of derived training steps: gradients and optimizer steps (``derived::MatMulGradA``)."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.cost.access import Bytes, size
from tensortide.cost.families import (
    convolution,
    einsum,
    fill,
    free,
    move,
    placed,
    pool,
    reduction,
    segment,
    softmax_gradient,
    update,
)
from tensortide.cost.families.attention import Problem, backward
from tensortide.cost.families.products import product
from tensortide.cost.families.reductions import normalization_gradients
from tensortide.cost.kinds import Weights, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.importers.onnx.rules.products import pairs, recurrent_layer

derived = Vocabulary("derived")


class Gradient(NamedTuple):
    """Gradient of an op on elements: what it reads of the forward pass (``x``, its input, ``y``, its output, or
    nothing), and its work per element, by name where an op of another vocabulary does the same."""

    saved: str
    work: Weights | str


GRADIENTS: dict[str, Gradient] = {
    "Relu": Gradient("y", "relu_gradient"),
    "ThresholdedRelu Shrink": Gradient("x", "relu_gradient"),
    "LeakyRelu PRelu": Gradient("x", "leaky_relu_gradient"),
    "Clip": Gradient("x", "bounds_gradient"),
    "Sigmoid Tanh": Gradient("y", "sigmoid_gradient"),
    "Exp": Gradient("y", "multiplication"),
    "Sqrt": Gradient("y", Weights(2, 1)),
    "Reciprocal": Gradient("y", Weights(3)),
    "Log": Gradient("x", "division"),
    "Erf": Gradient("x", Weights(4, 1)),
    "Sin Cos Sinh Cosh": Gradient("x", Weights(2, 1)),
    "Tan Atan Asin Acos Asinh Acosh Atanh": Gradient("x", Weights(4, 2)),
    "Abs": Gradient("x", Weights(2, 0, 1)),
    "Neg": Gradient("", "arithmetic"),
    "Softplus": Gradient("x", "softplus_gradient"),
    "Softsign": Gradient("x", "softsign_gradient"),
    "Elu Celu Selu": Gradient("y", "elu_gradient"),
    "Swish": Gradient("x", "silu_gradient"),
    "Mish": Gradient("x", "mish_gradient"),
    "Gelu": Gradient("x", "gelu_gradient"),
    "FastGelu": Gradient("x", "gelu_tanh_gradient"),
    "QuickGelu": Gradient("x", Weights(9, 2)),
    "HardSwish": Gradient("x", "hard_swish_gradient"),
    "HardSigmoid": Gradient("x", "hard_sigmoid_gradient"),
    "Pow": Gradient("x", Weights(3, 1)),
}
"""By op type."""

derived.rows({" ".join(f"{name}Grad" for name in names.split()): one.work for names, one in GRADIENTS.items()})
derived.rows({
    "AddGradients MulGrad NegGradient Scale Accumulate": "arithmetic",
    "DivGradA": "division",
    "DivGradB": Weights(4, 1),
    "SelectGrad": "comparison",
    "View Loop If Stack Push Pop": free(),
    "Zeros OnesGradient": fill(),
    "Join": move("Parts joined."),
    "Copy Spread": placed(meaning="A copy, possibly broadcast."),
    "SumTo": reduction("sum"),
    "GatherGrad": segment(),
    "MaxPoolGrad": pool("max_gradient", "", of="0"),
    "AveragePoolGrad": pool("mean_gradient", "kernel_shape", of="0"),
    "ConvGradX ConvGradW": convolution("OI*", kernel="W out", of="gradient", bias=""),
    "ConvTransposeGradX": convolution("IO*", kernel="W", of="out", bias="", transposed=True),
    "ConvTransposeGradW": convolution("IO*", kernel="out", of="X", bias="", transposed=True),
    "EinsumGrad": einsum(),
    "SoftmaxGrad LogSoftmaxGrad": softmax_gradient(axis="axis"),
})  # fmt: skip


@derived(
    "NormGrad", "input R (9n + n (scale)); scale 2 R n - n'; bias R n - n', each if wanted", family="normalization"
)
@derived(
    "RMSNormGrad",
    "input R (6n + n); scale 2 R n - n', each if wanted",
    "Gradients of a root-mean-square norm.",
    family="normalization",
)
@derived(
    "BatchNormGrad",
    "as NormGrad, rows being channels",
    "Gradients of a batch normalization in training.",
    family="normalization",
)
def norm(op: OpCall) -> Cost:
    """Gradients of a normalization, as wanted."""
    x = op.inputs[0]
    each = 6 if op.base.startswith("RMS") else 9
    each += 0 if op.base.startswith("Batch") else op.arg("scaled", 1)
    return normalization_gradients(each, x.numel, op.arg("affine", 1), op.arg("wanted"))


@derived("LossGrad", "4n per row", family="loss")
def loss(op: OpCall) -> Cost:
    """Gradient of a cross entropy for the scores."""
    return rows_work(op, 4 * op.out.numel)


@derived("ResizeGrad", "nearest E_out - E_in adds; linear 2t per output", family="window")
def resized(op: OpCall) -> Cost:
    """A gradient added at the places that were interpolated."""
    gradient, made = op.inputs[0], op.out
    if op.arg("mode", "nearest") == "nearest":
        return rows_work(op, max(0, gradient.numel - made.numel))
    changed = sum(int(a) != int(b) for a, b in zip(gradient.shape, made.shape, strict=True))
    return rows_work(op, gradient.numel * 2 * (4 if op.arg("mode") == "cubic" else 2) ** changed)


@derived("MatMulGradA", "E k MACs, E of the product's result", family="contraction")
@derived(
    "MatMulGradB",
    "E k MACs, E of the product's result",
    "Gradient of a product's second operand.",
    family="contraction",
)
def matmul(op: OpCall) -> Cost:
    """Gradient of a product's first operand; its dimension ``k`` was contracted."""
    k = op.out.shape[op.arg("k", 0)]
    op.let(k=k, E=op.tensor("gradient").numel)
    return product(op, op.tensor("gradient").numel * k)


@derived(
    "LSTMGrad GRUGrad RNNGrad",
    "T B G X if the input's is wanted + (T-1) B G H + T B G (X + H) of the weights",
    family="recurrent",
)
def recurrent(op: OpCall) -> Cost:
    """Gradients of a recurrent layer, as wanted."""
    one, directions = recurrent_layer(op)
    of_input, of_weights, of_state = op.arg("wanted")
    return one.backward(of_input, of_state, of_weights) * directions


@derived("AttentionGrad", "B H Sq Sk (2 Dk + 2 Dv) MACs; the scores are rebuilt", family="attention")
def attention(op: OpCall) -> Cost:
    """Gradients of query, key and value."""
    rows, queries, keys, inner, width = pairs(op)
    every = rows * queries * keys
    one = Problem(rows, 1, 1, queries, keys, inner, width, every, every, masked=False, dropout=False)
    return backward(op, one, (True, True, True, False))


class Step(NamedTuple):
    """An optimizer: work per element of a parameter, special functions among it, and the names of its state."""

    flops: int
    transcendentals: int
    state: tuple[str, ...]
    text: str
    factored: bool = False


OPTIMIZERS: dict[str, Step] = {
    "sgd": Step(2, 0, (), "scale and subtract the gradient"),
    "momentum": Step(4, 0, ("momentum",), "decay and add 2, scale and subtract 2"),
    "nesterov": Step(6, 0, ("momentum",), "momentum 2, look ahead 2, update 2"),
    "adam": Step(13, 2, ("exp_avg", "exp_avg_sq"), "first moment 3, second moment 4, denominator 3, update 3"),
    "adamw": Step(14, 2, ("exp_avg", "exp_avg_sq"), "Adam 13, decoupled decay 1"),
    "amsgrad": Step(14, 2, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), "Adam 13, a maximum"),
    "adagrad": Step(6, 2, ("sum",), "square and add 2, root, divide, scale, subtract"),
    "rmsprop": Step(8, 2, ("square_avg",), "mean square 3, denominator 2, update 3"),
    "lion": Step(7, 0, ("exp_avg",), "interpolate 3, sign, update 1, moment 2"),
    "adafactor": Step(
        12, 1, ("row", "column"), "square 2, means of rows and columns 2, scale 3, clip 3, update 2", factored=True
    ),
}
"""Optimizers by name."""


def _stepped(op: OpCall) -> Bytes:
    """Parameter, gradient and state are read; parameter and state written."""
    return Bytes(size(op.inputs), size(op.mutated))


derived.rows({
    f"{name}_step": update(
        step.flops, step.transcendentals, step.text, of="parameter", bytes=_stepped,
        reason="factored second moment, per element" * step.factored,
    )
    for name, step in OPTIMIZERS.items()
})  # fmt: skip
