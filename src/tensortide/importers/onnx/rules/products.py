"""Matrix products, convolutions, recurrent layers and attention of ONNX graphs. Convention: docs/cost.md, products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.products import product
from tensortide.cost.rules.recurrent import GRU, LSTM, RELU, TANH, Layer
from tensortide.graph.model import Tensor
from tensortide.importers.onnx.rules.moves import onnx


def _scaled(macs: int, elementwise: int) -> Cost:
    """A product of quantized numbers, and what scales its result."""
    return Cost(macs=macs, elementwise_flops=elementwise)


@onnx("MatMul MatMulInteger", "B m n k MACs")
@onnx(
    "+FusedMatMul +TransposeMatMul", "B m n k MACs (+ E of a factor)", "A product, either operand possibly transposed."
)
@onnx("QLinearMatMul", "B m n k MACs, E scalings", "A product of quantized numbers.")
@onnx("+MatMulIntegerToFloat +DynamicQuantizeMatMul", "B m n k MACs, E scalings", "A product of quantized numbers.")
@onnx("+GemmFastGelu", "m n k MACs, 9 E of the activation", "A product and an activation.")
def matmul(op: OpCall) -> Cost:
    """A product of operands of any rank."""
    a = op.inputs[0].shape
    transposed = op.arg("transA", 0) and len(a) > 1
    k = a[0 if op.arg("transBatchA", 0) and transposed else -2] if transposed else a[-1]
    op.let(E=op.out.numel, k=k)
    kind = op.base.removeprefix("microsoft::")
    if kind == "GemmFastGelu":
        return product(op, op.out.numel * k, 9 * op.out.numel)
    if kind in ("QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        return _scaled(op.out.numel * k, op.out.numel * (1 + op.has("bias")))
    return product(op, op.out.numel * k, op.out.numel if op.arg("alpha", 1.0) != 1 else 0)


@onnx("+MatMulNBits", "m n K MACs, one scaling per element of the weight")
def packed(op: OpCall) -> Cost:
    """A product with a weight of a few bits per element."""
    n, k = int(op.arg("N", 1)), int(op.arg("K", 1))
    return product(op, op.out.numel * k, n * k + op.out.numel * op.has("bias"))


@onnx("Gemm +FusedGemm", "m n k MACs + m n add (+ m n per factor alpha, beta)")
@onnx("+QGemm", "m n k MACs, m n scalings (+ m n add)", "A product of quantized matrices.")
def gemm(op: OpCall) -> Cost:
    """A product of matrices, and a term."""
    m, n = op.out.shape
    k = op.inputs[0].shape[0 if op.arg("transA", 0) else 1]
    op.let(m=m, n=n, k=k)
    if op.base.endswith("QGemm"):
        return _scaled(m * n * k, m * n * (1 + op.has("C")))
    each = (op.arg("alpha", 1.0) != 1) + op.has("C") * (1 + (op.arg("beta", 1.0) != 1))
    return product(op, m * n * k, m * n * each)


@onnx("Einsum", "product of all distinct indices MACs; without a contraction 1 per output element")
def einsum(op: OpCall) -> Cost | None:
    """A sum of products in Einstein's notation; of more than two operands left to right."""
    found = einsum_work(str(op.arg("equation", "")), [x.shape for x in op.inputs])
    if found is None:
        return None
    macs, other, exact = found
    cost = product(op, macs, other)
    return cost if exact else cost + Cost(exact=False, reason="contracted left to right")


def einsum_work(text: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, bool] | None:
    """Return multiply-accumulates, elementwise work, and whether the order of contraction is certain."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return None
    widest = max((len(s) - len(t) + 3 for t, s in zip(terms, shapes, strict=True) if "..." in t), default=0)
    digits = "0123456789"[:widest]
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = "..." * ("..." in left) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    right = right.replace("...", digits)
    sizes: dict[str, int] = {}
    full = []
    for term, shape in zip(terms, shapes, strict=True):
        spread = len(shape) - len(term) + 3
        full.append(term.replace("...", digits[widest - spread :] if spread and "..." in term else ""))
        for name, n in zip(full[-1], shape, strict=True):
            sizes[name] = n if int(sizes.get(name, 1)) == 1 else sizes[name]
    macs = other = 0
    joined = set(full[0])
    for i, term in enumerate(full[1:], 1):
        kept = set(right).union(*full[i + 1 :]) if i + 1 < len(full) else set(right)
        here = set(term)
        for own, partner in ((joined, here), (here, joined)):
            if own - partner - kept:
                other += math.prod(sizes[c] for c in own)  # first what one operand alone has is summed out
        names = {c for c in joined | here if c in kept or (c in joined and c in here)}
        if names - kept:
            macs += math.prod(sizes[c] for c in names)
        else:
            other += math.prod(sizes[c] for c in names)
        joined = names & kept
    if len(full) == 1 and set(full[0]) - set(right):
        other += math.prod(sizes[c] for c in full[0])
    return macs, other, len(full) <= 2


@onnx("Conv ConvInteger", "N O Cout (Cin/g) K MACs + N O Cout of the bias")
@onnx("+FusedConv", "as Conv, + 1 per element each of the activation and the sum", "A convolution and an activation.")
@onnx("+NhwcConv", "as Conv", "A convolution whose channels are last.")
@onnx("QLinearConv +QLinearConv", "as Conv, + E scalings", "A convolution of quantized numbers.")
@onnx("DeformConv", "as Conv, + 7 per tap and input channel of a group", "A convolution at displaced places.")
def convolution(op: OpCall) -> Cost:
    """Every output element meets all taps of its channel's filter, those on padding included."""
    kind = op.base.removeprefix("microsoft::")
    w = op.first("W", "w")
    taps = math.prod(w.shape[1:])
    op.let(E=op.out.numel, taps=taps)
    macs, biased = op.out.numel * taps, op.out.numel * (op.has("B") or op.has("bias"))
    if kind == "QLinearConv":
        return _scaled(macs, op.out.numel + biased)
    if kind == "FusedConv":
        biased += op.out.numel * (op.has("Z") + 1)
    if kind == "DeformConv":
        sites = op.out.numel // max(1, w.shape[0])
        biased += 7 * sites * op.inputs[0].shape[1] * math.prod(w.shape[2:])
    return product(op, macs, biased)


@onnx("CausalConvWithState", "E taps MACs + E of the bias")
def causal(op: OpCall) -> Cost:
    """A depthwise convolution along time."""
    taps = math.prod(op.inputs[1].shape[1:])
    return product(op, op.out.numel * taps, op.out.numel * op.has("bias"))


@onnx("*ConvTranspose", "N I Cin (Cout/g) K MACs + N O Cout of the bias")
def transposed(op: OpCall) -> Cost:
    """Every input element meets all taps of its channel's filter."""
    x, w = op.inputs[0], op.inputs[1]
    taps = math.prod(w.shape[1:])
    op.let(I=x.numel, taps=taps)
    return product(op, x.numel * taps, op.out.numel * op.has("B"))


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


@onnx("LSTM GRU RNN +DynamicQuantizeLSTM", "per direction T B G (X + H) MACs, G = 4H, 3H, H")
def recurrent(op: OpCall) -> Cost:
    """A recurrent layer, in one direction or both. Sequences that end before are counted whole."""
    one, directions = recurrent_layer(op)
    cost = one.forward() * directions
    if op.has("sequence_lens"):
        cost = Cost(
            macs=cost.macs, active_macs=None, elementwise_flops=cost.elementwise_flops,
            transcendentals=cost.transcendentals, comparisons=cost.comparisons,
        )  # fmt: skip
    return cost


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


@onnx("Attention", "B Hq Sq Sk (Dk + Dv) MACs; softmax and scale 5 Sk + ... per row")
def attention(op: OpCall) -> Cost:
    """Softmax of scaled products of queries and keys, times values: dense, masks or not."""
    rows, queries, keys, size, width = pairs(op)
    mask = op.has("attn_mask")
    return attended(op, rows, queries, keys, size, width, mask, bool(op.arg("is_causal", 0)))


def attended(
    op: OpCall, rows: int, queries: int, keys: int, size: int, width: int, mask: bool = False, causal: bool = False
) -> Cost:
    """The cost of attention of so many batches times heads. A causal mask makes part of the pairs void."""
    all_pairs = rows * queries * keys
    op.let(BH=rows, Sq=queries, Sk=keys, Dk=size, Dv=width)
    macs = all_pairs * (size + width)
    active: int | None = macs
    if mask:
        active = None
    elif causal:
        first = queries * (queries + 1) // 2 if queries < keys else keys * (keys + 1) // 2 + (queries - keys) * keys
        if op.has("past_key"):
            first = queries * keys - queries * (queries - 1) // 2
        active = rows * first * (size + width)
    work = all_pairs * (6 + mask) - 2 * rows * queries
    return Cost(
        macs=macs, active_macs=active, elementwise_flops=work, transcendentals=2 * all_pairs,
        comparisons=all_pairs - rows * queries,
    )  # fmt: skip


@onnx("+Attention +QAttention", "B S X (Dq + Dk + Dv) of the projection + B H Sq Sk (Dk + Dv) MACs")
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


@onnx("+MultiHeadAttention +GroupQueryAttention", "B H Sq Sk (Dk + Dv) MACs")
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


@onnx("LinearAttention", "per step and head: 2 Dk Dv MACs, 2 Dk Dv for decay and update")
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


@onnx("+EmbedLayerNormalization", "2 adds and 7n + 2 per row")
def embedded(op: OpCall) -> Cost:
    """Rows of tables, added and normalized."""
    count = op.out.numel
    rows = count // max(1, op.out.shape[-1])
    return Cost(elementwise_flops=9 * count + 2 * rows, transcendentals=3 * rows)
