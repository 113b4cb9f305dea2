"""Convolutions and their transposes, of any rank. Counting convention: docs/cost.md, convolution.

Only sizes enter: stride, padding and dilation act through the output size, and taps on padding count.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, size, written
from tensortide.cost.families import folded, move
from tensortide.cost.families.products import product
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, rule
from tensortide.graph.model import Tensor

aten = Vocabulary("aten", "convolution")

FORMULA = "N O Cout (Cin/g) K MACs (+ N O Cout add of the bias); transposed: N I Cin (Cout/g) K"


def _sites(tensor: Tensor, weight: Tensor) -> int:
    """Batch times spatial size, the elements of the grid that the kernel visits: each meets the whole weight once.

    The weight's rank says how many dimensions are spatial.
    """
    shape, spatial = tensor.shape, len(weight.shape) - 2
    return math.prod(shape[: -spatial - 1]) * math.prod(shape[len(shape) - spatial :])


def convolve(op: OpCall, weight: Tensor, x: Tensor | None = None) -> Cost:
    """Forward: a convolution visits its output, a transposed one its input."""
    transposed = op.arg("transposed", "transpose" in op.base)
    sites = _sites((x or op.first("input", "self")) if transposed else op.out, weight)
    op.let(sites=sites, weight=weight.numel)
    return product(op, sites * weight.numel, op.out.numel if op.has("bias") else 0)


@aten("convolution _convolution convolution_overrideable", FORMULA, meaning="Convolution, or transposed convolution.")
@aten(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    FORMULA,
    meaning="Convolution, or transposed convolution, as a program calls it.",
)
@aten(
    "cudnn_convolution miopen_convolution miopen_depthwise_convolution mkldnn_convolution _mps_convolution "
    "_nnpack_spatial_convolution _conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d "
    "slow_conv3d_forward _slow_conv2d_forward",
    FORMULA,
    meaning="Convolution by one library's kernel.",
)
@aten(
    "cudnn_convolution_transpose miopen_convolution_transpose _mps_convolution_transpose slow_conv_transpose2d "
    "slow_conv_transpose3d",
    FORMULA,
)
def convolution(op: OpCall) -> Cost:
    """Transposed convolution by one library's kernel."""
    return convolve(op, op.tensor("weight"))


@aten(
    "cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution_relu miopen_convolution_add_relu",
    FORMULA + " + fused add 1 and relu 1 per output",
)
def fused_convolution(op: OpCall) -> Cost:
    """Convolution with bias, residual add and ReLU in one kernel."""
    count, add = op.out.numel, (1 + (op.arg("alpha", 1) != 1)) * op.has("z")
    return convolve(op, op.tensor("weight")) + Cost(elementwise_flops=count * (1 + add), comparisons=count)


def _wanted_reads(op: OpCall) -> Bytes:
    """The input is read only for the weight's gradient, the weight only for the input's."""
    of_input, of_weight, _ = op.arg("output_mask", (True, True, True))
    read = [op.tensor("grad_output")]
    read += [op.first("input", "self")] if of_weight else []
    read += [op.tensor("weight")] if of_input else []
    return Bytes(size(read), written(op))


@aten(
    "convolution_backward convolution_backward_overrideable mps_convolution_backward "
    "mps_convolution_transpose_backward _slow_conv2d_backward",
    "as forward for each wanted gradient of input and weight, + (N O - 1) Cout adds for the bias",
    bytes=_wanted_reads,
)
def convolution_backward(op: OpCall) -> Cost:
    """Gradients of a convolution for input, weight and bias, as wanted."""
    x, weight, gradient = op.first("input", "self"), op.tensor("weight"), op.tensor("grad_output")
    mask = (*op.arg("output_mask", (True, True, True)), False)
    transposed = bool(op.arg("transposed", "transpose" in op.name))
    sites = _sites(x if transposed else gradient, weight)
    channels = gradient.shape[len(gradient.shape) - len(weight.shape) + 1]
    wanted = int(mask[0]) + int(mask[1])
    op.let(sites=sites, weight=weight.numel, wanted=wanted)
    return product(op, wanted * sites * weight.numel, gradient.numel - channels if mask[2] else 0)


@aten("conv_tbc", "T B Cout Cin K MACs + T B Cout add")
def conv_tbc(op: OpCall) -> Cost:
    """One-dimensional convolution with time first; the weight is (K, Cin, Cout)."""
    return product(op, math.prod(op.out.shape[:2]) * op.tensor("weight").numel, op.out.numel)


aten.rows(
    {
        "im2col": move("Patches of an image laid out as columns."),
        "col2im unfold_backward": folded("convolution"),
    }
)


@rule(
    "torchvision::deform_conv2d", formula="N O Cout (Cin/g) K MACs + 7 per sampled tap (+ 1 with a mask) + N O Cout add"
)
def deformable(op: OpCall) -> Cost:
    """Convolution at sampled positions: each tap is a bilinear read of 7 FLOPs."""
    weight = op.tensor("weight")
    sites = _sites(op.out, weight)
    sampled = sites * op.shape("input")[1] * math.prod(weight.shape[2:])
    return product(op, sites * weight.numel, (7 + bool(op.arg("use_mask", False))) * sampled + op.out.numel)
