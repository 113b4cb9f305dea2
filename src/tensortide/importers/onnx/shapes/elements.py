"""Shapes of element-by-element ops, casts and ops that make tensors from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensortide.importers.onnx.contents import BINARY, array, cast, mapped
from tensortide.importers.onnx.read import DTYPES, Stored
from tensortide.importers.onnx.shapes.base import Call, count, like, shape
from tensortide.importers.onnx.value import FEW, Spec, Value

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
    "HardSwish Hardmax LeakyRelu Log LogSoftmax LpNormalization LRN MeanVarianceNormalization Mish Neg Reciprocal Relu "
    "Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu CumSum "
    "CumProd ReverseSequence Trilu Bernoulli RandomNormalLike RandomUniformLike Not"
)
BROADCAST = "Add Sub Mul Div Mod Pow Min Max Sum Mean PRelu BitShift BitwiseAnd BitwiseOr BitwiseXor"
COMPARING = "Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor"


@shape(UNARY)
def same(call: Call) -> list[Spec]:
    """One output like the first input."""
    x, found = call.x(), None
    if call.node.type in BINARY:
        found = mapped(BINARY[call.node.type], x.contents)
    kind = call.attr("dtype", 0)
    return [like(x, contents=found, dtype=DTYPES.get(kind, x.dtype))]


@shape("IsInf IsNaN")
def tested(call: Call) -> list[Spec]:
    """A boolean for every element."""
    return [like(call.x(), dtype="bool")]


@shape(BROADCAST)
def arithmetic(call: Call) -> list[Spec]:
    """The inputs broadcast together."""
    values = [call.x(i) for i in range(len(call.inputs))]
    function = BINARY.get(call.node.type)
    found = mapped(function, *(value.contents for value in values)) if function else None
    return [Spec(call.broadcast(*(value.shape for value in values)), call.x().dtype, found)]


@shape(COMPARING)
def compared(call: Call) -> list[Spec]:
    """Booleans."""
    a, b = call.x(0), call.x(1)
    return [Spec(call.broadcast(a.shape, b.shape), "bool", mapped(BINARY[call.node.type], a.contents, b.contents))]


@shape("Where")
def where(call: Call) -> list[Spec]:
    """Elements of one or the other."""
    values = [call.x(i) for i in range(3)]
    found = mapped(BINARY["Where"], *(value.contents for value in values))
    return [Spec(call.broadcast(*(value.shape for value in values)), values[1].dtype, found)]


@shape("Cast")
def casted(call: Call) -> list[Spec]:
    """Another dtype."""
    kind = call.attr("to", 1)
    if kind not in DTYPES:
        raise call.fail(f"it casts to the unknown dtype {kind}")
    return [like(call.x(), dtype=DTYPES[kind], contents=cast(call.x().contents, DTYPES[kind]))]


@shape("BitCast")
def bit_cast(call: Call) -> list[Spec]:
    """The same bits as another dtype."""
    return [like(call.x(), dtype=DTYPES.get(call.attr("to", 1), "float32"))]


@shape("CastLike")
def cast_like(call: Call) -> list[Spec]:
    """The dtype of the second input."""
    return [like(call.x(), dtype=call.x(1).dtype, contents=cast(call.x().contents, call.x(1).dtype))]


@shape("Dropout")
def dropout(call: Call) -> list[Spec]:
    """In inference the input itself, and a mask that keeps all."""
    x = call.x()
    return [Spec(x.shape, x.dtype, x.contents, view_of=0), Spec(x.shape, "bool")]


@shape("Constant")
def constant(call: Call) -> list[Spec]:
    """A stored tensor, or numbers."""
    for name, value in call.node.attributes.items():
        if isinstance(value, Stored):
            return [Spec(value.shape, value.dtype, value.contents)]
        dtype = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
        listed = value if isinstance(value, tuple) else (value,)
        shape: tuple[int, ...] = (len(listed),) if isinstance(value, tuple) else ()
        found = array(listed, shape) if len(listed) <= FEW else None
        return [Spec(shape, dtype.get(name, "string"), found)]
    raise call.fail("it has no value")


def dims_of(call: Call, index: int, hint: Sequence[int] = ()) -> tuple[int, ...]:
    """Return a shape that is an input; its elements that are not known are symbols."""
    value = call.x(index)
    known = call.content(index)
    if known is None:
        rank = int(count(value.shape))
        if not 0 <= rank <= 64:
            raise call.fail(f"a shape of {rank} elements")
        known = [None] * rank
    fallback = list(hint) if len(hint) == len(known) else [1] * len(known)
    dims = [call.symbol(f"dim{i}", fallback[i]) if n is None else n for i, n in enumerate(known)]
    if any(not isinstance(n, int) or int(n) < 0 for n in dims):
        raise call.fail(f"the shape {dims}")
    return tuple(dims)


@shape("ConstantOfShape")
def filled(call: Call) -> list[Spec]:
    """A tensor of the shape that is given, all elements the same."""
    dims, value = dims_of(call, 0), call.attr("value")
    element: Any = 0
    dtype = "float32"
    if isinstance(value, Stored):
        dtype = value.dtype
        element = value.contents.flat[0] if value.contents is not None and value.contents.size else None
    total = count(dims)
    return [Spec(dims, dtype, array([element] * int(total), dims) if total <= FEW else None)]


@shape("Range")
def numbered(call: Call) -> list[Spec]:
    """Numbers from start to limit."""
    parts = [call.content(i) for i in range(3)]
    start, limit, step = (part[0] if part else None for part in parts)
    if start is None or limit is None or step is None:
        return [Spec((call.symbol("length", 1),), call.x().dtype)]
    if step == 0:
        raise call.fail("a step of 0")
    length = -((start - limit) // step) if isinstance(step, int) else max(0, int(-((start - limit) // step)))
    if int(length) < 0:
        length = 0
    found = array([start + i * step for i in range(int(length))]) if length <= FEW else None
    return [Spec((length,), call.x().dtype, found)]


@shape("RandomNormal RandomUniform")
def drawn(call: Call) -> list[Spec]:
    """Random numbers of a shape."""
    return [Spec(tuple(call.attr("shape", ())), DTYPES.get(call.attr("dtype", 1), "float32"))]


@shape("EyeLike")
def eye(call: Call) -> list[Spec]:
    """A matrix with ones."""
    return [like(call.x(), dtype=DTYPES.get(call.attr("dtype", 0), call.x().dtype))]


@shape("HannWindow HammingWindow BlackmanWindow")
def window(call: Call) -> list[Spec]:
    """A window function."""
    size = call.content(0)
    length = size[0] if size and size[0] is not None else call.symbol("length", 1)
    return [Spec((length,), DTYPES.get(call.attr("output_datatype", 1), "float32"))]


@shape("MelWeightMatrix")
def mel(call: Call) -> list[Spec]:
    """A matrix from frequencies to bins of the mel scale."""
    bins, length = call.content(0), call.content(1)
    columns = bins[0] if bins and bins[0] is not None else call.symbol("bins", 1)
    rows = length[0] // 2 + 1 if length and length[0] is not None else call.symbol("rows", 1)
    return [Spec((rows, columns), DTYPES.get(call.attr("output_datatype", 1), "float32"))]


@shape("Multinomial")
def multinomial(call: Call) -> list[Spec]:
    """Samples of every row."""
    return [Spec((call.ranked(0, 1).shape[0], call.attr("sample_size", 1)), DTYPES.get(call.attr("dtype", 6), "int32"))]


@shape("StringConcat StringNormalizer RegexFullMatch")
def strings(call: Call) -> list[Spec]:
    """Text, element by element."""
    x = call.x()
    return [like(x, dtype="bool" if call.node.type == "RegexFullMatch" else "string")]


@shape("SwiGLU")
def swiglu(call: Call) -> list[Spec]:
    """A gate times a half."""
    x = call.ranked(0, 1)
    if call.given(1) is not None:
        return [like(x)]
    axis = call.axis(call.attr("axis", -1), x.rank)
    return [like(x, shape=tuple(n // 2 if i == axis else n for i, n in enumerate(x.shape)))]


def contents_of(value: Value) -> list[Any]:
    """List the contents, or as many unknown elements."""
    if value.contents is not None:
        return list(value.contents.flat)
    return [None] * int(count(value.shape)) if count(value.shape) <= FEW else []
