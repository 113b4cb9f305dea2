"""Cost rules of the ops of derived training steps: gradients and optimizer steps (``derived::MatMulGradA``)."""

from __future__ import annotations

import math
from typing import NamedTuple

from tensortide.cost.access import Bytes, nothing, size, writes_only
from tensortide.cost.forms import simple
from tensortide.cost.kinds import Weights, elements, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import Vocabulary
from tensortide.cost.rules.pointwise import ARITHMETIC, describe
from tensortide.cost.rules.products import product
from tensortide.importers.onnx.rules.products import einsum_work, pairs, recurrent_layer

derived = Vocabulary("derived")


class Gradient(NamedTuple):
    """Gradient of an op on elements: what it reads of the forward pass (``x``, its input, ``y``, its output, or
    nothing), and its work per element."""

    saved: str
    work: Weights


GRADIENTS: dict[str, Gradient] = {
    "Relu": Gradient("y", Weights(1, 0, 1)),
    "LeakyRelu ThresholdedRelu PRelu": Gradient("x", Weights(2, 0, 1)),
    "Clip": Gradient("x", Weights(2, 0, 2)),
    "Sigmoid Tanh": Gradient("y", Weights(3)),
    "Exp": Gradient("y", Weights(1)),
    "Sqrt": Gradient("y", Weights(2, 1)),
    "Reciprocal": Gradient("y", Weights(3)),
    "Log": Gradient("x", Weights(1, 1)),
    "Erf": Gradient("x", Weights(4, 1)),
    "Sin Cos Sinh Cosh": Gradient("x", Weights(2, 1)),
    "Tan Atan Asin Acos Asinh Acosh Atanh": Gradient("x", Weights(4, 2)),
    "Abs": Gradient("x", Weights(2, 0, 1)),
    "Neg": Gradient("", Weights(1)),
    "Softplus": Gradient("x", Weights(5, 2, 1)),
    "Softsign": Gradient("x", Weights(5, 1, 1)),
    "Elu Celu Selu": Gradient("y", Weights(3, 0, 1)),
    "Swish": Gradient("x", Weights(9, 2)),
    "Mish": Gradient("x", Weights(14, 5, 1)),
    "Gelu": Gradient("x", Weights(11, 2)),
    "FastGelu": Gradient("x", Weights(18, 1)),
    "QuickGelu": Gradient("x", Weights(9, 2)),
    "HardSwish": Gradient("x", Weights(4, 0, 2)),
    "HardSigmoid": Gradient("x", Weights(3, 0, 2)),
    "Shrink": Gradient("x", Weights(1, 0, 1)),
    "Pow": Gradient("x", Weights(3, 1)),
}
"""By op type."""

for _names, _gradient in GRADIENTS.items():
    _grads = " ".join(f"{name}Grad" for name in _names.split())
    derived(_grads, describe(_gradient.work), "Gradient, element by element.")(simple(_gradient.work))

derived("AddGradients MulGrad NegGradient Scale", "1 per element", "Element work of gradients.")(simple(ARITHMETIC))
derived("DivGradA", "1 per element", "Gradient of a quotient for its dividend.")(simple(Weights(1, 1)))
derived("DivGradB", "4 per element", "Gradient of a quotient for its divisor.")(simple(Weights(4, 1)))
derived("SelectGrad", "1 compared per element", "A gradient where an element was chosen.")(simple(Weights(1, 0, 1)))
derived("Accumulate", "1 per element", "A gradient added to what other uses gave.")(simple(ARITHMETIC))


@derived("View Loop If Stack Push Pop", "0: no bytes move", bytes=nothing, is_free=True)
def free(op: OpCall) -> Cost:
    """A renaming."""
    del op
    return FREE


@derived("Zeros OnesGradient", "0 FLOP: written", bytes=writes_only)
@derived("Join", "0 FLOP: read and written", "Parts joined.")
@derived("Copy Spread", "0 FLOP: read and written", "A copy, possibly broadcast.",
         bytes=lambda op: Bytes(size(op.inputs[:1]), size(op.outputs)))  # fmt: skip
def moved(op: OpCall) -> Cost:
    """Nothing is computed."""
    del op
    return Cost()


@derived("SumTo", "R (n - 1)")
def summed(op: OpCall) -> Cost:
    """A gradient summed over the dimensions along which the operand was broadcast."""
    return rows_work(op, max(0, op.inputs[0].numel - op.out.numel))


@derived("GatherGrad", "1 per element of the gradient (bound)",
         bytes=lambda op: Bytes(size(op.inputs), size(op.outputs)))  # fmt: skip
def scattered(op: OpCall) -> Cost:
    """A gradient added at its indices into zeros of the whole table."""
    return elements(op, op.inputs[0].numel, ARITHMETIC) + Cost(exact=False, reason="bound: equal indices are not seen")


@derived("SoftmaxGrad LogSoftmaxGrad", "R (4n - 1)")
def softmax(op: OpCall) -> Cost:
    """Gradient of softmax."""
    x = op.inputs[0]
    n = x.shape[op.arg("axis", -1)] if x.shape else 1
    return rows_work(op, 4 * x.numel - x.numel // max(1, n))


@derived("NormGrad", "input R (9n + n (scale)); scale 2 R n - n'; bias R n - n', each if wanted")
@derived("RMSNormGrad", "input R (6n + n); scale 2 R n - n', each if wanted", "Gradients of a root-mean-square norm.")
@derived("BatchNormGrad", "as NormGrad, rows being channels", "Gradients of a batch normalization in training.")
def norm(op: OpCall) -> Cost:
    """Gradients of a normalization, as wanted."""
    x = op.inputs[0]
    of_input, of_scale, of_bias = op.arg("wanted")
    affine = op.arg("affine", 1)
    each = 6 if op.base.startswith("RMS") else 9
    flops = (each + (0 if op.base.startswith("Batch") else op.arg("scaled", 1))) * x.numel if of_input else 0
    flops += 2 * x.numel - affine if of_scale else 0
    flops += x.numel - affine if of_bias else 0
    return Cost(elementwise_flops=max(0, flops))


@derived("LossGrad", "4n per row")
def loss(op: OpCall) -> Cost:
    """Gradient of a cross entropy for the scores."""
    return rows_work(op, 4 * op.out.numel)


@derived("MaxPoolGrad", "1 per element of the gradient")
@derived("AveragePoolGrad", "K + 1 per element of the gradient", "A gradient spread over its window.")
def pooled(op: OpCall) -> Cost:
    """A gradient given to the largest of its window."""
    window = math.prod(op.arg("kernel_shape", ()))
    return rows_work(op, op.inputs[0].numel * (1 if op.base.startswith("Max") else window + 1))


@derived("ResizeGrad", "nearest E_out - E_in adds; linear 2t per output")
def resized(op: OpCall) -> Cost:
    """A gradient added at the places that were interpolated."""
    gradient, made = op.inputs[0], op.out
    if op.arg("mode", "nearest") == "nearest":
        return rows_work(op, max(0, gradient.numel - made.numel))
    changed = sum(int(a) != int(b) for a, b in zip(gradient.shape, made.shape, strict=True))
    return rows_work(op, gradient.numel * 2 * (4 if op.arg("mode") == "cubic" else 2) ** changed)


@derived("MatMulGradA", "E k MACs, E of the product's result")
@derived("MatMulGradB", "E k MACs, E of the product's result", "Gradient of a product's second operand.")
def matmul(op: OpCall) -> Cost:
    """Gradient of a product's first operand; its dimension ``k`` was contracted."""
    k = op.out.shape[op.arg("k", 0)]
    op.let(k=k, E=op.tensor("gradient").numel)
    return product(op, op.tensor("gradient").numel * k)


@derived("ConvGradX ConvGradW", "as the convolution")
def convolution(op: OpCall) -> Cost:
    """Gradient of a convolution's input or filter: every element of the result met the whole filter."""
    w = op.tensor("W") if op.has("W") else op.out
    return product(op, op.tensor("gradient").numel * math.prod(w.shape[1:]))


@derived("ConvTransposeGradX ConvTransposeGradW", "as the transposed convolution")
def transposed(op: OpCall) -> Cost:
    """Gradient of a transposed convolution's input or filter: every input element met the whole filter."""
    w, x = (op.tensor("W"), op.out) if op.has("W") else (op.out, op.tensor("X"))
    return product(op, x.numel * math.prod(w.shape[1:]))


@derived("EinsumGrad", "product of all distinct indices MACs")
def einsum(op: OpCall) -> Cost | None:
    """Gradient of one operand of a sum of products."""
    found = einsum_work(str(op.arg("equation", "")), [x.shape for x in op.inputs])
    return None if found is None else product(op, found[0], found[1])


@derived("LSTMGrad GRUGrad RNNGrad", "T B G X if the input's is wanted + (T-1) B G H + T B G (X + H) of the weights")
def recurrent(op: OpCall) -> Cost:
    """Gradients of a recurrent layer, as wanted."""
    one, directions = recurrent_layer(op)
    of_input, of_weights, of_state = op.arg("wanted")
    return one.backward(of_input, of_state, of_weights) * directions


@derived("AttentionGrad", "B H Sq Sk (2 Dk + 2 Dv) MACs; the scores are rebuilt")
def attention(op: OpCall) -> Cost:
    """Gradients of query, key and value."""
    rows, queries, keys, inner, width = pairs(op)
    all_pairs = rows * queries * keys
    return Cost(
        macs=2 * all_pairs * (inner + width), kernel_recompute_macs=all_pairs * inner,
        elementwise_flops=5 * all_pairs - rows * queries,
    )  # fmt: skip


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


for _name, _step in OPTIMIZERS.items():

    def _work(op: OpCall, step: Step = _step) -> Cost:
        """One step per element of the parameter."""
        count = op.tensor("parameter").numel
        cost = Cost(elementwise_flops=step.flops * count, transcendentals=step.transcendentals * count)
        return cost + Cost(exact=False, reason="factored second moment, per element") if step.factored else cost

    derived(f"{_name}_step", f"{_step.flops} per element", f"One step: {_step.text}.", bytes=_stepped)(_work)
