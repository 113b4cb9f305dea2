"""Shapes of element-by-element ops, casts and ops that make tensors from nothing."""

from __future__ import annotations

from typing import Any

from tensortide.importers.onnx.contents import BINARY, array, cast, mapped
from tensortide.importers.onnx.names import op_name
from tensortide.importers.onnx.read import Stored
from tensortide.importers.onnx.shapes.base import Call, count, shape
from tensortide.importers.onnx.shapes.reductions import reduction
from tensortide.importers.onnx.value import FEW, Spec
from tensortide.importers.shapes import PLAIN, ShapeError, of_family, replaced, said

COMPARING = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor")
ARITY = {**dict.fromkeys(COMPARING, 2), "Where": 3, "Clip": 1}
"""Inputs that make the shape of ops that take so many; of others all do."""


def of_elements(call: Call) -> Spec | None:
    """Describe the output of an op whose family says how its shape follows from its inputs; comparisons are booleans.
    None for any other op."""
    name = op_name(call.node)
    if said(name) == "reduced":
        return reduction(call)
    combine = of_family(name)
    if combine is None:
        return None
    kind = call.node.type
    places = range(ARITY.get(kind, len(call.inputs) or 1))
    values = [call.x(i) for i in places if i < 1 or kind in BINARY or call.given(i) is not None]
    contents = mapped(BINARY[kind], *(value.contents for value in values)) if kind in BINARY else None
    dtype = "bool" if kind in COMPARING else call.dtype("dtype", call.x(kind == "Where").dtype)
    return Spec(combine(PLAIN, [value.shape for value in values]), dtype, contents)


@shape("Hardmax LpNormalization ReverseSequence Trilu Bernoulli RandomNormalLike RandomUniformLike")
def same(call: Call) -> Spec:
    """One output like the first input."""
    return call.like(dtype=call.dtype("dtype", call.x().dtype))


@shape("Cast CastLike")
def casted(call: Call) -> Spec:
    """Another dtype: as named, or of the second input."""
    dtype = call.dtype("to", "") if call.node.type == "Cast" else call.x(1).dtype
    return call.like(dtype=dtype, contents=cast(call.x().contents, dtype))


@shape("Dropout")
def dropout(call: Call) -> list[Spec]:
    """In inference the input itself, and a mask that keeps all."""
    x = call.x()
    return [Spec(x.shape, x.dtype, x.contents, view_of=0), call.like(dtype="bool")]


def constant(call: Call) -> Spec:
    """A stored tensor, or numbers."""
    for name, value in call.node.attributes.items():
        if isinstance(value, Stored):
            return Spec(value.shape, value.dtype, value.contents)
        dtype = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
        listed = value if isinstance(value, tuple) else (value,)
        dims: tuple[int, ...] = (len(listed),) if isinstance(value, tuple) else ()
        return Spec(dims, dtype.get(name, "string"), array(listed, dims) if len(listed) <= FEW else None)
    raise ShapeError("it has no value")


@shape("ConstantOfShape")
def filled(call: Call) -> Spec:
    """A tensor of the shape that is given, all elements the same."""
    dims, value = call.sizes(0), call.attr("value")
    element: Any = 0
    dtype = "float32"
    if isinstance(value, Stored):
        dtype = value.dtype
        element = value.contents.flat[0] if value.contents is not None and value.contents.size else None
    total = count(dims)
    return Spec(dims, dtype, array([element] * int(total), dims) if total <= FEW else None)


@shape("Range")
def numbered(call: Call) -> Spec:
    """Numbers from start to limit."""
    parts = [call.content(i) for i in range(3)]
    start, limit, step = (part[0] if part else None for part in parts)
    if start is None or limit is None or step is None:
        return call.like((call.symbol("length", 1),))
    if step == 0:
        raise ShapeError("a step of 0")
    length = -((start - limit) // step) if isinstance(step, int) else max(0, int(-((start - limit) // step)))
    if int(length) < 0:
        length = 0
    found = array([start + i * step for i in range(int(length))]) if length <= FEW else None
    return call.like((length,), contents=found)


@shape("MelWeightMatrix")
def mel(call: Call) -> Spec:
    """A matrix from frequencies to bins of the mel scale."""
    columns, length = call.size(0, "bins"), call.content(1)
    rows = length[0] // 2 + 1 if length and length[0] is not None else call.symbol("rows", 1)
    return Spec((rows, columns), call.dtype("output_datatype"))


@shape("SwiGLU")
def swiglu(call: Call) -> Spec:
    """A gate times a half, which may be a tensor of its own."""
    x = call.ranked(0, 1)
    if call.given(1) is not None:
        return call.like()
    axis = call.axis_attr(x.rank)
    return call.like(replaced(x.shape, axis, x.shape[axis] // 2))


shape("Constant")(constant)
shape("IsInf IsNaN RegexFullMatch")(lambda call: call.like(dtype="bool"))
shape("StringConcat StringNormalizer")(lambda call: call.like(dtype="string"))
shape("BitCast")(lambda call: call.like(dtype=call.dtype("to", "")))
shape("EyeLike")(lambda call: call.like(dtype=call.dtype("dtype", call.x().dtype)))
shape("RandomNormal RandomUniform")(lambda call: Spec(tuple(call.attr("shape", ())), call.dtype("dtype")))
shape("Multinomial")(
    lambda call: Spec((call.ranked(0, 1).shape[0], call.attr("sample_size", 1)), call.dtype("dtype", "int32"))
)
shape("HannWindow HammingWindow BlackmanWindow")(
    lambda call: Spec((call.size(0, "length"),), call.dtype("output_datatype"))
)
