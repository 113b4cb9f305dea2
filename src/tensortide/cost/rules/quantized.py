"""Products of quantized operands, and quantization itself. Counting convention: docs/cost.md, matrix products.

A product counts its MACs whatever the type; dequantization is 1 per output, scales per group do not count. Where the
weight is packed into an object without a shape, a linear layer follows from its input and output, a convolution
does not: it stays unknown.
"""

from __future__ import annotations

import math

import msgspec

from tensortide.cost.families import elementwise, move
from tensortide.cost.kinds import Kind, Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, rule
from tensortide.cost.rules.convolution import convolve
from tensortide.dtypes import DTYPES
from tensortide.graph.model import Tensor

aten = Vocabulary("aten", "contraction")

LINEAR = (
    "linear linear_relu linear_dynamic linear_relu_dynamic linear_dynamic_fp16 linear_relu_dynamic_fp16 "
    "linear_leaky_relu linear_tanh linear_with_input_q_dq_qweight_dq_output_fp32 "
    "linear_with_input_q_dq_qweight_dq_relu_output_fp32"
)
CONVOLUTIONS = (
    "conv1d conv2d conv3d conv1d_relu conv2d_relu conv3d_relu conv2d_add conv2d_add_relu conv1d_dynamic "
    "conv2d_dynamic conv3d_dynamic conv_transpose1d conv_transpose2d conv_transpose3d"
)


def _in(spaces: str, names: str) -> list[str]:
    return [f"{space}::{name}" for space in spaces.split() for name in names.split()]


@aten(
    "_scaled_mm _scaled_mm_v2",
    "m n k MACs + 1 per output (+ 1 with bias)",
)
def scaled_mm(op: OpCall) -> Cost:
    """Product of float8 matrices, or of two numbers of 4 bits each, with scales."""
    (m, k), n = op.shape("self"), op.shape("mat2")[1]
    k *= DTYPES[op.tensor("self").dtype].holds
    op.let(m=m, n=n, k=k)
    return Cost(macs=m * n * k, elementwise_flops=op.out.numel * (1 + op.has("bias")))


def _linear(op: OpCall, fused: int) -> Cost:
    """Rows times a weight whose sizes come from input and output, and ``fused`` operations per output."""
    count, k = op.out.numel, op.inputs[0].shape[-1]
    op.let(outputs=count, rows=count, k=k)
    return Cost(macs=count * k, elementwise_flops=count * fused)


@aten("_weight_int8pack_mm _dyn_quant_matmul_4bit _mixed_dtypes_linear", "m n k MACs + 1 per output")
@aten(
    "_weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros",
    "m n k MACs + 1 per output",
    packs="mat2 4",
)
def weight_only(op: OpCall) -> Cost:
    """Rows times a packed weight: sizes come from input and output."""
    return _linear(op, 1 + op.has("bias"))


@rule(
    *_in("quantized _quantized", LINEAR),
    *_in("onednn", "qlinear_pointwise linear_dynamic_fp16 linear_relu_dynamic_fp16"),
    *_in(
        "_quantized", "_wrapped_quantized_linear_prepacked wrapped_fbgemm_linear_fp16_weight wrapped_quantized_linear"
    ),
    *_in("aten", "fbgemm_linear_int8_weight fbgemm_linear_fp16_weight"),
    formula="R n k MACs + 1 per output to dequantize (+ 1 for a fused activation)",
)
def quantized_linear(op: OpCall) -> Cost:
    """A linear layer with a packed weight."""
    return _linear(op, 1 + ("relu" in op.base or "tanh" in op.base))


@rule(*_in("sparse", "qlinear qlinear_relu qlinear_dynamic qlinear_relu_dynamic"))
def sparse_linear(op: OpCall) -> Cost:
    """R n k MACs; how many are active depends on the packed blocks."""
    return msgspec.structs.replace(_linear(op, 1), active_macs=None)


@rule("mkldnn::_linear_pointwise", formula="R n k MACs + bias + the fused activation 1 per output")
def fused_linear(op: OpCall) -> Cost:
    """A linear layer with a fused activation."""
    return _linear(op, (op.arg("attr", "none") != "none") + (op.has("B") or op.has("bias")))


@rule(*_in("quantized _quantized", CONVOLUTIONS), formula="as a convolution, where the weight's shape is visible")
def quantized_convolution(op: OpCall) -> Cost | None:
    """A convolution; with a packed weight its cost is unknown."""
    weight = op.arg("weight")
    if not isinstance(weight, Tensor):
        return None
    return convolve(op, weight, op.inputs[0]) + Cost(elementwise_flops=op.out.numel * (1 + ("relu" in op.base)))


@rule(
    *_in("onednn", "qconv_pointwise qconv1d_pointwise qconv2d_pointwise qconv3d_pointwise"),
    formula="N O Cout (Cin/g) K MACs + 1 per output",
)
def onednn_convolution(op: OpCall) -> Cost:
    """A quantized convolution with its weight visible."""
    sites = op.out.numel // max(1, op.out.shape[1])
    return Cost(macs=sites * op.first("qw", "weight").numel, elementwise_flops=op.out.numel * (1 + op.has("bias")))


@rule(*_in("mkldnn", "_convolution_pointwise _convolution_transpose_pointwise"), formula="as a convolution")
def fused_convolution(op: OpCall) -> Cost:
    """A convolution with a fused activation."""
    fused = (op.arg("attr", "none") != "none") + op.has("B")
    return convolve(op, op.first("W", "weight"), op.inputs[0]) + Cost(elementwise_flops=op.out.numel * fused)


@aten.each(
    "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic fake_quantize_per_tensor_affine_cachemask "
    "fake_quantize_per_channel_affine_cachemask _fake_quantize_per_tensor_affine_cachemask_tensor_qparams "
    "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine "
    "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional",
    "5 per element (divide, round, shift, two bounds), + 2 to compare and 2 to dequantize where it does",
    of="self",
)
def quantize(op: OpCall) -> Weights:
    """Divide, round, shift and clamp; a fake quantization also returns to floating point."""
    fake, observed = "fake" in op.base or "fq" in op.base, "dynamic" in op.base or "obs" in op.base
    return Weights(5 + 2 * fake + 2 * observed, 1, 3)


@aten("dequantize", "2 per element")
def dequantize(op: OpCall) -> Cost:
    """Shift and scale."""
    return Cost(elementwise_flops=2 * sum(t.numel for t in op.outputs))


DECOMPOSED = "per_tensor per_channel per_token per_channel_group"
"""Ways to quantize, each an op of programs that show quantization as ops of its own."""


Vocabulary("quantized_decomposed").rows({
    " ".join(f"quantize_{way}" for way in DECOMPOSED.split()): elementwise((5, 1, 3), kind=Kind.REAL),
    " ".join(f"dequantize_{way}" for way in DECOMPOSED.split()): elementwise(2, kind=Kind.REAL),
})  # fmt: skip


@rule(
    *_in("quantized_decomposed", "choose_qparams choose_qparams_symmetric choose_qparams_per_token"),
    formula="2 comparisons per element, 5 per scale",
)
def choose_scales(op: OpCall) -> Cost:
    """The least and the largest element, and a scale and a zero point of these."""
    count, scales = op.inputs[0].numel, op.out.numel
    return Cost(elementwise_flops=2 * count + 5 * scales, transcendentals=2 * scales, comparisons=2 * count)


aten.rows({
    "_fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward":
        elementwise(10, of="self", kind=Kind.REAL, family="reduction"),  # of values, scale and zero point
    "_make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor": move("Integers given a scale."),
})  # fmt: skip


@aten("quantized_batch_norm", "per element 2 + 5, per channel 5", family="normalization")
def quantized_norm(op: OpCall) -> Cost:
    """Folded scale and shift, then quantized."""
    return Cost(elementwise_flops=7 * op.out.numel + 5 * math.prod(op.out.shape[1:2]))


@rule(*_in("quantized", "add mul add_relu mul_relu"), *_in("onednn", "qadd qmul"))
def quantized_arithmetic(op: OpCall) -> Cost:
    """Two dequantizations of 2, the operation, a quantization of 5: 10 per element."""
    return Cost(elementwise_flops=10 * op.out.numel)


@rule("bitsandbytes::int8_linear_matmul", formula="R n k MACs of integers", meaning="Product of int8 matrices.")
@rule(
    "bitsandbytes::gemv_4bit",
    formula="R n k MACs + 1 per element of the weight to dequantize",
    packs="B 4",
    meaning="A vector times a matrix of 4-bit numbers.",
)
def bitsandbytes_product(op: OpCall) -> Cost:
    """Rows times a matrix by bitsandbytes."""
    cost = _linear(op, 0)
    weight = math.prod(op.arg("shapeB")) if op.has("shapeB") else 0
    return msgspec.structs.replace(cost, elementwise_flops=weight)


@rule("bitsandbytes::dequantize_blockwise", formula="1 per element")
@rule("bitsandbytes::dequantize_4bit", formula="1 per element", packs="A 4")
def bitsandbytes_dequantized(op: OpCall) -> Cost:
    """Each number times the scale of its block."""
    return Cost(elementwise_flops=op.out.numel)
