"""Shapes of ops of onnxruntime (``com.microsoft``) that its optimizer and its exporters write."""

from __future__ import annotations

from tensortide.dtypes import is_float
from tensortide.importers.onnx.shapes.base import SHAPES, Call, shape
from tensortide.importers.onnx.shapes.products import matmul, transposed_matmul
from tensortide.importers.onnx.shapes.windows import windows
from tensortide.importers.onnx.value import Spec
from tensortide.importers.shapes import PLAIN, broadcast, layout, reduced

DOMAIN = "com.microsoft"

for _name in (
    *("LayerNormalization", "RotaryEmbedding", "QuantizeLinear", "DequantizeLinear", "MatMulInteger", "Range"),
    *("ConvTranspose", "QLinearConv", "GridSample", "Unique", "Trilu", "SwiGLU"),
):
    SHAPES[f"{DOMAIN}::{_name}"] = SHAPES[_name]
for _name, _standard in (("FusedConv", "Conv"), ("FusedGemm", "Gemm"), ("DynamicQuantizeLSTM", "LSTM")):
    SHAPES[f"{DOMAIN}::{_name}"] = SHAPES[_standard]


@shape("MatMulNBits", DOMAIN)
def packed_matmul(call: Call) -> Spec:
    """A product with a weight of a few bits per element."""
    a = call.ranked(0, 1)
    PLAIN.equal(a.shape[-1], call.attr("K", 0))
    return call.like((*a.shape[:-1], call.attr("N", 0)))


@shape("QGemm", DOMAIN)
def quantized_gemm(call: Call) -> Spec:
    """A product of quantized matrices."""
    call.ranked(0, 2, 2), call.ranked(3, 2, 2)
    zero = call.given(8)
    return Spec(transposed_matmul(call, 0, 3), zero.dtype if zero is not None else "float32")


@shape("QLinearGlobalAveragePool", DOMAIN)
def quantized_pool(call: Call) -> Spec:
    """All places reduced to one."""
    x = call.ranked(0, 3)
    return call.like(reduced(x.shape, layout(x.rank, not call.attr("channels_last", 0))[1], 1))


@shape("SkipLayerNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization", DOMAIN)
def skip_norm(call: Call) -> list[Spec]:
    """A sum, normalized over its last dimension; statistics; the sum."""
    statistics = Spec((*call.ranked(0, 1).shape[:-1], 1), "float32")
    return [call.like(), statistics, statistics, call.like()]


SHAPES["SimplifiedLayerNormalization"] = skip_norm


@shape("EmbedLayerNormalization", DOMAIN)
def embed_norm(call: Call) -> list[Spec]:
    """Rows of tables, added and normalized."""
    ids, table = call.ranked(0, 2, 2), call.ranked(2, 2, 2)
    rows = call.like((*ids.shape, table.shape[1]), index=2)
    return [rows, Spec((ids.shape[0],), "int32"), rows]


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
    present = call.like((batch, groups, length, size))
    return [call.like((batch, tokens, width)), present, present]


@shape("NhwcConv", DOMAIN)
def nhwc_conv(call: Call) -> Spec:
    """A convolution whose channels are last."""
    x, w = call.ranked(0, 4, 4), call.ranked(1, 4, 4)
    return call.like((x.shape[0], *windows(call, x.shape[1:3], w.shape[1:3]), w.shape[0]))


shape("FastGelu BiasGelu QuickGelu BiasAdd BiasDropout BiasSoftmax Inverse", DOMAIN)(
    lambda call: [call.like(), call.like(dtype="bool")]
)
shape("BiasSplitGelu", DOMAIN)(lambda call: call.like((*call.x().shape[:-1], call.x().shape[-1] // 2)))
shape("GemmFastGelu", DOMAIN)(lambda call: call.like(matmul(call)))
shape("FusedMatMul TransposeMatMul", DOMAIN)(lambda call: call.like(transposed_matmul(call)))
shape("MatMulIntegerToFloat DynamicQuantizeMatMul", DOMAIN)(lambda call: Spec(matmul(call), "float32"))
shape("QLinearAdd QLinearMul", DOMAIN)(lambda call: call.like(broadcast(PLAIN, call.x(0).shape, call.x(3).shape)))
shape("QLinearSigmoid QLinearLeakyRelu", DOMAIN)(lambda call: call.like())
