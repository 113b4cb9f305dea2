"""Products of quantized operands, and quantization itself. Counting convention: docs/cost.md, matrix products.

A product counts its MACs whatever the type; dequantization is 1 per output, scales per group do not count. Where the
weight is packed into an object without a shape, a linear layer follows from its input and output, a convolution
does not: it stays unknown.
"""

from __future__ import annotations

import math

from tensortide.cost.kinds import Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.convolution import convolve
from tensortide.graph.model import Tensor


def _first(op: OpCall) -> Tensor:
    return op.inputs[0]


def _dequantized(op: OpCall, macs: int, active: int | None = None, extra: int = 0) -> Cost:
    count = op.out.numel
    flops = count * (1 + extra)
    return Cost(macs=macs, active_macs=macs if active is None else active, elementwise_flops=flops)


@rule("aten::_int_mm", formula="m n k MACs of integers")
def integer_mm(op: OpCall) -> Cost:
    """Product of int8 matrices into int32."""
    (m, k), n = op.shape("self"), op.shape("mat2")[1]
    op.let(m=m, n=n, k=k)
    return Cost(macs=m * n * k)


@rule("aten::_scaled_mm", "aten::_scaled_mm_v2", formula="m n k MACs + 1 per output (+ 1 with bias)")
def scaled_mm(op: OpCall) -> Cost:
    """Product of float8 matrices with scales."""
    (m, k), n = op.shape("self"), op.shape("mat2")[1]
    k *= 2 if op.tensor("self").dtype.endswith("_x2") else 1
    op.let(m=m, n=n, k=k)
    return _dequantized(op, m * n * k, extra=int(op.has("bias")))


@rule(
    "aten::_weight_int8pack_mm", "aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros", "aten::_dyn_quant_matmul_4bit", "aten::_mixed_dtypes_linear",
    formula="m n k MACs + 1 per output",
)  # fmt: skip
def weight_only(op: OpCall) -> Cost:
    """Rows times a packed weight: sizes come from input and output."""
    k = _first(op).shape[-1]
    op.let(rows=op.out.numel, k=k)
    return _dequantized(op, op.out.numel * k, extra=int(op.has("bias")))


LINEAR = (
    "linear linear_relu linear_dynamic linear_relu_dynamic linear_dynamic_fp16 linear_relu_dynamic_fp16 "
    "linear_leaky_relu linear_tanh linear_with_input_q_dq_qweight_dq_output_fp32 "
    "linear_with_input_q_dq_qweight_dq_relu_output_fp32"
)


@rule(
    *(f"{space}::{name}" for space in ("quantized", "_quantized") for name in LINEAR.split()),
    "onednn::qlinear_pointwise", "onednn::linear_dynamic_fp16", "onednn::linear_relu_dynamic_fp16",
    "_quantized::_wrapped_quantized_linear_prepacked", "_quantized::wrapped_fbgemm_linear_fp16_weight",
    "_quantized::wrapped_quantized_linear", "aten::fbgemm_linear_int8_weight", "aten::fbgemm_linear_fp16_weight",
    formula="R n k MACs + 1 per output to dequantize (+ 1 for a fused activation)",
)  # fmt: skip
def quantized_linear(op: OpCall) -> Cost:
    """A linear layer with a packed weight."""
    k = _first(op).shape[-1]
    op.let(outputs=op.out.numel, k=k)
    return _dequantized(op, op.out.numel * k, extra=int("relu" in op.base or "tanh" in op.base))


@rule("sparse::qlinear", "sparse::qlinear_relu", "sparse::qlinear_dynamic", "sparse::qlinear_relu_dynamic")
def sparse_linear(op: OpCall) -> Cost:
    """R n k MACs; how many are active depends on the packed blocks."""
    macs = op.out.numel * _first(op).shape[-1]
    return Cost(macs=macs, active_macs=None, elementwise_flops=op.out.numel)


CONVOLUTIONS = [
    f"{space}::{name}"
    for space in ("quantized", "_quantized")
    for name in [
        "conv1d",
        "conv2d",
        "conv3d",
        "conv1d_relu",
        "conv2d_relu",
        "conv3d_relu",
        "conv2d_add",
        "conv2d_add_relu",
        "conv1d_dynamic",
        "conv2d_dynamic",
        "conv3d_dynamic",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
    ]
]


@rule(*CONVOLUTIONS, formula="as a convolution, where the weight's shape is visible")
def quantized_convolution(op: OpCall) -> Cost | None:
    """A convolution; with a packed weight its cost is unknown."""
    weight = op.arg("weight")
    if not isinstance(weight, Tensor):
        return None
    cost = convolve(op, _first(op), weight, op.out, "transpose" in op.base)
    return cost + Cost(elementwise_flops=op.out.numel * (2 if "relu" in op.base else 1))


@rule(
    "onednn::qconv_pointwise", "onednn::qconv1d_pointwise", "onednn::qconv2d_pointwise", "onednn::qconv3d_pointwise",
    formula="N O Cout (Cin/g) K MACs + 1 per output",
)  # fmt: skip
def onednn_convolution(op: OpCall) -> Cost:
    """A quantized convolution with its weight visible."""
    weight = op.tensor("qw" if "qw" in op.arguments else "weight")
    sites = op.out.numel // max(1, op.out.shape[1])
    return _dequantized(op, sites * weight.numel, extra=int(op.has("bias")))


@rule("mkldnn::_linear_pointwise", formula="R n k MACs + bias + the fused activation 1 per output")
def fused_linear(op: OpCall) -> Cost:
    """A linear layer with a fused activation."""
    x = _first(op)
    fused = int(op.arg("attr", "none") != "none") + int(op.has("B") or op.has("bias"))
    return Cost(macs=op.out.numel * x.shape[-1], elementwise_flops=op.out.numel * fused)


@rule("mkldnn::_convolution_pointwise", "mkldnn::_convolution_transpose_pointwise", formula="as a convolution")
def fused_convolution(op: OpCall) -> Cost:
    """A convolution with a fused activation."""
    weight = op.tensor("W" if "W" in op.arguments else "weight")
    transposed = "transpose" in op.base
    cost = convolve(op, _first(op), weight, op.out, transposed)
    fused = int(op.arg("attr", "none") != "none") + int(op.has("B"))
    return cost + Cost(elementwise_flops=op.out.numel * fused)


@rule(
    "aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::quantize_per_tensor_dynamic",
    "aten::fake_quantize_per_tensor_affine_cachemask", "aten::fake_quantize_per_channel_affine_cachemask",
    "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "aten::_fake_quantize_learnable_per_tensor_affine", "aten::_fake_quantize_learnable_per_channel_affine",
    "aten::_fused_moving_avg_obs_fq_helper", "aten::_fused_moving_avg_obs_fq_helper_functional",
    formula="5 per element (divide, round, shift, two bounds), + 2 to compare and 2 to dequantize where it does",
)  # fmt: skip
def quantize(op: OpCall) -> Cost:
    """Divide, round, shift and clamp; a fake quantization also returns to floating point."""
    flops = 5 + (2 if "fake" in op.base or "fq" in op.base else 0)
    flops += 2 if "dynamic" in op.base or "obs" in op.base else 0
    return elements(op, op.tensor("self").numel, Weights(flops, 1, 3))


@rule("aten::dequantize", formula="2 per element")
def dequantize(op: OpCall) -> Cost:
    """Shift and scale."""
    return Cost(elementwise_flops=2 * sum(t.numel for t in op.outputs))


@rule(
    "aten::_fake_quantize_learnable_per_tensor_affine_backward",
    "aten::_fake_quantize_learnable_per_channel_affine_backward",
    formula="10 per element",
)
def fake_backward(op: OpCall) -> Cost:
    """Gradients of values, scale and zero point."""
    return Cost(elementwise_flops=10 * op.tensor("self").numel)


@rule("aten::_make_per_tensor_quantized_tensor", "aten::_make_per_channel_quantized_tensor", formula="a copy")
def assemble(op: OpCall) -> Cost:
    """Integers given a scale."""
    del op
    return Cost()


@rule("aten::quantized_batch_norm", formula="per element 2 + 5, per channel 5")
def quantized_norm(op: OpCall) -> Cost:
    """Folded scale and shift, then quantized."""
    return Cost(elementwise_flops=7 * op.out.numel + 5 * math.prod(op.out.shape[1:2]))


@rule("quantized::add", "quantized::mul", "quantized::add_relu", "quantized::mul_relu", "onednn::qadd", "onednn::qmul")
def quantized_arithmetic(op: OpCall) -> Cost:
    """Two dequantizations of 2, the operation, a quantization of 5: 10 per element."""
    return Cost(elementwise_flops=10 * op.out.numel)
