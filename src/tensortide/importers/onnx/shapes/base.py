"""The table of shape functions, and the node as such a function sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensortide.importers.onnx.contents import flat
from tensortide.importers.onnx.read import DTYPES, Node
from tensortide.importers.onnx.value import MOST_DIMS, OnnxError, Settings, Spec, Value
from tensortide.importers.shapes import ShapeError, Table, axis_of


@dataclass(slots=True, eq=False)
class Call:
    """A node with its inputs; omitted ones are None. ``version`` is the opset of its domain."""

    node: Node
    inputs: Sequence[Value | None]
    version: int
    settings: Settings
    file: str
    place: str = ""

    def fail(self, text: str) -> OnnxError:
        """Return the error to raise for something wrong with this node."""
        return OnnxError(f"{self.file}: {self.place}{self.node}: {text}")

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, of the kind that the default has."""
        value = self.node.attributes.get(name)
        if value is None:
            return default
        if default is not None and isinstance(default, tuple) is not isinstance(value, tuple):
            raise ShapeError(f"its attribute {name} is {value!r}")
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise ShapeError(f"its attribute {name} is {value!r}")
        return value

    def given(self, index: int) -> Value | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def x(self, index: int = 0) -> Value:
        """Return a required input, which is a tensor."""
        value = self.given(index)
        if value is None or value.items is not None:
            raise ShapeError(f"input {index} is missing, or no tensor")
        return value

    def ranked(self, index: int, least: int, most: int = 1 << 10) -> Value:
        """Return a required input with so many dimensions."""
        value = self.x(index)
        if not least <= value.rank <= most:
            raise ShapeError(f"input {index} has the shape {value.shape}")
        return value

    def content(self, index: int) -> list[Any] | None:
        """List the elements of an input; None if they are not known, or it is omitted."""
        value = self.given(index)
        return None if value is None else flat(value.contents)

    def integers(self, index: int, name: str) -> tuple[int, ...] | None:
        """Return integers that newer opsets give as an input and older ones as an attribute; None if not given.
        Raises ShapeError where they are given and not known."""
        value = self.given(index)
        if value is None:
            found = self.attr(name)
            return found if found is None or isinstance(found, tuple) else (int(found),)
        elements = flat(value.contents)
        if elements is None or any(not isinstance(element, int) for element in elements):
            raise ShapeError(f"its {name} depend on data")
        return tuple(elements)

    def axis(self, value: int, rank: int) -> int:
        """Return an axis counted from the front; a number has the axis 0. Raises ShapeError."""
        return axis_of(value, rank) if rank or value else 0

    def axis_attr(self, rank: int, default: int = -1) -> int:
        """Return the attribute ``axis`` as one of ``rank`` dimensions."""
        return self.axis(self.attr("axis", default), rank)

    def dtype(self, name: str, default: str = "float32") -> str:
        """Return the dtype that an attribute names by its number; 0 is the default. Raises ShapeError for another
        that is none, and for 0 where the default is empty."""
        kind = self.attr(name, 0)
        found = DTYPES.get(kind, "" if kind else default)
        if not found:
            raise ShapeError(f"its attribute {name} is the unknown dtype {kind}")
        return found

    def symbol(self, what: str, hint: int) -> int:
        """Return a size that depends on data: a symbol named after the node."""
        base = self.node.name or (self.node.outputs[0] if self.node.outputs else self.node.type)
        return self.settings.size(f"{base}.{what}", int(hint), "it depends on data")

    def size(self, index: int, what: str, hint: int = 1) -> int:
        """Return the first element of an input as a size: a symbol if it is not known."""
        found = self.content(index)
        return found[0] if found and found[0] is not None else self.symbol(what, hint)

    def sizes(self, index: int, hint: Sequence[int] = ()) -> tuple[int, ...]:
        """Return a shape that is an input; its elements that are not known are symbols."""
        known = self.content(index)
        if known is None:
            rank = int(count(self.x(index).shape))
            if not 0 <= rank <= MOST_DIMS:
                raise ShapeError(f"a shape of {rank} elements")
            known = [None] * rank
        fallback = list(hint) if len(hint) == len(known) else [1] * len(known)
        dims = [self.symbol(f"dim{i}", fallback[i]) if n is None else n for i, n in enumerate(known)]
        if any(not isinstance(n, int) or int(n) < 0 for n in dims):
            raise ShapeError(f"the shape {dims}")
        return tuple(dims)

    def like(self, *shape: Sequence[int], index: int = 0, dtype: str = "", contents: Any = None) -> Spec:
        """Describe an output of the shape and dtype of an input, but for what is given."""
        x = self.x(index)
        return Spec(tuple(shape[0]) if shape else x.shape, dtype or x.dtype, contents)

    def viewed(self, dims: Sequence[int]) -> Spec:
        """Describe the first input in another shape."""
        x, shape = self.x(), tuple(map(int, dims))
        fits = x.contents is not None and x.contents.size == count(shape)
        return Spec(tuple(dims), x.dtype, x.contents.reshape(shape) if fits and x.contents is not None else None, 0)


Shape: TypeAlias = Callable[[Call], Spec | Sequence[Spec]]
"""A shape function: describes the only output, or all."""

SHAPES: Table[Shape] = Table()
"""Shape functions by op type, with the domain if it is not the standard one."""

shape = SHAPES.rows


def count(shape: Sequence[int]) -> int:
    """Number of elements."""
    return math.prod(shape)
