"""Contractions in index notation: einsum. Counting convention: docs/cost.md, matrix products."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.cost.families.products import product
from tensortide.cost.families.table import family
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Rule
from tensortide.expr import Size
from tensortide.graph.model import Tensor

ELLIPSIS = "..."
_TERM = re.compile(r"[^\W\d_]*(\.\.\.)?[^\W\d_]*")
_LEFT_TO_RIGHT = "order: operands from left to right"


class Operand(NamedTuple):
    """The dimensions of an operand, or of a product of some, by index."""

    sizes: dict[str, int]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes.values())


@family("contraction")
def einsum(operands: str = "", *, bias: str = "", squeezed: bool = False) -> Rule:
    """A sum of products in the notation of the attribute ``equation``, of all tensors given or of ``operands``.
    ``squeezed``: dimensions of 1 that the result lacks are left out first, so that nothing is contracted along them."""

    def work(op: OpCall) -> Cost | None:
        """Operands two by two, along the path given: indices of one operand alone are summed before."""
        tensors = [op.operand(name) for name in operands.split()] or op.tensors("tensors") or op.inputs
        try:
            terms, result = indices(str(op.arg("equation", "")), [len(tensor.shape) for tensor in tensors])
        except ValueError:
            return None
        parts, kept = [*map(_sized, terms, tensors)], frozenset(result)
        if squeezed:
            parts = [Operand({i: n for i, n in part.sizes.items() if i in kept or not _is_one(n)}) for part in parts]
        path = op.arg("path", ())
        macs, adds = _contracted(parts, kept, path if len(path) == 2 * len(tensors) - 2 else ())
        op.let(indices=len(set("".join(terms))))
        cost = product(op, macs, adds + (op.out.numel if bias and op.has(bias) else 0))
        return cost if len(tensors) < 3 or path else cost + Cost(exact=False, reason=_LEFT_TO_RIGHT)

    formula = "sizes of all indices multiplied, as MACs where one is contracted, else E mul; + adds of private indices"
    return Rule("", formula, work)


def _contracted(parts: list[Operand], kept: frozenset[str], path: Sequence[int]) -> tuple[int, int]:
    """MACs and other FLOPs of contracting two parts at a time."""
    macs = adds = 0
    for number in range(len(parts) - 1):
        first, second = path[2 * number : 2 * number + 2] or (0, 1)
        a, b = parts[first], parts[second]
        parts = [part for place, part in enumerate(parts) if place not in (first, second)]
        result, products, sums = _pair(a, b, kept.union(*(part.sizes for part in parts)))
        macs, adds = macs + products, adds + sums
        parts.insert(len(parts) if path else 0, result)
    (last,) = parts
    return macs, adds + last.elements - math.prod(size for index, size in last.sizes.items() if index in kept)


def _pair(a: Operand, b: Operand, later: frozenset[str]) -> tuple[Operand, int, int]:
    """The product of two operands whose indices ``later`` stay: its dimensions, MACs, and other FLOPs."""
    work, left = 0, []
    for one, other in ((a, b), (b, a)):
        sizes = {i: size for i, size in one.sizes.items() if i in later or i in other.sizes}
        work += one.elements - math.prod(sizes.values())
        left.append(sizes)
    both = left[0] | left[1] | {i: _wider(left[0][i], left[1][i]) for i in left[0].keys() & left[1].keys()}
    result = Operand({index: size for index, size in both.items() if index in later})
    whole = math.prod(both.values())
    return (result, whole, work) if len(result.sizes) < len(both) else (result, 0, work + whole)


def _is_one(size: int) -> bool:
    """Tell a size that is broadcast: a symbol is none, whatever its value."""
    return size == 1 and not isinstance(size, Size)


def _wider(one: int, other: int) -> int:
    """The size of two dimensions of which one may be broadcast; sizes may be expressions, which have no order."""
    return other if _is_one(one) or (one == 1 != other) else one


def indices(equation: str, ranks: Sequence[int | None]) -> tuple[list[str], str]:
    """Return the indices of operands of these ranks (None: as many as are named) and of their result, a letter each.
    Dimensions in place of an ellipsis have other letters, Greek ones, the same at the same distance from the last.

    Raises ValueError for what is no equation, and for one that does not fit.
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not all(_TERM.fullmatch(term) for term in (*terms, result)):
        raise ValueError(f"the equation {equation[:80]!r}")
    if len(terms) != len(ranks):
        raise ValueError(f"{len(ranks)} operands and the equation {equation[:80]!r}")
    extra = []
    for term, rank in zip(terms, ranks, strict=True):
        extra.append(0 if rank is None else rank - len(term.replace(ELLIPSIS, "")))
        if extra[-1] < 0 or (extra[-1] and ELLIPSIS not in term):
            raise ValueError(f"{rank} dimensions and the indices {term!r}")
    others = (letter for letter in map(chr, range(0x3B1, sys.maxunicode)) if letter not in equation)
    spread = "".join(itertools.islice(others, max(extra)))
    named = "".join(terms).replace(ELLIPSIS, "")
    if not arrow:
        result = ELLIPSIS + "".join(sorted(letter for letter in named if named.count(letter) == 1))
    filled = [term.replace(ELLIPSIS, spread[len(spread) - more :]) for term, more in zip(terms, extra, strict=True)]
    return filled, result.replace(ELLIPSIS, spread)


def _sized(term: str, tensor: Tensor) -> Operand:
    """The dimensions of an operand; an index that it has twice is its diagonal."""
    sizes: dict[str, int] = {}
    for letter, size in zip(term, tensor.shape, strict=True):
        sizes[letter] = _wider(size, sizes.get(letter, 1))
    return Operand(sizes)
