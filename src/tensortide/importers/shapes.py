"""Arithmetic of shapes for importers that compute them: broadcasting, products, windows, joining and cutting.

A size is an integer, an integer with its expression, or an expression whose symbols are still being solved. What holds
between two sizes, the importer's ``Sizes`` say: ``PLAIN`` compares them, TensorFlow's learn that they are one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from tensortide.cost.families.einsum import indices
from tensortide.cost.opcall import qualified
from tensortide.cost.registry import find
from tensortide.expr import Expr, Size

N = TypeVar("N", int, Expr)
"""A size: ``int`` or ``Expr``."""
F = TypeVar("F", bound=Callable[..., Any])


class ShapeError(Exception):
    """Sizes do not fit; the message says which. Importers add the file and the place."""


class Sizes(Protocol[N]):
    """The facts that an importer has of its sizes."""

    def equal(self, a: N, b: N) -> N:
        """Return the one size that both must be. Raises ShapeError."""

    def number(self, size: N) -> int | Fraction:
        """Return the value of a size."""

    def stored(self, size: N) -> bool:
        """Tell whether a size has a value, and not just an example of one."""


class Plain:
    """Sizes that are integers. One with an expression says more than one without."""

    def equal(self, a: int, b: int) -> int:
        """Return the one size that both are."""
        if int(a) != int(b):
            raise ShapeError(f"the sizes {int(a)} and {int(b)} do not match")
        return b if isinstance(b, Size) and not isinstance(a, Size) else a

    def number(self, size: int) -> int:
        """Return the value of a size."""
        return int(size)

    def stored(self, size: int) -> bool:
        """Return True: any integer is a value."""
        return True


PLAIN = Plain()


class Table(dict[str, F]):
    """Shape functions by the names of ops."""

    def rows(self, names: str, domain: str = "") -> Callable[[F], F]:
        """Register the decorated function for ops, separated by spaces. Raises ValueError for a second."""

        def register(function: F) -> F:
            for name in names.split():
                key = f"{domain}::{name}" if domain else name
                if key in self:
                    raise ValueError(f"{key} has two shape functions")
                self[key] = function
            return function

        return register


def plain(shape: Iterable[int]) -> tuple[int, ...]:
    """Return sizes as numbers, for messages and arrays."""
    return tuple(map(int, shape))


# --- axes ----------------------------------------------------------------------------------------------


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front. Raises ShapeError if there is no such axis."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def layout(rank: int, channels_first: bool) -> tuple[int, range]:
    """Return the axis of channels and those of space; axis 0 is the batch."""
    return (1, range(2, rank)) if channels_first else (rank - 1, range(1, rank - 1))


def replaced(shape: tuple[N, ...], axis: int, *dims: N) -> tuple[N, ...]:
    """Return ``shape`` with ``dims`` for the one of ``axis``."""
    return shape[:axis] + dims + shape[axis + 1 :]


def inserted(shape: tuple[N, ...], axis: int, *dims: N) -> tuple[N, ...]:
    """Return ``shape`` with ``dims`` before the one of ``axis``."""
    return shape[:axis] + dims + shape[axis:]


def reduced(shape: tuple[N, ...], axes: Collection[int], *kept: N) -> tuple[N, ...]:
    """Return ``shape`` without ``axes``, or with ``kept`` for each of them."""
    return tuple(dim for i, n in enumerate(shape) for dim in (kept if i in axes else (n,)))


def unsqueezed(shape: tuple[N, ...], axes: Collection[int], one: N) -> tuple[N, ...]:
    """Return ``shape`` with ``one`` at ``axes`` of the result."""
    rest = iter(shape)
    return tuple(one if i in axes else next(rest) for i in range(len(shape) + len(axes)))


def permuted(shape: tuple[N, ...], order: Sequence[int]) -> tuple[N, ...]:
    """Return the dimensions in another order. Raises ShapeError for one that is no permutation."""
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"the order {tuple(order)} of {len(shape)} dimensions")
    return tuple(shape[axis] for axis in order)


def diagonal(rows: int, columns: int, offset: int = 0) -> int:
    """Return the length of the diagonal of a matrix that is ``offset`` columns to the right."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


# --- several shapes ------------------------------------------------------------------------------------


def joined(sizes: Sizes[N], a: N, b: N) -> N:
    """Return the size that two sizes broadcast to. One that is 1 gives way; a symbol that happens to be 1 gives way to
    what is not 1; others are one size."""
    for one, other in ((b, a), (a, b)):
        if one == 1 and not isinstance(one, Size):
            return other
    for one, other in ((a, b), (b, a)):
        if sizes.number(one) == 1 != sizes.number(other) and sizes.stored(one):
            return other
    return sizes.equal(a, b)


def broadcast(sizes: Sizes[N], *shapes: tuple[N, ...]) -> tuple[N, ...]:
    """Return the shape that shapes broadcast to. Raises ShapeError if there is none."""
    made: tuple[N, ...] = ()
    for shape in shapes:
        longer = len(made) - len(shape)
        here, there = max(longer, 0), max(-longer, 0)
        pairs = zip(made[here:], shape[there:], strict=True)
        made = made[:here] + shape[:there] + tuple(joined(sizes, a, b) for a, b in pairs)
    return made


def same(sizes: Sizes[N], a: tuple[N, ...], b: tuple[N, ...]) -> tuple[N, ...]:
    """Return the one shape that both must be. Raises ShapeError."""
    if len(a) != len(b):
        raise ShapeError(f"{len(a)} and {len(b)} dimensions")
    return tuple(sizes.equal(x, y) for x, y in zip(a, b, strict=True))


def of_family(op: str) -> Callable[[Sizes[N], Iterable[tuple[N, ...]]], tuple[N, ...]] | None:
    """Return how the shape of the result of ``op`` follows from those of its operands, as the family of its cost says;
    None where more decides."""
    return _OF_FAMILY.get(said(op))


def said(op: str) -> str:
    """Return what the family of the cost of ``op`` says of the shape of its result: see ``Rule.shape``."""
    rule = find(qualified(op))
    return "" if rule is None else rule.shape


_OF_FAMILY: dict[str, Callable[[Any, Iterable[Any]], Any]] = {
    "broadcast": lambda sizes, shapes: broadcast(sizes, *shapes),
    "first": lambda sizes, shapes: next(iter(shapes)),
}


def concatenated(sizes: Sizes[N], shapes: Sequence[tuple[N, ...]], axis: int) -> tuple[N, ...]:
    """Return the shape of tensors joined along an axis; all else is equal. Raises ShapeError."""
    first = shapes[0]
    length = first[axis]
    for shape in shapes[1:]:
        same(sizes, replaced(first, axis), replaced(shape, axis))
        length = length + shape[axis]
    return replaced(first, axis, length)


# --- products ------------------------------------------------------------------------------------------


def product(sizes: Sizes[N], a: tuple[N, ...], b: tuple[N, ...]) -> tuple[N, ...]:
    """Return the shape of a matrix product; a vector has no dimension of its own in it. Raises ShapeError."""
    if not a or not b:
        raise ShapeError("a product of matrices, and one of them is a number")
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    sizes.equal(a[-1], b[-2] if len(b) > 1 else b[0])
    return broadcast(sizes, a[:-2], b[:-2]) + rows + columns


def einsum(
    sizes: Sizes[N], equation: str, shapes: Sequence[tuple[N, ...]], meet: Callable[[N, N], N] | None = None
) -> tuple[N, ...]:
    """Return the shape of a sum of products in Einstein's notation. Sizes of one letter broadcast, or ``meet``. Raises
    ShapeError."""
    try:
        terms, result = indices(equation, [*map(len, shapes)])
    except ValueError as error:
        raise ShapeError(str(error)) from None
    found: dict[str, N] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, N] = {}
        for letter, dim in zip(term, shape, strict=True):  # a diagonal has both of its dimensions in full
            own[letter] = sizes.equal(own[letter], dim) if letter in own else dim
        for letter, dim in own.items():
            known = found.setdefault(letter, dim)
            found[letter] = joined(sizes, known, dim) if meet is None or not letter.isascii() else meet(known, dim)
    if missing := [letter for letter in result if letter not in found]:
        raise ShapeError(f"its result has the index {missing[0]}, which no operand has")
    return tuple(found[letter] for letter in result)


# --- windows -------------------------------------------------------------------------------------------


def positions(size: N, window: N, stride: int = 1, dilation: int = 1, same: bool = False) -> N:
    """Count the places of a window along an axis: ``ceil(n/s)`` where it is padded for that, ``floor((n - k)/s) + 1``
    else."""
    return -(-size // stride) if same else (size - (window - 1) * dilation - 1) // stride + 1


def spread(size: N, window: N, stride: int, dilation: int = 1) -> N:
    """Return the size that ``size`` windows cover: that of a transposed convolution without padding."""
    return (size - 1) * stride + (window - 1) * dilation + 1


def blocks_moved(shape: tuple[N, ...], block: int, channel: int, space: Collection[int], into: bool) -> tuple[N, ...]:
    """Return ``shape`` with blocks of space moved into channels, or out of them."""
    dims, count = list(shape), block ** len(space)
    for axis in space:
        dims[axis] = dims[axis] // block if into else dims[axis] * block
    dims[channel] = dims[channel] * count if into else dims[channel] // count
    return tuple(dims)


def padded(shape: tuple[N, ...], edges: Iterable[tuple[int, N, N]]) -> tuple[N, ...]:
    """Return ``shape`` with as much more at both ends as ``edges`` say of axes."""
    dims = list(shape)
    for axis, before, after in edges:
        dims[axis] = dims[axis] + before + after
    return tuple(dims)
