"""Products by index notation: einsum and tensordot. Counting convention: docs/cost.md, matrix products."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.cost.forms import aten
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.products import product
from tensortide.graph.model import Tensor

ELLIPSIS = "..."
_LEFT_TO_RIGHT = "order: operands from left to right"


class Operand(NamedTuple):
    """The dimensions of an operand, or of a product of some, by index."""

    sizes: dict[str, int]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes.values())


@aten(
    "einsum", "sizes of all indices multiplied, as MACs where one is contracted, else E mul; + adds of private indices"
)
def einsum(op: OpCall) -> Cost | None:
    """Operands two by two, along the path given: indices of one operand alone are summed before."""
    equation, operands = op.arg("equation", ""), op.tensors("tensors")
    read = _operands(equation.replace(" ", ""), operands)
    if read is None:
        return None
    parts, kept = read
    path = op.arg("path", ())
    pairs = list(zip(path[::2], path[1::2], strict=False)) if len(path) == 2 * len(parts) - 2 else []
    macs = adds = 0
    for number in range(len(parts) - 1):
        first, second = pairs[number] if pairs else (0, 1)
        a, b = parts[first], parts[second]
        parts = [part for place, part in enumerate(parts) if place not in (first, second)]
        later = kept.union(*(part.sizes for part in parts))
        result, products, sums = _pair(a, b, later)
        macs, adds = macs + products, adds + sums
        parts.insert(len(parts) if pairs else 0, result)
    (last,) = parts
    adds += last.elements - math.prod(size for index, size in last.sizes.items() if index in kept)
    op.let(indices=len({index for part in read[0] for index in part.sizes}))
    cost = product(op, macs, adds)
    if len(operands) < 3 or pairs:
        return cost
    return Cost(macs=cost.macs, elementwise_flops=cost.elementwise_flops, exact=False, reason=_LEFT_TO_RIGHT)


def _pair(a: Operand, b: Operand, later: frozenset[str]) -> tuple[Operand, int, int]:
    """The product of two operands whose indices ``later`` stay: its dimensions, MACs, and other FLOPs."""
    work, left = 0, []
    for one, other in ((a, b), (b, a)):
        sizes = {i: size for i, size in one.sizes.items() if i in later or other.sizes.get(i, 1) > 1}
        work += one.elements - math.prod(sizes.values())
        left.append(sizes)
    both = left[0] | left[1] | {i: max(left[0][i], left[1][i]) for i in left[0].keys() & left[1].keys()}
    result = Operand({index: size for index, size in both.items() if index in later})
    whole = math.prod(both.values())
    return (result, whole, work) if len(result.sizes) < len(both) else (result, 0, work + whole)


def _operands(equation: str, tensors: Sequence[Tensor]) -> tuple[list[Operand], frozenset[str]] | None:
    """The dimensions of each operand, and the indices of the result; None for an equation that does not fit."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        return None
    broadcast = [*map(chr, range(0x391, 0x3C9))]  # of the dimensions in place of an ellipsis
    found, uses = [], ""
    most = 0
    for term, tensor in zip(terms, tensors, strict=True):
        missing = len(tensor.shape) - len(term.replace(ELLIPSIS, ""))
        if missing < 0 or (missing and ELLIPSIS not in term) or missing > len(broadcast):
            return None
        most = max(most, missing)
        letters = term.replace(ELLIPSIS, "".join(broadcast[:missing][::-1]))
        sizes: dict[str, int] = {}
        for letter, size in zip(letters, tensor.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
        found.append(Operand(sizes))
        uses += term.replace(ELLIPSIS, "")
    named = right.replace(ELLIPSIS, "") if arrow else "".join(c for c in string.ascii_letters if uses.count(c) == 1)
    spread = broadcast[:most] if not arrow or ELLIPSIS in right else []
    return found, frozenset(named) | frozenset(spread)


@aten("tensordot", "contraction product: elements of the result times contracted sizes")
def tensordot(op: OpCall) -> Cost:
    """Product over the dimensions named."""
    shape = op.shape("self")
    contracted = math.prod(shape[dim] for dim in op.arg("dims_self", ()))
    op.let(E=op.out.numel, k=contracted)
    return product(op, op.out.numel * contracted)
