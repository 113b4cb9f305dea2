"""Attention modules as one op: the fast paths of multi-head attention and of the encoder layer.

Counting convention: docs/cost.md, attention (Vaswani et al., 2017).
"""

from __future__ import annotations

import math

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.normalization import layer


def projections_and_products(b: int, sq: int, sk: int, d: int) -> int:
    """MACs: query and output projections of the queries, key and value projections of the keys, two products."""
    return b * (2 * sq * d * d + 2 * sk * d * d + 2 * sq * sk * d)


def multi_head(b: int, sq: int, sk: int, d: int, heads: int, masked: bool, averaged: bool) -> Cost:
    """Attention with its projections: biases, scale of the queries, softmax, mask, average of the weights."""
    rows = b * heads * sq
    biases = b * (2 * sq * d + 2 * sk * d)
    softmax = rows * (5 * sk - 2)
    flops = biases + b * sq * d + softmax + (rows * sk if masked else 0) + (rows * sk if averaged else 0)
    return Cost(
        macs=projections_and_products(b, sq, sk, d),
        active_macs=None if masked else projections_and_products(b, sq, sk, d),
        elementwise_flops=flops,
        transcendentals=2 * rows * sk + (b * sq * sk if averaged else 0),
        comparisons=rows * (sk - 1),
    )


@rule(
    "aten::_native_multi_head_attention",
    "aten::_triton_multi_head_attention",
    formula="B (2 Sq D^2 + 2 Sk D^2 + 2 Sq Sk D) MACs + biases 2 (Sq + Sk) D, scale Sq D, softmax 5s - 2 per row",
)
def native_multi_head(op: OpCall) -> Cost:
    """Multi-head attention in evaluation; self-attention costs 4 S D^2 + 2 S^2 D."""
    (b, sq, d), sk = op.shape("query"), op.shape("key")[1]
    heads = int(op.arg("num_head", 1))
    triton = "triton" in op.base
    averaged = not triton and bool(op.arg("need_weights", True)) and bool(op.arg("average_attn_weights", True))
    op.let(B=b, Sq=sq, Sk=sk, D=d, heads=heads)
    return multi_head(b, sq, sk, d, heads, op.has("mask"), averaged)


@rule(
    "aten::_transformer_encoder_layer_fwd",
    formula="B (4 S D^2 + 2 S^2 D + 2 S D F) MACs + attention, 2 layer norms, activation S F, residuals 2 S D, biases",
)
def encoder_layer(op: OpCall) -> Cost:
    """A transformer encoder layer in evaluation."""
    b, s, d = op.shape("src")
    f, heads = op.shape("ffn_weight_1")[0], int(op.arg("num_heads", 1))
    op.let(B=b, S=s, D=d, F=f, heads=heads)
    attention = multi_head(b, s, s, d, heads, op.has("mask"), False)
    tokens = b * s
    activation, special = (5, 1) if op.arg("use_gelu", False) else (1, 0)
    rest = Cost(
        macs=2 * tokens * d * f,
        elementwise_flops=tokens * (activation * f + 2 * d + f + d),
        transcendentals=special * tokens * f,
        comparisons=(1 - special) * tokens * f,
    )
    return attention + rest + layer(tokens, d, tokens * d, tokens * d) * 2


@rule("aten::_transform_bias_rescale_qkv", formula="3 S D adds + S D scale")
def bias_and_scale(op: OpCall) -> Cost:
    """Bias of the joint projection; queries scaled."""
    count = op.tensor("qkv").numel
    return Cost(elementwise_flops=count + count // 3)


@rule("aten::_triton_scaled_dot_attention", formula="B H Sq Sk (Dk + Dv) MACs + softmax 5s - 2, scale s per row")
def triton_attention(op: OpCall) -> Cost:
    """Attention on operands (B, H, S, D)."""
    b, h, sq, dk = op.shape("q")
    sk, dv = op.shape("k")[2], op.shape("v")[3]
    rows = math.prod((b, h, sq))
    op.let(B=b, H=h, Sq=sq, Sk=sk, Dk=dk, Dv=dv)
    flops = rows * (6 * sk - 2)
    return Cost(
        macs=rows * sk * (dk + dv), elementwise_flops=flops, transcendentals=2 * rows * sk, comparisons=rows * (sk - 1)
    )
