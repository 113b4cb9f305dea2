"""Normalization layers. Counting convention: docs/cost.md, normalization.

Rows of n elements are normalized together. Each reads its input once, although kernels may pass over it twice.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, interface, reads, size
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


def layer(rows: int, n: int, weight: int, bias: int) -> Cost:
    """Per row 5n + 2: mean n, centre n, variance 2n, eps and rsqrt 2, scale n; weight and bias one per element."""
    return Cost(elementwise_flops=rows * (5 * n + 2) + weight + bias, transcendentals=3 * rows)


@rule("aten::native_layer_norm", "aten::layer_norm", formula="R (5n + 2 + n (weight) + n (bias))")
def layer_norm(op: OpCall) -> Cost:
    """Normalization over the trailing dimensions."""
    total, n = op.tensor("input").numel, math.prod(op.arg("normalized_shape", ()))
    op.let(R=total // max(1, n), n=n)
    return layer(total // max(1, n), n, total * op.has("weight"), total * op.has("bias"))


@rule(
    "aten::native_layer_norm_backward",
    formula="input R (9n + n (weight)); weight (2R - 1) n; bias (R - 1) n, each if wanted",
    bytes=reads("grad_out", "input", "mean", "rstd", "weight"),
)
def layer_norm_backward(op: OpCall) -> Cost:
    """Gradients of layer normalization for input, weight and bias, as wanted."""
    total, n = op.tensor("input").numel, math.prod(op.arg("normalized_shape", ()))
    rows = total // max(1, n)
    op.let(R=rows, n=n)
    return affine_backward(rows, n, n, total, op.has("weight"), tuple(op.arg("output_mask", (True, True, True))))


def affine_backward(rows: int, n: int, affine: int, total: int, weight: bool, mask: tuple[bool, ...]) -> Cost:
    """Input 9n (+ n with a weight) per row; weight 2, bias 1 per element, less one sum start per affine element."""
    of_input, of_weight, of_bias = mask
    if total == 0:
        return Cost()
    flops = rows * (10 if weight else 9) * n if of_input else 0
    flops += 2 * total - affine if of_weight else 0
    flops += total - affine if of_bias else 0
    return Cost(elementwise_flops=flops, transcendentals=2 * rows if of_input else 0)


def _groups(op: OpCall) -> tuple[int, int, int, int]:
    batch, channels, space, groups = (op.arg(name, 1) for name in ("N", "C", "HxW", "group"))
    rows, n = batch * groups, channels // groups * space
    op.let(R=rows, n=n, C=channels)
    return rows, n, channels, batch * channels * space


@rule("aten::native_group_norm", formula="R (5n + 2 + n (weight) + n (bias)), R = N groups")
def group_norm(op: OpCall) -> Cost:
    """Normalization over groups of channels."""
    rows, n, _, total = _groups(op)
    return layer(rows, n, total * op.has("weight"), total * op.has("bias"))


@rule(
    "aten::native_group_norm_backward",
    formula="input R (9n + n (weight)); weight 2 N C HW - C; bias N C HW - C, each if wanted",
)
def group_norm_backward(op: OpCall) -> Cost:
    """Gradients of group normalization for input, weight and bias, as wanted."""
    rows, n, channels, total = _groups(op)
    return affine_backward(rows, n, channels, total, op.has("weight"), tuple(op.arg("output_mask", (True,) * 3)))


@rule("aten::_fused_rms_norm", "aten::rms_norm", formula="R (3n + 2 + n (weight))")
def rms_norm(op: OpCall) -> Cost:
    """Per row: squares n, mean n, eps and rsqrt 2, scale n (Zhang and Sennrich, 2019)."""
    total, n = op.tensor("input").numel, math.prod(op.arg("normalized_shape", ()))
    rows = total // max(1, n)
    op.let(R=rows, n=n)
    return Cost(elementwise_flops=rows * (3 * n + 2) + total * op.has("weight"), transcendentals=2 * rows)


@rule("aten::_fused_rms_norm_backward", formula="input R (6n + n (weight)); weight (2R - 1) n, each if wanted")
def rms_norm_backward(op: OpCall) -> Cost:
    """Gradients of root-mean-square normalization for input and weight, as wanted."""
    total, n = op.tensor("input").numel, math.prod(op.arg("normalized_shape", ()))
    rows = total // max(1, n)
    of_input, of_weight = op.arg("output_mask", (True, True))
    op.let(R=rows, n=n)
    flops = rows * (7 if op.has("weight") else 6) * n if of_input else 0
    return Cost(elementwise_flops=flops + (2 * total - n if of_weight else 0), transcendentals=rows if of_input else 0)


def _channels(op: OpCall) -> tuple[int, int]:
    """Channels and elements per channel."""
    shape = op.shape("input")
    channels = shape[1] if len(shape) > 1 else 1
    total = math.prod(shape)
    op.let(C=channels, m=total // max(1, channels))
    return channels, total


def batch_statistics(channels: int, total: int, running: bool) -> int:
    """Mean m and variance 3m per channel, eps and rsqrt 2; running averages 7 per channel."""
    return 4 * total + (2 + (7 if running else 0)) * channels


def _batch_norm(op: OpCall, training: bool) -> Cost:
    channels, total = _channels(op)
    if not training:
        return Cost(elementwise_flops=2 * total + 5 * channels, transcendentals=channels)
    flops = batch_statistics(channels, total, op.has("running_mean"))
    flops += total + total * op.has("weight") + total * op.has("bias")
    return Cost(elementwise_flops=flops, transcendentals=3 * channels)


def _with_running(op: OpCall) -> Bytes:
    """Running statistics are read and, in training, written, whatever the schema says."""
    read, _ = interface(op)
    running = [*op.tensors("running_mean"), *op.tensors("running_var")] if op.arg("training", True) else []
    return Bytes(read, size([*op.outputs, *running]))


TRAINING = "per channel 5m + 2 + m (weight) + m (bias) + 7 (running statistics)"


@rule(
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
    formula=TRAINING + "; in evaluation 2m + 5",
    bytes=_with_running,
)
def batch_norm(op: OpCall) -> Cost:
    """Normalization over batch and space (Ioffe and Szegedy, 2015)."""
    return _batch_norm(op, bool(op.arg("training", True)))


@rule(
    "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional",
    "aten::_native_batch_norm_legit_functional",
    formula=TRAINING,
)
def batch_norm_update(op: OpCall) -> Cost:
    """Batch normalization that also updates running statistics."""
    return _batch_norm(op, bool(op.arg("training", True)))


@rule("aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_no_update", formula="per channel 2m + 5")
def batch_norm_fixed(op: OpCall) -> Cost:
    """Batch normalization by stored statistics: a folded scale and shift."""
    return _batch_norm(op, False)


@rule(
    "aten::native_batch_norm_backward",
    "aten::batch_norm_backward",
    "aten::cudnn_batch_norm_backward",
    "aten::miopen_batch_norm_backward",
    formula="per channel 9m + 1; in evaluation m (input), 4m - 1 (weight), m - 1 (bias), each if wanted",
    bytes=reads("grad_out", "grad_output", "input", "weight", "save_mean", "save_invstd", "save_var", "reserve"),
)
def batch_norm_backward(op: OpCall) -> Cost:
    """Gradients of batch normalization; in training the weight's and bias's are sums the input's needs."""
    channels, total = _channels(op)
    of_input, of_weight, of_bias = op.arg("output_mask", (True, True, True))
    if op.arg("train", op.arg("update", True)) and of_input:
        return Cost(elementwise_flops=9 * total + channels, transcendentals=2 * channels)
    flops = (total if of_input else 0) + (4 * total - channels if of_weight else 0)
    return Cost(elementwise_flops=flops + (total - channels if of_bias else 0))


@rule("aten::batch_norm_stats", "aten::batch_norm_update_stats", formula="per channel 4m + 2 (+ 7 running)")
def batch_norm_stats(op: OpCall) -> Cost:
    """Mean and variance per channel, of one of several devices."""
    channels, total = _channels(op)
    return Cost(
        elementwise_flops=batch_statistics(channels, total, op.has("running_mean")), transcendentals=3 * channels
    )


@rule("aten::batch_norm_elemt", formula="per channel 2m + m (weight) + m (bias)")
def batch_norm_apply(op: OpCall) -> Cost:
    """Centre, scale, weight and bias."""
    _, total = _channels(op)
    return Cost(elementwise_flops=total * (2 + op.has("weight") + op.has("bias")))


@rule(
    "aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts", formula="per channel 10 W + 9",
    bytes=reads("mean", "invstd", "running_mean", "running_var", "counts"),
)  # fmt: skip
def batch_norm_gather(op: OpCall) -> Cost:
    """Statistics of W devices combined, with the running averages."""
    workers, channels = op.shape("mean")[0], op.shape("mean")[-1]
    return Cost(elementwise_flops=channels * (10 * workers + 9), transcendentals=channels * (workers + 1))


@rule("aten::batch_norm_backward_reduce", formula="per channel 4m - 1 + m - 1")
def batch_norm_backward_reduce(op: OpCall) -> Cost:
    """Sums over one device that the gradients need."""
    channels, total = _channels(op)
    return Cost(elementwise_flops=5 * total - 2 * channels)


@rule("aten::batch_norm_backward_elemt", formula="per channel 4m + 5")
def batch_norm_backward_apply(op: OpCall) -> Cost:
    """Input gradient from the sums over all devices."""
    channels, total = _channels(op)
    return Cost(elementwise_flops=4 * total + 5 * channels)


@rule("aten::_weight_norm_interface", formula="2n (norm) + n (scale) + 1 per row")
def weight_norm(op: OpCall) -> Cost:
    """``g v / |v|`` (Salimans and Kingma, 2016)."""
    total, rows = op.tensor("v").numel, op.tensor("g").numel
    return Cost(elementwise_flops=3 * total + rows, transcendentals=2 * rows)


@rule("aten::_weight_norm_interface_backward", formula="2n - 1 (dot) + 3n (combine) + 5 per row")
def weight_norm_backward(op: OpCall) -> Cost:
    """Gradients of direction and length."""
    total, rows = op.tensor("saved_v").numel, op.tensor("saved_g").numel
    return Cost(elementwise_flops=5 * total + 4 * rows, transcendentals=rows)
