"""Shapes of what operations of ``keras.ops`` return, by their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Shape
from tensortide.importers.shapes import PLAIN, ShapeError, Table, axis_of, of_family, reduced, said

MOST_RESULTS = 10_000
"""Results of one call of a layer, at most."""


@dataclass(frozen=True)
class Operation:
    """One call of an operation: its class, its description, and its arguments in the order of its signature, with
    Handles for tensors."""

    kind: str
    config: Mapping[str, Any]
    arguments: Sequence[Any]

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an argument: of a tensor, of lists of numbers, or of a number."""
        return shape_of(self.arguments[index])

    @property
    def x(self) -> Shape:
        """The shape of the first argument."""
        return self.shape()

    @property
    def listed(self) -> list[Shape]:
        """The shapes of the tensors of which the first argument is a list."""
        return [shape_of(value) for value in self.arguments[0]]

    def axis(self, rank: int, name: str = "axis") -> int:
        """Return an axis of the description, counted from the front."""
        return axis_of(self.config[name], rank)

    def axes(self, rank: int, name: str = "axis") -> list[int]:
        """Return the axes of the description, counted from the front; None stands for all."""
        value = self.config[name]
        given = range(rank) if value is None else [value] if isinstance(value, int) else value
        found = [axis_of(axis, rank) for axis in given]
        if len({*found}) != len(found):
            raise ShapeError(f"its {name} is {value!r}, one of them twice")
        return found


Result: TypeAlias = "Shape | list[Shape]"
Function: TypeAlias = "Callable[[Operation], Result]"

_DTYPES = {
    name: dtype
    for dtype, names in {
        "bool": "All AllClose Any Equal Greater GreaterEqual InTopK IsIn Isclose Isfinite Isinf Isnan Isneginf "
        "Isposinf Isreal Less LessEqual LogicalAnd LogicalNot LogicalOr LogicalXor NotEqual Signbit",
        "int32": "Argmax Argmin Argpartition Argsort CountNonzero Digitize Nanargmax Nanargmin Ndim SearchSorted Size",
    }.items()
    for name in names.split()
}
"""Of operations whose results have one dtype, whatever they are given."""

SHAPES: Table[Function] = Table()
"""By the name of the class: the shape of the result, or a list of those of several."""

shape = SHAPES.rows


def shapes_of(call: Operation) -> list[Shape] | None:
    """Return the shapes of the results of an operation; None where its description and arguments do not tell."""
    function = SHAPES.get(call.kind) or _of_family(call)
    if function is None:
        return None
    try:
        made = function(call)
    except (ShapeError, KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError):
        return None
    found = made if isinstance(made, list) else [made]
    sizes: list[Any] = [n for dims in found for n in dims]  # a description may have anything for a number
    return found if len(found) <= MOST_RESULTS and all(isinstance(n, int) and n >= 0 for n in sizes) else None


def dtype_of(call: Operation, index: int) -> str:
    """Return the dtype of a result; empty where the operation and its tensors do not tell. Whole numbers and truth
    values take the dtype of the floating-point numbers that they meet."""
    given = call.config.get("dtype")
    if isinstance(given, str):
        return given
    if call.kind in _DTYPES:
        return _DTYPES[call.kind]
    if call.kind == "TopK" and index:
        return "int32"
    tensors = [one for value in call.arguments for one in (value if isinstance(value, list) else [value])]
    found = {one.dtype for one in tensors if isinstance(one, Handle) and "float" in one.dtype}
    return found.pop() if len(found) == 1 and (call.kind in SHAPES or _of_family(call)) else ""


def _of_family(call: Operation) -> Function | None:
    """Return the shape function that the family of an operation has; None where more decides."""
    name = f"keras.ops_{call.kind}"
    if said(name) == "reduced":
        return reduced_shape
    combine = of_family(name)
    if combine is None:
        return None
    return lambda call: combine(PLAIN, (shape_of(value) for value in call.arguments if value is not None))


def reduced_shape(call: Operation, name: str = "axis") -> Shape:
    """Return the shape of the first argument without axes, or with 1 for each of them."""
    return reduced(call.x, call.axes(len(call.x), name), *(1,) * bool(call.config.get("keepdims")))


def shape_of(value: Any) -> Shape:
    """Return the shape of an argument: of a tensor, of lists of numbers, or of a number."""
    if isinstance(value, Handle):
        return value.shape
    if isinstance(value, Mapping):  # an array or a tensor whose elements the file has
        return shape_of(value["config"]["value"])
    if isinstance(value, list | tuple):
        return (len(value), *(shape_of(value[0]) if value else ()))
    if isinstance(value, bool | int | float):
        return ()
    raise ShapeError(f"the argument {value!r}")
