"""Attention modules as one op: the fast paths of multi-head attention and of the encoder layer.

Counting convention: docs/cost.md, attention (Vaswani et al., 2017).
"""

from __future__ import annotations

from tensortide.cost.forms import aten
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.normalization import layer
from tensortide.cost.rules.products import activation


def multi_head(b: int, sq: int, sk: int, d: int, heads: int, masked: bool, averaged: bool = False) -> Cost:
    """Attention with its projections: biases, scale of the queries, softmax, mask, average of the weights.

    The projections are those of queries and output, of keys and values; then there are two products.
    """
    rows, projected = b * heads * sq, b * (2 * sq * d + 2 * sk * d)
    macs = projected * d + b * 2 * sq * sk * d
    return Cost(
        macs=macs,
        active_macs=None if masked else macs,
        elementwise_flops=projected + b * sq * d + rows * (5 * sk - 2) + rows * sk * (masked + averaged),
        transcendentals=2 * rows * sk + b * sq * sk * averaged,
        comparisons=rows * (sk - 1),
    )


@aten(
    "_native_multi_head_attention _triton_multi_head_attention",
    "B (2 Sq D^2 + 2 Sk D^2 + 2 Sq Sk D) MACs + biases 2 (Sq + Sk) D, scale Sq D, softmax 5s - 2 per row",
)
def native_multi_head(op: OpCall) -> Cost:
    """Multi-head attention in evaluation; self-attention costs 4 S D^2 + 2 S^2 D."""
    (b, sq, d), sk, heads = op.shape("query"), op.shape("key")[1], int(op.arg("num_head", 1))
    returned = "triton" not in op.base and bool(op.arg("need_weights", True))
    op.let(B=b, Sq=sq, Sk=sk, D=d, heads=heads)
    averaged = returned and bool(op.arg("average_attn_weights", True))
    return multi_head(b, sq, sk, d, heads, op.has("mask"), averaged)


@aten(
    "_transformer_encoder_layer_fwd",
    "B (4 S D^2 + 2 S^2 D + 2 S D F) MACs + attention, 2 layer norms, activation S F, residuals 2 S D, biases",
)
def encoder_layer(op: OpCall) -> Cost:
    """A transformer encoder layer in evaluation."""
    b, s, d = op.shape("src")
    f, heads = op.shape("ffn_weight_1")[0], int(op.arg("num_heads", 1))
    op.let(B=b, S=s, D=d, F=f, heads=heads)
    tokens = b * s
    rest = Cost(macs=2 * tokens * d * f, elementwise_flops=tokens * (2 * d + f + d))
    rest += activation(tokens * f, op.arg("use_gelu", False))
    attention = multi_head(b, s, s, d, heads, op.has("mask"))
    return attention + rest + layer(tokens, d, tokens * d, tokens * d) * 2


@aten("_transform_bias_rescale_qkv", "3 S D adds + S D scale")
def bias_and_scale(op: OpCall) -> Cost:
    """Bias of the joint projection; queries scaled."""
    count = op.tensor("qkv").numel
    return Cost(elementwise_flops=count + count // 3)


@aten("_triton_scaled_dot_attention", "B H Sq Sk (Dk + Dv) MACs + softmax 5s - 2, scale s per row")
def triton_attention(op: OpCall) -> Cost:
    """Attention on operands (B, H, S, D)."""
    (b, h, sq, dk), sk, dv = op.shape("q"), op.shape("k")[2], op.shape("v")[3]
    rows = b * h * sq
    op.let(B=b, H=h, Sq=sq, Sk=sk, Dk=dk, Dv=dv)
    return Cost(
        macs=rows * sk * (dk + dv),
        elementwise_flops=rows * (6 * sk - 2),
        transcendentals=2 * rows * sk,
        comparisons=rows * (sk - 1),
    )
