"""The table of shape functions and what they are given: an op with its inputs, and the sizes known so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from tensortide.expr import Expr, constant, maximum
from tensortide.importers.shapes import ShapeError, Table, axis_of, same
from tensortide.importers.tensorflow.program import Attribute, Shape, stated_shapes
from tensortide.importers.tensorflow.sizes.unify import Origin, Sizes

__all__ = [
    "FEW_POSITIONS", "MOST_VALUES", "ONE", "REST", "TABLE", "Op", "Result", "State", "Tensor", "Unknown", "product",
    "shape_of", "vector",
]  # fmt: skip

ONE = constant(1)
REST = constant(-1)
"""Among the target's dims of a reshape, or the extents of a slice: what is left."""

MOST_VALUES = 64
"""Longer whole-number tensors are data, not sizes."""

FEW_POSITIONS = 8
"""Vectors of whole numbers up to this length are positions or dims: their length is a number, no size."""


class Unknown(Exception):
    """A shape function needs what is not known: the rank of an input, or its values."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The facts known of an output: its shape (None: not even the rank), its elements where it is a small whole-number
    tensor (flattened), and the node that made the stack, array or variable that it is a handle of."""

    shape: Shape | None = None
    values: tuple[Expr, ...] | None = None
    handle: int = -1


Result: TypeAlias = Shape | Tensor | list[Tensor]
"""The shape of the only output, all that is known of it, or of all outputs."""

Function: TypeAlias = Callable[["Op"], Result]
T = TypeVar("T", bool, int, str, tuple[int, ...])

TABLE: Table[Function] = Table()


shape_of = TABLE.rows


def product(dims: Iterable[Expr]) -> Expr:
    """Return the product of dims."""
    return math.prod(dims, start=ONE)


def vector(values: Iterable[Expr]) -> Tensor:
    """Return a vector of known elements."""
    values = tuple(values)
    return Tensor((constant(len(values)),), values)


@dataclass(slots=True)
class State:
    """The facts known of what handles stand for, by the node that made it: shapes of variables and of array elements,
    lengths of arrays, which of those grow with what is written, what is pushed on stacks and put in queues; loop
    variables' dims that change;
    lengths of tables that are looked up, with their other dims (``rows``), and of those that are cut."""

    elements: dict[int, Shape | None] = field(default_factory=dict)
    lengths: dict[int, Expr] = field(default_factory=dict)
    growing: set[int] = field(default_factory=set)
    pushed: dict[int, Tensor] = field(default_factory=dict)
    queued: dict[int, tuple[Shape | None, ...]] = field(default_factory=dict)
    varying: set[tuple[int, int]] = field(default_factory=set)
    rows: list[tuple[Expr, Shape]] = field(default_factory=list)
    cut: list[Expr] = field(default_factory=list)

    def has_length(self, array: int, length: Expr, sizes: Sizes) -> None:
        """Learn a length of an array: of one that grows the largest, where it is certain which that is."""
        known, length = sizes.now(self.lengths.setdefault(array, length)), sizes.now(length)
        if array in self.growing and known != length:
            derived = {name for side in (known, length) for name in side.symbols & sizes.unstored}
            most = maximum(known, length)
            if most not in (known, length) and any(sizes.origins[name] is Origin.DERIVED for name in derived):
                most = sizes.equal(known, length)
            self.lengths[array] = most
        else:
            sizes.equal_if_alike(known, length)


@dataclass(slots=True)
class Op:
    """A node in the hands of its shape function. ``outputs`` is how many outputs others see of it, ``exact`` whether
    padding counts (False: sizes are divided by strides, as the ``catamount`` table has it), ``loops`` whether a back
    edge comes in."""

    number: int
    name: str
    type: str
    attributes: Mapping[str, Attribute]
    inputs: list[Tensor]
    outputs: int
    sizes: Sizes
    state: State
    exact: bool = True
    loops: bool = False

    def known(self, i: int) -> bool:
        """Tell whether input ``i`` exists and its rank is known."""
        return i < len(self.inputs) and self.inputs[i].shape is not None

    def shape(self, i: int) -> Shape:
        """Return the shape of input ``i``. Raises Unknown."""
        if i >= len(self.inputs):
            raise ShapeError(f"{len(self.inputs)} inputs and at least {i + 1}")
        return self._now(self.inputs[i].shape)

    def values(self, i: int) -> tuple[Expr, ...]:
        """Return the elements of input ``i``. Raises Unknown."""
        return self._now(self.inputs[i].values if i < len(self.inputs) else None)

    def _now(self, found: tuple[Expr, ...] | None) -> tuple[Expr, ...]:
        if found is None:
            raise Unknown
        return tuple(map(self.sizes.now, found))

    def numbers(self, i: int) -> tuple[int, ...]:
        """Return the elements of input ``i`` as numbers: for axes and positions. Raises Unknown."""
        return tuple(map(self.int_of, self.values(i)))

    @property
    def handle(self) -> int:
        """The node that made what the first input is a handle of."""
        return self.inputs[0].handle

    def element(self) -> Shape:
        """Return the shape of the variable or of the elements that the first input is a handle of. Raises Unknown."""
        return self._now(self.state.elements.get(self.handle))

    def variable(self) -> Shape:
        """Return the shape of the variable that the first input is, or is a handle of. Raises Unknown."""
        return self.shape(0) if self.state.elements.get(self.handle) is None else self.element()

    def length(self) -> Expr | None:
        """Return the length of the array that the first input is a handle of, if it is known."""
        length = self.state.lengths.get(self.handle)
        return None if length is None else self.sizes.now(length)

    def learn_element(self, shape: Shape) -> None:
        """Learn that elements of the array that the first input is a handle of have this shape."""
        known = self.state.elements.get(self.handle)
        self.state.elements[self.handle] = shape if known is None else self.same(known, shape)

    def learn_length(self, i: int) -> None:
        """Learn that the array that this op makes has as many elements as input ``i`` says, if it says so; one that
        grows, at least as many."""
        stated = None if self.inputs[i].values is None else self.values(i)[0]
        if stated == 0 or self.attribute("dynamic_size", False):
            self.state.growing.add(self.number)
        if stated is not None and stated != 0:
            self.state.has_length(self.number, stated, self.sizes)

    def attribute(self, name: str, default: T) -> T:
        """Return an attribute; ``default`` where it is not there, or of another type."""
        value = self.attributes.get(name)
        return value if isinstance(value, type(default)) else default

    def axis(self, value: int, rank: int) -> int:
        """Return an axis counted from the front. Raises ShapeError if the tensor has no such axis."""
        return axis_of(value, rank)

    def int_of(self, expr: Expr) -> int:
        """Return the value of ``expr`` in the file. Raises Unknown where it has none."""
        value = self.sizes.number(expr)
        if not isinstance(value, int):
            raise Unknown
        return value

    def equal(self, a: Expr, b: Expr) -> Expr:
        """Learn that two sizes are one."""
        return self.sizes.equal(a, b)

    def same(self, a: Shape, b: Shape) -> Shape:
        """Learn that two shapes are one. Raises ShapeError."""
        return same(self.sizes, a, b)

    def unknown(self, output: int, dim: int) -> Expr:
        """Return a size that cannot be derived: a symbol that is listed."""
        return self.sizes.new(f"{self.name}:{output}::dim_{dim}", None, Origin.DERIVED)

    def stored(self, output: int) -> Shape | None:
        """Return the shape that the file states for an output."""
        shapes = stated_shapes(self.attributes)
        return self.stated(shapes[output], output) if output < len(shapes) else None

    def stated(
        self, shape: Attribute, output: int, origin: Origin = Origin.DERIVED, unknown: Origin | None = None
    ) -> Shape | None:
        """Turn the shape of an output into sizes: symbols of ``origin``, or ``unknown`` and of no value where it has
        -1."""
        if not isinstance(shape, tuple):
            return None
        name, sizes = f"{self.name}:{output}::dim_", []
        for i, n in enumerate(shape):
            if not isinstance(n, int) or n < 0:
                sizes.append(self.sizes.new(f"{name}{i}", None, origin if unknown is None else unknown))
            else:
                sizes.append(constant(n) if n < 2 else self.sizes.new(f"{name}{i}", n, origin))
        return tuple(sizes)

    def fed(self, attribute: str) -> list[Tensor]:
        """Return outputs that are fed, of the shapes that an attribute lists. Raises Unknown."""
        shapes = self.attributes.get(attribute)
        if not isinstance(shapes, tuple):
            raise Unknown
        return [Tensor(self.stated(shape, i, Origin.STORED_FEED, Origin.FEED)) for i, shape in enumerate(shapes)]
