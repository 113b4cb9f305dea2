"""Shapes of ops of onnxruntime (``com.microsoft``) that its optimizer and its exporters write."""

from __future__ import annotations

from tensortide.dtypes import is_float
from tensortide.importers.onnx.shapes.base import SHAPES, Call, like, shape
from tensortide.importers.onnx.shapes.products import matmul_shape
from tensortide.importers.onnx.value import Spec

DOMAIN = "com.microsoft"

for _name in (
    *("Gelu", "LayerNormalization", "RotaryEmbedding", "QuantizeLinear", "DequantizeLinear", "MatMulInteger", "Range"),
    *("ConvTranspose", "QLinearConv", "GridSample", "Unique", "Trilu"),
):
    if f"{DOMAIN}::{_name}" not in SHAPES and _name in SHAPES:
        SHAPES[f"{DOMAIN}::{_name}"] = SHAPES[_name]
for _name, _standard in (("FusedConv", "Conv"), ("FusedGemm", "Gemm"), ("DynamicQuantizeLSTM", "LSTM")):
    SHAPES[f"{DOMAIN}::{_name}"] = SHAPES[_standard]


@shape("FastGelu BiasGelu QuickGelu BiasAdd BiasDropout BiasSoftmax BiasSplitGelu Inverse GemmFastGelu", DOMAIN)
def same(call: Call) -> list[Spec]:
    """Like the first input."""
    x = call.x()
    if call.node.type == "GemmFastGelu":
        return [like(x, shape=matmul_shape(call, x.shape, call.x(1).shape))]
    if call.node.type == "BiasSplitGelu":
        return [like(x, shape=(*x.shape[:-1], x.shape[-1] // 2))]
    return [like(x), like(x, dtype="bool")]


@shape("FusedMatMul TransposeMatMul", DOMAIN)
def fused_matmul(call: Call) -> list[Spec]:
    """A product, either operand possibly transposed."""
    a, b = call.ranked(0, 1), call.ranked(1, 1)

    def side(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        if call.attr(f"transBatch{name}", 0) and len(shape) > 2:
            shape = (*shape[1:-1], shape[0], shape[-1])
        return (*shape[:-2], shape[-1], shape[-2]) if call.attr(f"trans{name}", 0) and len(shape) > 1 else shape

    return [like(a, shape=matmul_shape(call, side(a.shape, "A"), side(b.shape, "B")))]


@shape("MatMulIntegerToFloat DynamicQuantizeMatMul", DOMAIN)
def integer_matmul(call: Call) -> list[Spec]:
    """A product of quantized numbers, as numbers."""
    return [Spec(matmul_shape(call, call.x(0).shape, call.x(1).shape), "float32")]


@shape("MatMulNBits", DOMAIN)
def packed_matmul(call: Call) -> list[Spec]:
    """A product with a weight of a few bits per element."""
    a = call.ranked(0, 1)
    if int(a.shape[-1]) != call.attr("K", 0):
        raise call.fail(f"K = {call.attr('K', 0)} for the input {a.shape}")
    return [like(a, shape=(*a.shape[:-1], call.attr("N", 0)))]


@shape("QGemm", DOMAIN)
def quantized_gemm(call: Call) -> list[Spec]:
    """A product of quantized matrices."""
    a, b = call.ranked(0, 2, 2), call.ranked(3, 2, 2)
    m = a.shape[1] if call.attr("transA", 0) else a.shape[0]
    n = b.shape[0] if call.attr("transB", 0) else b.shape[1]
    zero = call.given(8)
    return [Spec((m, n), zero.dtype if zero is not None else "float32")]


@shape("QLinearAdd QLinearMul", DOMAIN)
def quantized_arithmetic(call: Call) -> list[Spec]:
    """Quantized numbers added or multiplied."""
    return [Spec(call.broadcast(call.x(0).shape, call.x(3).shape), call.x(0).dtype)]


@shape("QLinearSigmoid QLinearLeakyRelu QLinearSoftmax", DOMAIN)
def quantized_unary(call: Call) -> list[Spec]:
    """Like the input."""
    return [like(call.x())]


@shape("QLinearGlobalAveragePool", DOMAIN)
def quantized_pool(call: Call) -> list[Spec]:
    """All places reduced to one."""
    x = call.ranked(0, 3)
    if call.attr("channels_last", 0):
        return [like(x, shape=(x.shape[0], *(1,) * (x.rank - 2), x.shape[-1]))]
    return [like(x, shape=(*x.shape[:2], *(1,) * (x.rank - 2)))]


@shape("SkipLayerNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization", DOMAIN)
def skip_norm(call: Call) -> list[Spec]:
    """A sum, normalized over its last dimension; statistics; the sum."""
    x = call.ranked(0, 1)
    statistics = Spec((*x.shape[:-1], 1), "float32")
    return [like(x), statistics, statistics, like(x)]


SHAPES["SimplifiedLayerNormalization"] = skip_norm


@shape("EmbedLayerNormalization", DOMAIN)
def embed_norm(call: Call) -> list[Spec]:
    """Rows of tables, added and normalized."""
    ids, table = call.ranked(0, 2, 2), call.ranked(2, 2, 2)
    dims = (*ids.shape, table.shape[1])
    return [like(table, shape=dims), Spec((ids.shape[0],), "int32"), like(table, shape=dims)]


@shape("Attention QAttention", DOMAIN)
def attention(call: Call) -> list[Spec]:
    """The projection to query, key and value, and attention."""
    x, w = call.ranked(0, 3, 3), call.ranked(1, 2, 2)
    sizes = call.attr("qkv_hidden_sizes", ()) or (w.shape[1] // 3,) * 3
    heads = max(1, call.attr("num_heads", 1))
    past = call.given(4 if call.node.type == "Attention" else 8)
    before = past.shape[3] if past is not None and past.rank == 5 else 0
    present = (2, x.shape[0], heads, x.shape[1] + before, sizes[1] // heads)
    dtype = x.dtype if is_float(x.dtype) else "float32"
    return [Spec((*x.shape[:2], sizes[2]), dtype), Spec(present, dtype)]


@shape("MultiHeadAttention GroupQueryAttention", DOMAIN)
def heads(call: Call) -> list[Spec]:
    """Attention of given queries, keys and values, which may be packed together."""
    q, k, v = call.ranked(0, 3, 5), call.given(1), call.given(2)
    heads = max(1, call.attr("num_heads", 1))
    groups = max(1, call.attr("kv_num_heads", heads))
    batch, tokens = q.shape[0], q.shape[1]
    if k is None or v is None:
        packed = (q.shape[2] // (heads + 2 * groups)) * heads if q.rank == 3 else 0
        width = heads * q.shape[4] if q.rank == 5 else packed
        length, size = tokens, width // heads
    elif k.rank == 4 and v.rank == 4:
        length, size, width = k.shape[2], k.shape[3], heads * v.shape[3]
    elif k.rank == 5:
        length, size, width = k.shape[1], k.shape[4], heads * k.shape[4]
    else:
        length, size, width = k.shape[1], k.shape[2] // groups, heads * (v.shape[2] // groups)
    past = call.given(3 if call.node.type == "GroupQueryAttention" else 6)
    if past is not None and past.rank == 4:
        total = call.content(6) if call.node.type == "GroupQueryAttention" else None
        length = total[0] if total and total[0] is not None else length + past.shape[2]
    present = (batch, groups, length, size)
    return [like(q, shape=(batch, tokens, width)), like(q, shape=present), like(q, shape=present)]


@shape("GroupNorm", DOMAIN)
def group_norm(call: Call) -> list[Spec]:
    """Like the input."""
    return [like(call.x())]


@shape("NhwcConv", DOMAIN)
def nhwc_conv(call: Call) -> list[Spec]:
    """A convolution whose channels are last."""
    from tensortide.importers.onnx.shapes.windows import windows

    x, w = call.ranked(0, 4, 4), call.ranked(1, 4, 4)
    return [like(x, shape=(x.shape[0], *windows(call, x.shape[1:3], w.shape[1:3]), w.shape[0]))]
