"""The table of shape functions, and the node as such a function sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from tensortide.expr import Size
from tensortide.importers.onnx.contents import flat
from tensortide.importers.onnx.read import Node
from tensortide.importers.onnx.value import Contents, OnnxError, Settings, Spec, Value


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
            raise self.fail(f"its attribute {name} is {value!r}")
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise self.fail(f"its attribute {name} is {value!r}")
        return value

    def given(self, index: int) -> Value | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def x(self, index: int = 0) -> Value:
        """Return a required input, which is a tensor."""
        value = self.given(index)
        if value is None or value.items is not None:
            raise self.fail(f"input {index} is missing, or no tensor")
        return value

    def ranked(self, index: int, least: int, most: int = 1 << 10) -> Value:
        """Return a required input with so many dimensions."""
        value = self.x(index)
        if not least <= value.rank <= most:
            raise self.fail(f"input {index} has the shape {value.shape}")
        return value

    def content(self, index: int) -> list[Any] | None:
        """List the elements of an input; None if they are not known, or it is omitted."""
        value = self.given(index)
        return None if value is None else flat(value.contents)

    def integers(self, index: int, name: str) -> tuple[int, ...] | None:
        """Return integers that newer opsets give as an input and older ones as an attribute; None if not given.
        Raises OnnxError where they are given and not known."""
        value = self.given(index)
        if value is None:
            found = self.attr(name)
            return found if found is None or isinstance(found, tuple) else (int(found),)
        elements = flat(value.contents)
        if elements is None or any(not isinstance(element, int) for element in elements):
            raise self.fail(f"its {name} depend on data")
        return tuple(elements)

    def axis(self, value: int, rank: int) -> int:
        """Return an axis counted from the front. Raises OnnxError for one that is not there."""
        if not -rank <= value < max(rank, 1):
            raise self.fail(f"axis {value} of {rank} dimensions")
        return value % rank if rank else 0

    def symbol(self, what: str, hint: int) -> int:
        """Return a size that depends on data: a symbol named after the node."""
        base = self.node.name or (self.node.outputs[0] if self.node.outputs else self.node.type)
        return self.settings.size(f"{base}.{what}", int(hint), "it depends on data")

    def broadcast(self, *shapes: Sequence[int]) -> tuple[int, ...]:
        """Return the common shape. Raises OnnxError if there is none."""
        rank = max(map(len, shapes), default=0)
        padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
        return tuple(self._joined(dims, shapes) for dims in zip(*padded, strict=True))

    def _joined(self, dims: Sequence[int], shapes: Sequence[Sequence[int]]) -> int:
        """One dimension: the one that is not 1; a symbol is taken for no 1, whatever its value."""
        numbers = {int(dim) for dim in dims} - {1}
        if len(numbers) > 1:
            raise self.fail(f"the shapes {' and '.join(str(tuple(map(int, shape))) for shape in shapes)} do not match")
        real = [dim for dim in dims if int(dim) in numbers] or [dim for dim in dims if isinstance(dim, Size)]
        return next((dim for dim in real if isinstance(dim, Size)), real[0]) if real else 1


Shape: TypeAlias = Callable[[Call], Sequence[Spec]]
F = TypeVar("F", bound=Shape)

SHAPES: dict[str, Shape] = {}
"""Shape functions by op type, with the domain if it is not the standard one."""


def shape(names: str, domain: str = "") -> Callable[[F], F]:
    """Register the decorated shape function for the op types ``names``, separated by spaces."""

    def register(function: F) -> F:
        for name in names.split():
            key = f"{domain}::{name}" if domain else name
            if key in SHAPES:
                raise KeyError(key)
            SHAPES[key] = function
        return function

    return register


def like(value: Value, **changes: Any) -> Spec:
    """Describe an output of the same shape and dtype."""
    return Spec(changes.get("shape", value.shape), changes.get("dtype", value.dtype), changes.get("contents"))


def count(shape: Sequence[int]) -> int:
    """Number of elements."""
    return math.prod(shape)


def sizes(contents: Contents | None) -> list[Any] | None:
    """List contents that are sizes."""
    return flat(contents)
