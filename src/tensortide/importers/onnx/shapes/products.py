"""Shapes of matrix products, recurrent layers, attention, and of quantized ops."""

from __future__ import annotations

from tensortide.importers.onnx.shapes.base import Call, shape
from tensortide.importers.onnx.value import Spec
from tensortide.importers.shapes import PLAIN, ShapeError, einsum, plain, product


def matmul(call: Call, first: int = 0, second: int = 1) -> tuple[int, ...]:
    """Return the shape of a product of two inputs."""
    return product(PLAIN, call.x(first).shape, call.x(second).shape)


def transposed_matmul(call: Call, first: int = 0, second: int = 1) -> tuple[int, ...]:
    """Return the shape of a product of two inputs, as ``transA`` and the like say."""
    sides = []
    for index, name in ((first, "A"), (second, "B")):
        dims = call.x(index).shape
        if call.attr(f"transBatch{name}", 0) and len(dims) > 2:
            dims = (*dims[1:-1], dims[0], dims[-1])
        sides.append((*dims[:-2], dims[-1], dims[-2]) if call.attr(f"trans{name}", 0) and len(dims) > 1 else dims)
    return product(PLAIN, *sides)


@shape("Gemm")
def gemm(call: Call) -> Spec:
    """A product of matrices, either possibly transposed, and a term."""
    call.ranked(0, 2, 2), call.ranked(1, 2, 2)
    return call.like(transposed_matmul(call))


@shape("Einsum")
def summed(call: Call) -> Spec:
    """A sum of products in Einstein's notation."""
    shapes = [call.x(i).shape for i in range(len(call.inputs))]
    return call.like(einsum(PLAIN, call.attr("equation", ""), shapes))


@shape("LSTM GRU RNN")
def recurrent(call: Call) -> list[Spec]:
    """All outputs, and the last state (of an LSTM also that of the cell)."""
    x, w, r = call.ranked(0, 3, 3), call.ranked(1, 3, 3), call.ranked(2, 3, 3)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[call.node.type]
    directions, hidden = w.shape[0], r.shape[2]
    if int(w.shape[1]) != gates * int(hidden) or int(w.shape[2]) != int(x.shape[2]):
        raise ShapeError(f"weights {plain(w.shape)} and {plain(r.shape)} for the input {plain(x.shape)}")
    batch_first = call.attr("layout", 0)
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    every = (batch, steps, directions, hidden) if batch_first else (steps, directions, batch, hidden)
    return [call.like(every), *[call.like(state)] * (2 if gates == 4 else 1)]


@shape("Attention")
def attention(call: Call) -> list[Spec]:
    """Attention of heads; keys and values may follow those of the past."""
    q, k, v = call.ranked(0, 3, 4), call.ranked(1, 3, 4), call.ranked(2, 3, 4)
    batch = q.shape[0]
    if q.rank == 3:
        heads, groups = call.attr("q_num_heads", 0), call.attr("kv_num_heads", 0)
        if heads < 1 or groups < 1:
            raise ShapeError("inputs of three dimensions, and no number of heads")
        key: tuple[int, ...] = (batch, groups, k.shape[1], k.shape[2] // groups)
        value: tuple[int, ...] = (batch, groups, v.shape[1], v.shape[2] // groups)
        made: tuple[int, ...] = (batch, q.shape[1], heads * value[3])
        queries = q.shape[1]
    else:
        heads, queries, key, value = q.shape[1], q.shape[2], k.shape, v.shape
        made = (*q.shape[:3], v.shape[3])
    past = call.given(4)
    before = past.shape[2] if past is not None and past.rank == 4 else 0
    key, value = (*key[:2], key[2] + before, key[3]), (*value[:2], value[2] + before, value[3])
    return [
        call.like(made),
        call.like(key, index=1),
        call.like(value, index=2),
        call.like((batch, heads, queries, key[2])),
    ]


@shape("LinearAttention")
def linear_attention(call: Call) -> list[Spec]:
    """Attention through a state of the size of a product of key and value."""
    q, v = call.ranked(0, 3), call.ranked(2, 3)
    state = call.given(3)
    groups = max(1, call.attr("kv_num_heads", 1))
    k = call.ranked(1, 3)
    dims = state.shape if state is not None else (q.shape[0], groups, k.shape[-1] // groups, v.shape[-1] // groups)
    heads = max(1, call.attr("q_num_heads", groups))
    return [call.like((*q.shape[:-1], heads * dims[-1])), call.like(dims)]


@shape("QuantizeLinear")
def quantize(call: Call) -> Spec:
    """Numbers as integers with a scale."""
    zero = call.given(2)
    return call.like(dtype=zero.dtype if zero is not None else call.dtype("output_dtype", "uint8"))


shape("MatMul")(lambda call: call.like(matmul(call)))
shape("MatMulInteger")(lambda call: Spec(matmul(call), "int32"))
shape("QLinearMatMul")(lambda call: Spec(matmul(call, 0, 3), call.x(7).dtype))
shape("RotaryEmbedding")(lambda call: call.like())
shape("DequantizeLinear")(lambda call: call.like(dtype=call.dtype("output_dtype", call.x(1).dtype)))
# integers, and the scale and zero point found for them
shape("DynamicQuantizeLinear")(lambda call: [call.like(dtype="uint8"), Spec((), "float32"), Spec((), "uint8")])
