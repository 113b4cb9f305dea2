"""Convolutions and their transposes, of any rank. Counting convention: docs/cost.md, convolution.

Only sizes enter: stride, padding and dilation act through the output size, and taps on padding count.
"""

from __future__ import annotations

import math

from tensortide.cost.access import Bytes, interface, size, written
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.products import product
from tensortide.graph.model import Tensor

FORMULA = "N O Cout (Cin/g) K MACs (+ N O Cout add of the bias); transposed: N I Cin (Cout/g) K"


def taps(weight: Tensor, sites: int) -> int:
    """Every site (element of the grid that the kernel visits, with its batch) meets the whole weight once."""
    return sites * weight.numel


def _sites(tensor: Tensor, weight: Tensor) -> int:
    """Batch times spatial size; the weight's rank says how many dimensions are spatial."""
    spatial = len(weight.shape) - 2
    batch = math.prod(tensor.shape[: -spatial - 1])
    return batch * math.prod(tensor.shape[len(tensor.shape) - spatial :])


def convolve(op: OpCall, x: Tensor, weight: Tensor, out: Tensor, transposed: bool) -> Cost:
    """Forward: a convolution visits its output, a transposed one its input."""
    sites = _sites(x if transposed else out, weight)
    op.let(sites=sites, weight=weight.numel)
    return product(op, taps(weight, sites), out.numel if op.has("bias") else 0)


def _x(op: OpCall) -> Tensor:
    return op.tensor("input" if "input" in op.arguments else "self")


@rule("aten::convolution", "aten::_convolution", "aten::convolution_overrideable", formula=FORMULA)
def convolution(op: OpCall) -> Cost:
    """Convolution, or transposed convolution."""
    return convolve(op, _x(op), op.tensor("weight"), op.out, bool(op.arg("transposed", False)))


@rule(
    "aten::cudnn_convolution",
    "aten::miopen_convolution",
    "aten::miopen_depthwise_convolution",
    "aten::mkldnn_convolution",
    "aten::_mps_convolution",
    "aten::_nnpack_spatial_convolution",
    "aten::_conv_depthwise2d",
    "aten::conv_depthwise3d",
    "aten::slow_conv_dilated2d",
    "aten::slow_conv_dilated3d",
    "aten::slow_conv3d_forward",
    "aten::_slow_conv2d_forward",
    formula=FORMULA,
)
def backend_convolution(op: OpCall) -> Cost:
    """Convolution by one library's kernel."""
    return convolve(op, _x(op), op.tensor("weight"), op.out, False)


@rule(
    "aten::cudnn_convolution_relu",
    "aten::cudnn_convolution_add_relu",
    "aten::miopen_convolution_relu",
    "aten::miopen_convolution_add_relu",
    formula=FORMULA + " + fused add 1 and relu 1 per output",
)
def fused_convolution(op: OpCall) -> Cost:
    """Convolution with bias, residual add and ReLU in one kernel."""
    cost = convolve(op, _x(op), op.tensor("weight"), op.out, False)
    count = op.out.numel
    add = (2 if op.arg("alpha", 1) != 1 else 1) * count if op.has("z") else 0
    return cost + Cost(elementwise_flops=count + add, comparisons=count)


@rule(
    "aten::cudnn_convolution_transpose",
    "aten::miopen_convolution_transpose",
    "aten::_mps_convolution_transpose",
    "aten::slow_conv_transpose2d",
    "aten::slow_conv_transpose3d",
    formula=FORMULA,
)
def backend_transposed(op: OpCall) -> Cost:
    """Transposed convolution by one library's kernel."""
    return convolve(op, _x(op), op.tensor("weight"), op.out, True)


def _wanted_reads(op: OpCall) -> Bytes:
    """The input is read only for the weight's gradient, the weight only for the input's."""
    of_input, of_weight, _ = op.arg("output_mask", (True, True, True))
    read = [op.tensor("grad_output")]
    read += [_x(op)] if of_weight else []
    read += [op.tensor("weight")] if of_input else []
    return Bytes(size(read), written(op))


@rule(
    "aten::convolution_backward",
    "aten::convolution_backward_overrideable",
    "aten::mps_convolution_backward",
    "aten::mps_convolution_transpose_backward",
    "aten::_slow_conv2d_backward",
    formula="as forward for each wanted gradient of input and weight, + (N O - 1) Cout adds for the bias",
    bytes=_wanted_reads,
)
def convolution_backward(op: OpCall) -> Cost:
    """Gradients of a convolution for input, weight and bias, as wanted."""
    x, weight, gradient = _x(op), op.tensor("weight"), op.tensor("grad_output")
    mask = (*op.arg("output_mask", (True, True, True)), False)
    transposed = bool(op.arg("transposed", "transpose" in op.name))
    sites = _sites(x if transposed else gradient, weight)
    channels = gradient.shape[len(gradient.shape) - len(weight.shape) + 1]
    wanted = int(mask[0]) + int(mask[1])
    op.let(sites=sites, weight=weight.numel, wanted=wanted)
    return product(op, wanted * taps(weight, sites), gradient.numel - channels if mask[2] else 0)


@rule("aten::conv_tbc", formula="T B Cout Cin K MACs + T B Cout add")
def conv_tbc(op: OpCall) -> Cost:
    """One-dimensional convolution with time first; the weight is (K, Cin, Cout)."""
    weight, out = op.tensor("weight"), op.out
    return product(op, out.shape[0] * out.shape[1] * weight.numel, out.numel)


@rule("aten::im2col", formula="a copy")
def im2col(op: OpCall) -> Cost:
    """Patches of an image laid out as columns."""
    del op
    return Cost()


@rule("aten::col2im", "aten::unfold_backward", formula="adds = input elements - output elements, at least 0")
def col2im(op: OpCall) -> Cost:
    """Columns, or other overlapping windows, summed back into what they were cut from."""
    return product(op, 0, max(0, op.inputs[0].numel - op.out.numel))


@rule(
    "torchvision::deform_conv2d",
    formula="N O Cout (Cin/g) K MACs + 7 per sampled tap (+ 1 with a mask) + N O Cout add",
    bytes=interface,
)
def deformable(op: OpCall) -> Cost:
    """Convolution at sampled positions: each tap is a bilinear read of 7 FLOPs."""
    x, weight, out = op.tensor("input"), op.tensor("weight"), op.out
    sites = _sites(out, weight)
    sampled = sites * x.shape[1] * math.prod(weight.shape[2:])
    per_tap = 8 if op.arg("use_mask", False) else 7
    return product(op, taps(weight, sites), per_tap * sampled + out.numel)
