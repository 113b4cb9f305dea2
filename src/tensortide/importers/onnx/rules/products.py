"""Matrix products, convolutions, recurrent layers and attention of ONNX graphs. Convention: docs/cost.md, products."""

from __future__ import annotations

import math

import msgspec

from tensortide.cost.families import contraction, convolution, einsum
from tensortide.cost.families.attention import Problem, bottom_right, dense, forward, top_left
from tensortide.cost.families.products import product
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.recurrent import GRU, LSTM, RELU, TANH, Layer
from tensortide.graph.model import Tensor
from tensortide.importers.onnx.rules.moves import onnx

onnx.rows({
    "MatMul MatMulInteger": contraction("*k"),
    "QLinearMatMul +MatMulIntegerToFloat +DynamicQuantizeMatMul": contraction("*k", bias="bias", scaled=1),
    "+GemmFastGelu": contraction("*k", scaled=9),
    "Conv ConvInteger +NhwcConv": convolution("OI*", kernel="W w", bias="B"),
    "QLinearConv +QLinearConv": convolution("OI*", kernel="W w", bias="B", scaled=1),
    "Einsum": einsum(),
    "CausalConvWithState": convolution("OI*", kernel="1"),
    "*ConvTranspose": convolution("IO*", kernel="1", of="0", bias="B", transposed=True),
})  # fmt: skip


@onnx("+FusedMatMul +TransposeMatMul", "B m n k MACs (+ E of a factor)", family="contraction")
def fused_matmul(op: OpCall) -> Cost:
    """A product, either operand possibly transposed."""
    a = op.inputs[0].shape
    transposed = op.arg("transA", 0) and len(a) > 1
    k = a[0 if op.arg("transBatchA", 0) else -2] if transposed else a[-1]
    op.let(E=op.out.numel, k=k)
    return product(op, op.out.numel * k, op.out.numel if op.arg("alpha", 1.0) != 1 else 0)


@onnx("+MatMulNBits", "m n K MACs, one scaling per element of the weight", family="contraction", packs="B bits")
def packed(op: OpCall) -> Cost:
    """A product with a weight of a few bits per element."""
    n, k = int(op.arg("N", 1)), int(op.arg("K", 1))
    return product(op, op.out.numel * k, n * k + op.out.numel * op.has("bias"))


@onnx("Gemm +FusedGemm", "m n k MACs + m n add (+ m n per factor alpha, beta)", family="contraction")
@onnx("+QGemm", "m n k MACs, m n scalings (+ m n add)", "A product of quantized matrices.", family="contraction")
def gemm(op: OpCall) -> Cost:
    """A product of matrices, and a term."""
    m, n = op.out.shape
    k = op.inputs[0].shape[0 if op.arg("transA", 0) else 1]
    op.let(m=m, n=n, k=k)
    if op.base.endswith("QGemm"):
        return Cost(macs=m * n * k, elementwise_flops=m * n * (1 + op.has("C")))
    each = (op.arg("alpha", 1.0) != 1) + op.has("C") * (1 + (op.arg("beta", 1.0) != 1))
    return product(op, m * n * k, m * n * each)


@onnx(
    "+FusedConv",
    "as Conv, + 1 per element each of the activation and the sum",
    "A convolution and an activation.",
    family="convolution",
)
@onnx("DeformConv", "as Conv, + 7 per tap and input channel of a group", family="convolution")
def convolution_and_more(op: OpCall) -> Cost:
    """A convolution at displaced places."""
    w = op.tensor("W")
    more = op.out.numel * (op.has("B") + (1 + op.has("Z")) * op.base.endswith("FusedConv"))
    if op.base == "DeformConv":
        more += 7 * (op.out.numel // max(1, w.shape[0])) * op.inputs[0].shape[1] * math.prod(w.shape[2:])
    return product(op, op.out.numel * math.prod(w.shape[1:]), more)


def recurrent_layer(op: OpCall) -> tuple[Layer, int]:
    """Return the layer that an LSTM, GRU or RNN is in one direction, and the number of directions."""
    x, w, r = op.tensor("X"), op.tensor("W"), op.tensor("R")
    kind = op.base.removeprefix("microsoft::").partition("_")[0]
    if "LSTM" in kind:
        cell = LSTM
    elif "GRU" in kind:
        cell = GRU
    else:
        cell = RELU if "Relu" in str(op.arg("activations", ())) else TANH
    steps, batch = (x.shape[1], x.shape[0]) if op.arg("layout", 0) else (x.shape[0], x.shape[1])
    hidden = r.shape[-1] if "Dynamic" not in kind else int(op.arg("hidden_size", r.shape[1]))
    op.let(T=steps, B=batch, X=x.shape[2], H=hidden)
    return Layer(cell, steps * batch, batch, x.shape[2], hidden, 0, op.has("B")), int(w.shape[0])


@onnx("LSTM GRU RNN +DynamicQuantizeLSTM", "per direction T B G (X + H) MACs, G = 4H, 3H, H", family="recurrent")
def recurrent(op: OpCall) -> Cost:
    """A recurrent layer, in one direction or both. Sequences that end before are counted whole."""
    one, directions = recurrent_layer(op)
    cost = one.forward() * directions
    return msgspec.structs.replace(cost, active_macs=None) if op.has("sequence_lens") else cost


def pairs(op: OpCall) -> tuple[int, int, int, int, int]:
    """Return batch times heads, queries, keys, and the sizes of a head of key and of value."""
    q, k, v = op.inputs[:3]
    heads, groups = int(op.arg("q_num_heads", 0)), int(op.arg("kv_num_heads", 0))
    if len(q.shape) == 4:
        rows, queries, keys, size, width = q.shape[0] * q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    else:
        rows, queries, keys = q.shape[0] * heads, q.shape[1], k.shape[1]
        size, width = q.shape[2] // max(1, heads), v.shape[2] // max(1, groups)
    if op.has("past_key"):
        keys += op.tensor("past_key").shape[2]
    return rows, queries, keys, size, width


@onnx("Attention", "B Hq Sq Sk (Dk + Dv) MACs; softmax and scale 5 Sk + ... per row", family="attention")
def attention(op: OpCall) -> Cost:
    """Softmax of scaled products of queries and keys, times values: dense, masks or not."""
    rows, queries, keys, size, width = pairs(op)
    mask = op.has("attn_mask")
    return attended(op, rows, queries, keys, size, width, mask, bool(op.arg("is_causal", 0)))


def attended(
    op: OpCall, rows: int, queries: int, keys: int, size: int, width: int, mask: bool = False, causal: bool = False
) -> Cost:
    """The cost of attention of so many batches times heads. A causal mask makes part of the pairs void."""
    reach = (bottom_right if op.has("past_key") else top_left) if causal else dense
    active = None if mask else rows * reach(queries, keys)
    every = rows * queries * keys
    return forward(op, Problem(rows, 1, 1, queries, keys, size, width, every, active, mask, dropout=False))


@onnx("+Attention +QAttention", "B S X (Dq + Dk + Dv) of the projection + B H Sq Sk (Dk + Dv) MACs", family="attention")
def projected(op: OpCall) -> Cost:
    """The projection to query, key and value, and attention."""
    x, w = op.inputs[:2]
    heads = max(1, int(op.arg("num_heads", 1)))
    sizes = op.arg("qkv_hidden_sizes", (w.shape[1] // 3,) * 3)
    keys = x.shape[1] + (op.tensor("past").shape[3] if op.has("past") else 0)
    projection = Cost(macs=x.numel * w.shape[1], elementwise_flops=x.shape[0] * x.shape[1] * w.shape[1])
    rows = x.shape[0] * heads
    mask = op.has("mask_index") or op.has("attention_bias")
    causal = bool(op.arg("unidirectional", 0))
    return projection + attended(op, rows, x.shape[1], keys, sizes[1] // heads, sizes[2] // heads, mask, causal)


@onnx("+MultiHeadAttention +GroupQueryAttention", "B H Sq Sk (Dk + Dv) MACs", family="attention")
def heads(op: OpCall) -> Cost:
    """Attention of given queries, keys and values, which may be packed together."""
    count = max(1, int(op.arg("num_heads", 1)))
    q = op.inputs[0]
    width = op.out.shape[-1] // count
    key = op.arguments.get("key")
    size, keys = width, q.shape[1]
    if isinstance(key, Tensor):
        keys = key.shape[2] if len(key.shape) == 4 else key.shape[1]
        size = q.shape[-1] // count if len(q.shape) == 3 else width
    if op.has("past_key"):
        keys += op.tensor("past_key").shape[2]
        if len(op.outputs) > 1:
            keys = op.outputs[1].shape[2]
    causal = op.base.endswith("GroupQueryAttention") or bool(op.arg("unidirectional", 0))
    return attended(op, q.shape[0] * count, q.shape[1], keys, size, width, op.has("attention_bias"), causal)


@onnx("LinearAttention", "per step and head: 2 Dk Dv MACs, 2 Dk Dv for decay and update", family="attention")
def linear_attention(op: OpCall) -> Cost:
    """A state of the size of a product of key and value, updated and read by every step."""
    q = op.inputs[0]
    steps = q.shape[0] * q.shape[1]
    state = op.outputs[1] if len(op.outputs) > 1 else None
    if state is None:
        k, v = op.inputs[1].shape[-1], op.inputs[2].shape[-1]
        area = k * v // max(1, int(op.arg("kv_num_heads", 1)))
    else:
        area = state.numel // max(1, state.shape[0])
    return Cost(macs=2 * steps * area, elementwise_flops=2 * steps * area, exact=False, reason="recurrent form")


@onnx("+EmbedLayerNormalization", "2 adds and 7n + 2 per row", family="normalization")
def embedded(op: OpCall) -> Cost:
    """Rows of tables, added and normalized."""
    count = op.out.numel
    rows = count // max(1, op.out.shape[-1])
    return Cost(elementwise_flops=9 * count + 2 * rows, transcendentals=3 * rows)
