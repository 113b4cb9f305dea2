"""Reductions, softmax, normalization and pooling of TensorFlow graphs. Counting convention: docs/cost.md."""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, interface, nothing
from tensortide.cost.kinds import Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.expr import expr_of
from tensortide.importers.tf1.rules.moves import tf


def _reduced(op: OpCall) -> Bytes:
    """A reduction over no axes is its input."""
    return nothing(op) if _same_shape(op) else Bytes(op.inputs[0].region_bytes, interface(op).written)


def _same_shape(op: OpCall) -> bool:
    given, made = op.inputs[0].shape, op.out.shape
    return tuple(map(expr_of, given)) == tuple(map(expr_of, made))


@tf("Sum Prod BiasAddGrad", "R (n - 1); a view if no axis is reduced", bytes=_reduced)
@tf(
    "Max Min ArgMax ArgMin All Any", "R (n - 1) comparisons; a view if no axis is reduced",
    "Largest or smallest, or its place.", bytes=_reduced,
)  # fmt: skip
def reduction(op: OpCall) -> Cost:
    """n - 1 additions or products per row of n."""
    op.let(E=op.inputs[0].numel, R=op.out.numel)
    count = op.inputs[0].numel - op.out.numel
    if op.base in ("Sum", "Prod", "BiasAddGrad"):
        return elements(op, count, Weights(1, 0, 0, 6 if op.base == "Prod" else 2))
    return elements(op, count, Weights(1, 0, 1), kind_of(op.inputs[:1]))


@tf("Mean", "R n: n - 1 adds and a division per row; a view if no axis is reduced", bytes=_reduced)
def mean(op: OpCall) -> Cost:
    """Average."""
    op.let(E=op.inputs[0].numel, R=op.out.numel)
    return Cost() if _same_shape(op) else rows_work(op, op.inputs[0].numel, op.out.numel)


@tf("Cumsum Cumprod", "1 per element (bound: n - 1 per row of n)")
def scan(op: OpCall) -> Cost:
    """Running sum or product. Along which axis is a value, which a graph does not have."""
    work = elements(op, op.inputs[0].numel, Weights(1, 0, 0, 2))
    return work + Cost(exact=False, reason="bound: the axis is not known")


@tf("Softmax", "R (5n - 2)", "Per row: maximum n-1, subtract n, exp n, add n-1, divide n.")
@tf("LogSoftmax", "R (5n - 1)", "Per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n.")
@tf(
    "SparseSoftmaxCrossEntropyWithLogits", "R 4n for the loss, + R (n + 1) for the gradient if it is read",
    "Loss per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract 1. Gradient: divide n, subtract 1.",
    asks_wanted=True,
)  # fmt: skip
@tf(
    "SoftmaxCrossEntropyWithLogits", "R (7n - 2) for the loss, + 2 R n for the gradient if it is read",
    "Loss per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n, multiply n, add n-1. Gradient: divide\n"
    "n, subtract n.",
    asks_wanted=True,
)  # fmt: skip
def softmax(op: OpCall) -> Cost:
    """A softmax, its logarithm, or a loss of it with its gradient: FLOPs and special functions per row."""
    *outer, n = op.inputs[0].shape
    rows = math.prod(outer)
    op.let(R=rows, n=n)
    gradient = op.base.endswith("WithLogits") and op.wanted(1)
    flops, special = {
        "Softmax": (5 * n - 2, 2 * n),
        "LogSoftmax": (5 * n - 1, n + 1),
        "SparseSoftmaxCrossEntropyWithLogits": (4 * n + (n + 1 if gradient else 0), n + 1),
        "SoftmaxCrossEntropyWithLogits": (7 * n - 2 + (2 * n if gradient else 0), n + 1),
    }[op.base]
    return rows_work(op, rows * flops, rows * (special + (n if gradient else 0)), rows * (n - 1))


@tf(
    "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
    "per channel 7m + 2 (statistics, scale and offset); in evaluation 2m + 5",
)  # fmt: skip
@tf(
    "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3", "per channel 9m + 1; in evaluation 6m - 2",
    "Gradients for input, scale and offset.",
)  # fmt: skip
def batch_norm(op: OpCall) -> Cost:
    """Normalization over batch and space; running averages are ops of their own here."""
    total, channels = op.tensor("x").numel, op.tensor("scale").numel
    op.let(E=total, C=channels)
    training = op.arg("is_training", True)
    if "Grad" in op.base:
        flops, special = (9 * total + channels, 2) if training else (6 * total - 2 * channels, 0)
    else:
        flops, special = (7 * total + 2 * channels, 3) if training else (2 * total + 5 * channels, 1)
    return Cost(elementwise_flops=flops, transcendentals=special * channels)


def _window(op: OpCall) -> int:
    window: int = math.prod(op.arg("ksize", ()))
    op.let(K=window)
    return window


@tf("MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax", "K - 1 comparisons per output")
def max_pool(op: OpCall) -> Cost:
    """Largest of each window."""
    compared = (_window(op) - 1) * op.out.numel
    return Cost(elementwise_flops=compared, comparisons=compared)


@tf("MaxPoolGrad MaxPool3DGrad", "1 per output of the forward")
def max_pool_gradient(op: OpCall) -> Cost:
    """Each gradient goes to the element that was the largest."""
    return Cost(elementwise_flops=op.tensor("grad").numel)


@tf("AvgPool AvgPool3D", "K per output: K - 1 adds, 1 division")
def average_pool(op: OpCall) -> Cost:
    """Mean of each window."""
    return Cost(elementwise_flops=_window(op) * op.out.numel, transcendentals=op.out.numel)


@tf("AvgPoolGrad AvgPool3DGrad", "K + 1 per output of the forward")
def average_pool_gradient(op: OpCall) -> Cost:
    """Each gradient, divided, is added to every element of its window."""
    count = op.tensor("grad").numel
    return Cost(elementwise_flops=(_window(op) + 1) * count, transcendentals=count)
