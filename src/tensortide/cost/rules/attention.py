"""Fused scaled-dot-product attention, forward and backward, whichever kernel runs.

The same program costs the same MACs on every route. Counting convention: docs/cost.md, attention.
"""

from __future__ import annotations

from tensortide.cost.access import Bytes, size, written
from tensortide.cost.families.attention import (
    BACKWARD,
    FORWARD,
    Problem,
    backward,
    bottom_right,
    dense,
    forward,
    top_left,
    window,
)
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, rule
from tensortide.cost.rules.normalization import layer
from tensortide.cost.rules.products import activation

aten = Vocabulary("aten", "attention")


def heads_first(op: OpCall) -> Problem:
    """Operands (B, H, S, D); ``is_causal`` is aligned top left, by CUDA's flash kernels bottom right."""
    query, key, value = op.first("query", "q"), op.first("key", "k"), op.first("value", "v")
    (b, hq, sq, dk), (_, hkv, sk, _), dv = query.shape, key.shape, value.shape[3]
    causal = bool(op.arg("is_causal", False))
    masked = op.has("attn_mask") or op.has("attn_bias")
    pairs = b * dense(sq, sk)
    aligned = bottom_right if "flash" in op.base and "for_cpu" not in op.base else top_left
    active = b * aligned(sq, sk) if causal else None if masked else pairs
    dropout = float(op.arg("dropout_p", 0.0)) > 0
    return Problem(b, hq, hkv, sq, sk, dk, dv, pairs, active, masked, dropout)


def heads_last(op: OpCall) -> Problem:
    """Operands (B, S, H, D), or packed (T, H, D) with cumulative lengths that bound what is not known."""
    query, key, value = (op.first(name, name[0]).shape for name in ("query", "key", "value"))
    hq, hkv, dk, dv = query[-2], key[-2], query[-1], value[-1]
    masked = op.has("bias") or op.has("attn_bias") or op.has("alibi_slopes")
    dropout = float(op.arg("dropout_p", 0.0)) > 0
    lengths = [t for name in ("cum_seq_q", "cu_seqlens_q", "cu_seq_q") for t in op.tensors(name) if t.numel]
    if len(query) == 3 or lengths:
        tokens = query[0] if len(query) == 3 else query[0] * query[1]
        longest = _longest(op, ("max_k", "max_seqlen_k"), key[-3])
        batch = lengths[0].shape[0] - 1 if lengths else 1
        reason = "packed sequences: bounded by the longest" if batch > 1 else ""
        active = None if batch > 1 or masked else _masked_pairs(op, tokens, longest)
        return Problem(batch, hq, hkv, tokens, longest, dk, dv, tokens * longest, active, masked, dropout, reason)
    b, sq, sk = query[0], query[1], key[1]
    active = None if masked else b * _masked_pairs(op, sq, sk)
    return Problem(b, hq, hkv, sq, sk, dk, dv, b * dense(sq, sk), active, masked, dropout)


def problem(op: OpCall) -> Problem:
    """The layout of the operands follows from the op, but cuDNN's own has either: there the longest lengths that it is
    given say which dimension the sequence is."""
    if not op.base.startswith("_cudnn"):
        return heads_first(op) if "scaled_dot" in op.base else heads_last(op)
    query, key = op.shape("query"), op.shape("key")
    longest = op.arg("max_q", 0), op.arg("max_k", 0)
    last = len(query) != 4 or ((query[2], key[2]) != longest and (query[1], key[1]) == longest)
    return heads_last(op) if last else heads_first(op)


def _longest(op: OpCall, names: tuple[str, ...], fallback: int) -> int:
    return next((int(op.arg(name)) for name in names if op.has(name) and int(op.arg(name)) > 0), fallback)


def _masked_pairs(op: OpCall, sq: int, sk: int) -> int:
    """Pairs under the mask arguments of the kernels that are called directly."""
    code = int(op.arg("custom_mask_type", 0))
    if op.has("custom_mask_type"):
        shift = sk - sq if code == 2 else 0
        width = op.arg("window_size")
        if width:
            return window(sq, sk, int(width) - 1, 0, shift)
        return (dense, top_left, bottom_right)[code](sq, sk)
    given = op.arg("window_size", (op.arg("window_size_left"), op.arg("window_size_right")))
    left, right = map(_limit, given)
    causal = bool(op.arg("is_causal", op.arg("causal", False)))
    if left is None and right is None:
        return bottom_right(sq, sk) if causal else dense(sq, sk)
    return window(sq, sk, left, 0 if causal else right, sk - sq)


def _limit(value: int | None) -> int | None:
    return None if value is None or value < 0 else int(value)


@aten(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math "
    "_scaled_dot_product_attention_math_for_mps scaled_dot_product_attention",
    FORWARD,
    meaning="Attention on operands (B, H, S, D).",
)
@aten(
    "_flash_attention_forward _flash_attention_forward_no_dropout_inplace _efficient_attention_forward",
    FORWARD,
    meaning="Attention on operands (B, S, H, D) or packed (T, H, D).",
)
@aten(
    "_triton_scaled_dot_attention",
    "B H Sq Sk (Dk + Dv) MACs + softmax 5s - 2, scale s, dropout 2s per row",
    meaning="Attention on operands (B, H, S, D).",
)
@aten("_cudnn_attention_forward", FORWARD)
@rule(
    "flash_attn::_flash_attn_forward",
    "flash_attn::_flash_attn_varlen_forward",
    "torch_attn::_varlen_attn",
    "torch_attn::_varlen_attn_out",
    formula=FORWARD,
    meaning="Attention by flash-attn or PyTorch, on operands (B, S, H, D) or packed (T, H, D).",
)
def fused_forward(op: OpCall) -> Cost:
    """Attention by cuDNN."""
    return forward(op, problem(op))


def _read_backward(op: OpCall) -> Bytes:
    """The kernels read the gradient, the three operands, the result, the log-sum-exp and the mask."""
    names = (
        *("grad_out", "grad_out_", "query", "key", "value", "out", "logsumexp", "attn_mask", "attn_bias", "bias"),
        *("dout", "q", "k", "v", "softmax_lse", "lse"),  # of flash-attn
    )
    return Bytes(size(t for name in names for t in op.tensors(name)), written(op))


@aten(
    "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
    "_scaled_dot_product_fused_attention_overrideable_backward",
    BACKWARD,
    meaning="Gradients of attention on operands (B, H, S, D).",
    bytes=_read_backward,
)
@aten(
    "_flash_attention_backward _efficient_attention_backward",
    BACKWARD,
    meaning="Gradients of attention on operands (B, S, H, D) or packed (T, H, D).",
    bytes=_read_backward,
)
@aten("_cudnn_attention_backward", BACKWARD, bytes=_read_backward)
@rule(
    "flash_attn::_flash_attn_backward",
    "flash_attn::_flash_attn_varlen_backward",
    "torch_attn::_varlen_attn_backward",
    formula=BACKWARD,
    meaning="Gradients of attention by flash-attn or PyTorch, on operands (B, S, H, D) or packed (T, H, D).",
    bytes=_read_backward,
)
def fused_backward(op: OpCall) -> Cost:
    """Gradients of attention by cuDNN."""
    wanted = (True, True, True, bool(op.arg("bias_requires_grad", False)))
    return backward(op, problem(op), tuple(op.arg("grad_input_mask", wanted)))


# -- attention modules as one op: the fast paths of multi-head attention and of the encoder layer ----------


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
