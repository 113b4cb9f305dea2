"""Shapes of matrix products, recurrent layers, attention, and of quantized ops."""

from __future__ import annotations

import re

from tensortide.importers.onnx.read import DTYPES
from tensortide.importers.onnx.shapes.base import Call, like, shape
from tensortide.importers.onnx.value import Spec


def matmul_shape(call: Call, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a product of any rank; a vector has no dimension of its own in the result."""
    if not a or not b:
        raise call.fail(f"the shapes {a} and {b}")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if int(left[-1]) != int(right[-2]):
        raise call.fail(f"a product of the shapes {tuple(map(int, a))} and {tuple(map(int, b))}")
    dims = [*call.broadcast(left[:-2], right[:-2])]
    if len(a) > 1:
        dims.append(left[-2])
    if len(b) > 1:
        dims.append(right[-1])
    return tuple(dims)


@shape("MatMul MatMulInteger")
def matmul(call: Call) -> list[Spec]:
    """A product."""
    a, b = call.x(0), call.x(1)
    return [Spec(matmul_shape(call, a.shape, b.shape), "int32" if "Integer" in call.node.type else a.dtype)]


@shape("QLinearMatMul")
def quantized_matmul(call: Call) -> list[Spec]:
    """A product of quantized numbers, with scales and zero points."""
    a, b = call.x(0), call.x(3)
    return [Spec(matmul_shape(call, a.shape, b.shape), call.x(7).dtype)]


@shape("Gemm")
def gemm(call: Call) -> list[Spec]:
    """A product of matrices, either possibly transposed, and a term."""
    a, b = call.ranked(0, 2, 2), call.ranked(1, 2, 2)
    m, k = a.shape[::-1] if call.attr("transA", 0) else a.shape
    k2, n = b.shape[::-1] if call.attr("transB", 0) else b.shape
    if int(k) != int(k2):
        raise call.fail(f"a product of the shapes {tuple(map(int, a.shape))} and {tuple(map(int, b.shape))}")
    return [like(a, shape=(m, n))]


@shape("Einsum")
def einsum(call: Call) -> list[Spec]:
    """A sum of products in Einstein's notation."""
    values = [call.x(i) for i in range(len(call.inputs))]
    terms, result = equation(call, call.attr("equation", ""), [value.rank for value in values])
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        for name, n in zip(term, value.shape, strict=True):
            (sizes[name],) = call.broadcast((sizes.get(name, 1),), (n,))
    if missing := [name for name in result if name not in sizes]:
        raise call.fail(f"its result has the index {missing[0]}, which no input has")
    return [like(values[0], shape=tuple(sizes[name] for name in result))]


def equation(call: Call, text: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return the indices of every input and of the result; an ellipsis becomes digits."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks) or not re.fullmatch(r"[A-Za-z.,]*", left):
        raise call.fail(f"the equation {text[:80]!r} for {len(ranks)} inputs")
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = "..." * ("..." in left) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    widest = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0)
    if widest > 10:
        raise call.fail(f"the equation {text[:80]!r} for inputs of {max(ranks)} dimensions")
    digits = "0123456789"[:widest]
    full = []
    for term, rank in zip(terms, ranks, strict=True):
        spread = rank - len(term) + 3 if "..." in term else 0
        full.append(term.replace("...", digits[widest - spread :] if spread else ""))
        if spread < 0 or len(full[-1]) != rank or "." in full[-1]:
            raise call.fail(f"the equation {text[:80]!r} for an input of {rank} dimensions")
    return full, right.replace("...", digits)


@shape("LSTM GRU RNN")
def recurrent(call: Call) -> list[Spec]:
    """All outputs, and the last state (of an LSTM also that of the cell)."""
    x, w, r = call.ranked(0, 3, 3), call.ranked(1, 3, 3), call.ranked(2, 3, 3)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[call.node.type]
    directions, hidden = w.shape[0], r.shape[2]
    if int(w.shape[1]) != gates * int(hidden) or int(w.shape[2]) != int(x.shape[2]):
        raise call.fail(f"weights {w.shape} and {r.shape} for the input {x.shape}")
    batch_first = call.attr("layout", 0)
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    every = (batch, steps, directions, hidden) if batch_first else (steps, directions, batch, hidden)
    made = [like(x, shape=every), like(x, shape=state)]
    return [*made, like(x, shape=state)] if gates == 4 else made


@shape("Attention")
def attention(call: Call) -> list[Spec]:
    """Attention of heads; keys and values may follow those of the past."""
    q, k, v = call.ranked(0, 3, 4), call.ranked(1, 3, 4), call.ranked(2, 3, 4)
    batch = q.shape[0]
    if q.rank == 3:
        heads, groups = call.attr("q_num_heads", 0), call.attr("kv_num_heads", 0)
        if heads < 1 or groups < 1:
            raise call.fail("inputs of three dimensions, and no number of heads")
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
    scores = (batch, heads, queries, key[2])
    return [like(q, shape=made), like(k, shape=key), like(v, shape=value), like(q, shape=scores)]


@shape("LinearAttention")
def linear_attention(call: Call) -> list[Spec]:
    """Attention through a state of the size of a product of key and value."""
    q, v = call.ranked(0, 3), call.ranked(2, 3)
    state = call.given(3)
    groups = max(1, call.attr("kv_num_heads", 1))
    k = call.ranked(1, 3)
    dims = state.shape if state is not None else (q.shape[0], groups, k.shape[-1] // groups, v.shape[-1] // groups)
    heads = max(1, call.attr("q_num_heads", groups))
    return [like(q, shape=(*q.shape[:-1], heads * dims[-1])), like(q, shape=tuple(dims))]


@shape("RotaryEmbedding")
def rotary(call: Call) -> list[Spec]:
    """Pairs of features turned."""
    return [like(call.x())]


@shape("QuantizeLinear")
def quantize(call: Call) -> list[Spec]:
    """Numbers as integers with a scale."""
    zero = call.given(2)
    kind = call.attr("output_dtype", 0)
    return [like(call.x(), dtype=zero.dtype if zero is not None else DTYPES.get(kind, "uint8"))]


@shape("DequantizeLinear")
def dequantize(call: Call) -> list[Spec]:
    """Integers with a scale as numbers."""
    return [like(call.x(), dtype=DTYPES.get(call.attr("output_dtype", 0), call.x(1).dtype))]


@shape("DynamicQuantizeLinear")
def dynamic(call: Call) -> list[Spec]:
    """Integers, and the scale and zero point found for them."""
    return [like(call.x(), dtype="uint8"), Spec((), "float32"), Spec((), "uint8")]
