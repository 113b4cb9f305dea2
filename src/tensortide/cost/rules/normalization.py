"""Normalization layers and softmax. Counting convention: docs/cost.md, normalization and softmax.

Rows of n elements are normalized together. Each reads its input once, although kernels may pass over it twice.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, interface, reads, size
from tensortide.cost.families import normalization, softmax, softmax_gradient
from tensortide.cost.families.reductions import along, normalization_gradients
from tensortide.cost.kinds import rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "normalization")

WANTED = (True, True, True)


def layer(rows: int, n: int, weight: int, bias: int) -> Cost:
    """Per row 5n + 2: mean n, centre n, variance 2n, eps and rsqrt 2, scale n; weight and bias one per element."""
    return Cost(elementwise_flops=rows * (5 * n + 2) + weight + bias, transcendentals=3 * rows)


def _rows(op: OpCall) -> tuple[int, int, int, int]:
    """Rows, their length, elements of the weight, and elements of the input."""
    if "group" in op.arguments:
        batch, channels, space, groups = (op.arg(name, 1) for name in ("N", "C", "HxW", "group"))
        rows, n, total = batch * groups, channels // groups * space, batch * channels * space
        op.let(C=channels)
    else:
        total, n = op.tensor("input").numel, math.prod(op.arg("normalized_shape", ()))
        rows, channels = total // max(1, n), n
    op.let(R=rows, n=n)
    return rows, n, channels, total


aten.rows({
    "native_layer_norm layer_norm": normalization("row", "normalized_shape", affine="weight bias"),
    "native_group_norm group_norm": normalization("groups", "group num_groups", affine="weight bias"),
    "_fused_rms_norm rms_norm": normalization("row", "normalized_shape", affine="weight bias", centred=False),
    "_softmax _safe_softmax softmax": softmax(axis="dim"),
    "_log_softmax log_softmax": softmax(axis="dim", log=True),
    "_softmax_backward_data _masked_softmax_backward": softmax_gradient(axis="dim", of="grad_output"),
    "_log_softmax_backward_data": softmax_gradient(axis="dim", of="grad_output", log=True),
})  # fmt: skip


@aten(
    "native_layer_norm_backward",
    "input R (9n + n (weight)); weight (2R - 1) n; bias (R - 1) n, each if wanted",
    meaning="Gradients of layer normalization for input, weight and bias, as wanted.",
    bytes=reads("grad_out", "input", "mean", "rstd", "weight"),
)
@aten("native_group_norm_backward", "input R (9n + n (weight)); weight 2 N C HW - C; bias N C HW - C, each if wanted")
def layer_norm_backward(op: OpCall) -> Cost:
    """Gradients of group normalization for input, weight and bias, as wanted."""
    rows, _, affine, total = _rows(op)
    wanted = op.arg("output_mask", WANTED)
    return normalization_gradients(9 + op.has("weight"), total, affine, wanted, rows, 2) if total else Cost()


@aten("_fused_rms_norm_backward", "input R (6n + n (weight)); weight (2R - 1) n, each if wanted")
def rms_norm_backward(op: OpCall) -> Cost:
    """Gradients of root-mean-square normalization for input and weight, as wanted."""
    rows, n, _, total = _rows(op)
    return normalization_gradients(6 + op.has("weight"), total, n, op.arg("output_mask", (True, True)), rows, 1)


# -- batch normalization ----------------------------------------------------------------------------


def _channels(op: OpCall) -> tuple[int, int]:
    """Channels, and elements of them all."""
    shape = op.shape("input")
    channels, total = shape[1] if len(shape) > 1 else 1, math.prod(shape)
    op.let(C=channels, m=total // max(1, channels))
    return channels, total


def _with_running(op: OpCall) -> Bytes:
    """Running statistics are read and, in training, written, whatever the schema says."""
    running = [*op.tensors("running_mean"), *op.tensors("running_var")] if op.arg("training", True) else []
    return Bytes(interface(op).read, size([*op.outputs, *running]))


TRAINING = "per channel 5m + 2 + m (weight) + m (bias) + 7 (running statistics)"


@aten(
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm batch_norm",
    TRAINING + "; in evaluation 2m + 5",
    meaning="Normalization over batch and space (Ioffe and Szegedy, 2015).",
    bytes=_with_running,
)
@aten(
    "_batch_norm_with_update _batch_norm_with_update_functional _native_batch_norm_legit_functional",
    TRAINING,
    meaning="Batch normalization that also updates running statistics.",
)
@aten("_native_batch_norm_legit_no_training _batch_norm_no_update", "per channel 2m + 5")
def batch_norm(op: OpCall) -> Cost:
    """Batch normalization by stored statistics: a folded scale and shift."""
    channels, total = _channels(op)
    if "_no_" in op.base or not op.arg("training", True):
        return Cost(elementwise_flops=2 * total + 5 * channels, transcendentals=channels)
    applied = total * (1 + op.has("weight") + op.has("bias"))
    return _statistics(op) + Cost(elementwise_flops=applied)


@aten("batch_norm_stats batch_norm_update_stats", "per channel 4m + 2 (+ 7 running)")
def _statistics(op: OpCall) -> Cost:
    """Mean and variance per channel, of one of several devices."""
    channels, total = _channels(op)  # mean m and variance 3m, eps and rsqrt 2, running averages 7
    flops = 4 * total + (2 + 7 * op.has("running_mean")) * channels
    return Cost(elementwise_flops=flops, transcendentals=3 * channels)


@aten(
    "native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward",
    "per channel 9m + 1; in evaluation m (input), 4m - 1 (weight), m - 1 (bias), each if wanted",
    bytes=reads("grad_out", "grad_output", "input", "weight", "save_mean", "save_invstd", "save_var", "reserve"),
)
def batch_norm_backward(op: OpCall) -> Cost:
    """Gradients of batch normalization; in training the weight's and bias's are sums the input's needs."""
    channels, total = _channels(op)
    of_input, of_weight, of_bias = op.arg("output_mask", WANTED)
    if op.arg("train", op.arg("update", True)) and of_input:
        return Cost(elementwise_flops=9 * total + channels, transcendentals=2 * channels)
    flops = (total if of_input else 0) + (4 * total - channels if of_weight else 0)
    return Cost(elementwise_flops=flops + (total - channels if of_bias else 0))


@aten("batch_norm_elemt", "per channel 2m + m (weight) + m (bias)", meaning="Centre, scale, weight and bias.")
@aten(
    "batch_norm_backward_reduce", "per channel 4m - 1 + m - 1", meaning="Sums over one device that the gradients need."
)
@aten("batch_norm_backward_elemt", "per channel 4m + 5", meaning="Input gradient from the sums over all devices.")
def batch_norm_part(op: OpCall) -> Cost:
    """Parts of batch normalization over several devices."""
    channels, total = _channels(op)
    if op.base == "batch_norm_elemt":
        return Cost(elementwise_flops=total * (2 + op.has("weight") + op.has("bias")))
    return Cost(elementwise_flops=5 * total - 2 * channels if "reduce" in op.base else 4 * total + 5 * channels)


@aten(
    "batch_norm_gather_stats batch_norm_gather_stats_with_counts",
    "per channel 10 W + 9",
    bytes=reads("mean", "invstd", "running_mean", "running_var", "counts"),
)
def batch_norm_gather(op: OpCall) -> Cost:
    """Statistics of W devices combined, with the running averages."""
    workers, channels = op.shape("mean")[0], op.shape("mean")[-1]
    return Cost(elementwise_flops=channels * (10 * workers + 9), transcendentals=channels * (workers + 1))


@aten(
    "_weight_norm_interface", "2n (norm) + n (scale) + 1 per row", meaning="``g v / |v|`` (Salimans and Kingma, 2016)."
)
@aten("_weight_norm_interface_backward", "2n - 1 (dot) + 3n (combine) + 5 per row")
def weight_norm(op: OpCall) -> Cost:
    """Gradients of direction and length."""
    total, rows = op.first("v", "saved_v").numel, op.first("g", "saved_g").numel
    if "backward" in op.base:
        return Cost(elementwise_flops=5 * total + 4 * rows, transcendentals=rows)
    return Cost(elementwise_flops=3 * total + rows, transcendentals=2 * rows)


# -- softmax ----------------------------------------------------------------------------------------


@aten("_masked_softmax", "R (5n - 2) + R n of a mask", family="softmax")
def masked_softmax(op: OpCall) -> Cost:
    """A selection of every element, then softmax."""
    rows, n = along(op, "dim")
    masked = rows * n if op.has("mask") else 0
    return rows_work(op, rows * (5 * n - 2) + masked, 2 * rows * n, rows * (n - 1) + masked)
