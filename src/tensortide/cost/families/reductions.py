"""Families that work on rows of n elements: reductions, softmax, normalization, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensortide.cost.families.table import family
from tensortide.cost.kinds import COMPARISON, Weights, chosen, elements, kind_of, rows_work, weights_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Rule


class How(NamedTuple):
    """FLOPs, special functions and comparisons of a reduction: for each element, and for each result."""

    flops: tuple[int, int]
    special: tuple[int, int] = (0, 0)
    compared: tuple[int, int] = (0, 0)
    complex_flops: int = 2

    @property
    def formula(self) -> str:
        """FLOPs of R rows of n elements."""
        each, last = self.flops
        n = "n" if each == 1 else f"{each}n"
        return f"R {n}" if not last else f"R ({n} {'-' if last < 0 else '+'} {abs(last)})"


REDUCTIONS = {
    "sum": How((1, -1)),
    "product": How((1, -1), complex_flops=6),
    "mean": How((1, 0), (0, 1)),
    "variance": How((4, 0), (0, 2)),
    "deviation": How((4, 1), (0, 3)),
    "range": How((2, -1), compared=(2, -2)),
    "max": How((1, -1), compared=(1, -1)),
    "absolute": How((2, -1)),
    "squares": How((2, -1)),
    "half_squares": How((2, 0)),
    "norm": How((2, 0), (0, 1)),
    "log_sum": How((1, 0), (0, 1)),
    "log_sum_exp": How((4, 0), (1, 1), (1, -1)),
}
"""Reductions by what is computed of each row; ``max``: the smallest and their places, too."""


@family("reduction", "reduced")
def reduction(how: str) -> Rule:
    """Rows of the first operand reduced to one element each."""
    kind = chosen("how", how, REDUCTIONS)

    def work(op: OpCall) -> Cost:
        """Rows reduced to one element each."""
        total, results = op.inputs[0].numel, op.out.numel
        op.let(E=total, R=results)
        if total == 0:
            return Cost()
        flops, special, compared = (a * total + b * results for a, b in (kind.flops, kind.special, kind.compared))
        return elements(op, 1, Weights(flops, special, compared, kind.complex_flops * flops))

    return Rule("", kind.formula + " comparisons" * (how == "max"), work, meaning=f"The {how} of each row.")


@family("elementwise", "broadcast")
def combined(weights: str = "arithmetic", *, divided: bool = False) -> Rule:
    """Several tensors combined into one, element by element; ``divided``: the mean."""
    found = weights_of(weights)

    def work(op: OpCall) -> Cost:
        """Several tensors combined into one."""
        op.let(n=len(op.inputs), E=op.out.numel)
        return elements(op, (len(op.inputs) - 1 + divided) * op.out.numel, found)

    return Rule("", f"{'n' if divided else '(n - 1)'} E: n tensors combined" + ", divided" * divided, work)


def along(op: OpCall, axis: str = "", default: int | None = -1, of: str = "0") -> tuple[int, int]:
    """The number of rows, and their length, of an operand along the dimension that the attribute ``axis`` names; all
    elements are one row where it is None, and rows without elements are none."""
    shape = op.operand(of).shape
    at = op.arg(axis, default) if axis else default
    if at is None:
        shape, at = (math.prod(shape),), 0
    n = shape[at] if shape else 1
    rows = math.prod(size for i, size in enumerate(shape) if i != at % len(shape)) if n else 0
    op.let(R=rows, n=n)
    return rows, n


def softmax_work(op: OpCall, rows: int, n: int, *, log: bool = False, extra: int = 0) -> Cost:
    """The cost of a softmax of ``rows`` of n elements, or of its logarithm, and of ``extra`` FLOPs before it.

    Per row: maximum n-1, subtract n, exp n, add n-1, divide n; the logarithm takes log 1, subtract n for the last.
    """
    flops = rows * (5 * n - (1 if log else 2)) + extra
    return rows_work(op, flops, rows * (n + 1 if log else 2 * n), rows * (n - 1))


@family("softmax", "first")
def softmax(*, log: bool = False, axis: str = "", biased: bool = False) -> Rule:
    """Softmax of rows, or its logarithm; ``biased``: a term is added before."""

    def work(op: OpCall) -> Cost:
        """Per row: maximum n-1, subtract n, exp n, add n-1, then divide n, or for the logarithm log 1, subtract n."""
        rows, n = along(op, axis)
        return softmax_work(op, rows, n, log=log, extra=rows * n * biased)

    return Rule("", f"R (5n - {1 if log else 2})" + " + R n of a bias" * biased, work)


@family("softmax")
def softmax_gradient(*, log: bool = False, axis: str = "", of: str = "0") -> Rule:
    """Gradient of a softmax of rows, ``of`` the gradient of its result; ``log``: of its logarithm, which takes exp."""

    def work(op: OpCall) -> Cost:
        """Per row: one product and one sum, then subtract and multiply."""
        rows, n = along(op, axis, of=of)
        return rows_work(op, rows * (4 * n - 1), rows * n * log)

    return Rule("", "R (4n - 1)", work)


ROWS: dict[str, Callable[[Sequence[int], Any], int]] = {
    "axis": lambda shape, axis: math.prod(shape[axis:]),
    "row": lambda shape, row: math.prod(row) if isinstance(row, tuple) else int(row),
    "groups": lambda shape, groups: math.prod(shape[1:]) // max(1, int(groups)),
    "space": lambda shape, _: math.prod(shape[2:]),
    "channel": lambda shape, _: math.prod(shape) // max(1, shape[1]),
}
"""Elements that are normalized together: all dimensions from an axis on, as many as is said, a group of channels, the
space of a channel of a sample, or a channel of all samples."""


@family("normalization", "first")
def normalization(by: str = "axis", attribute: str = "", *, affine: str = "", centred: bool = True) -> Rule:
    """Rows by their own statistics. ``by``: which elements are a row, by an attribute, of several names perhaps.

    ``affine``: operands that scale, shift or are added to every element, if given, or ``rest`` for all but the first.
    Not ``centred``: by the mean square alone.
    """
    elements_of = chosen("by", by, ROWS)
    first, special = (5, 3) if centred else (3, 2)

    def work(op: OpCall) -> Cost:
        """Per row: mean n, centre n, variance 2n, eps and rsqrt 2, scale n; without a mean 2n less."""
        x = op.inputs[0]
        value = next((op.arg(name) for name in attribute.split() if op.has(name)), -1 if by == "axis" else 1)
        n = max(1, elements_of(x.shape, value))
        rows = x.numel // n
        op.let(R=rows, n=n)
        extra = len(op.inputs) - 1 if affine == "rest" else sum(op.has(name) for name in affine.split())
        return Cost(elementwise_flops=rows * (first * n + 2) + extra * x.numel, transcendentals=special * rows)

    return Rule("", f"R ({first}n + 2), + n for each of scale, shift and terms", work)


def normalization_gradients(
    each: int, total: int, affine: int, wanted: tuple[bool, ...], rows: int = 0, special: int = 0
) -> Cost:
    """The cost of gradients, as wanted: of the input ``each`` FLOPs of its ``total`` elements, and ``special`` ones of
    every row; of a scale and a shift of ``affine`` elements the sums."""
    of_input, of_scale, of_bias = (*wanted, False)[:3]
    flops = each * total if of_input else 0
    flops += 2 * total - affine if of_scale else 0
    flops += total - affine if of_bias else 0
    return Cost(elementwise_flops=max(0, flops), transcendentals=special * rows if of_input else 0)


@family("normalization", "first")
def channelwise(training: str = "", default: bool = False, *, channels: str = "1", running: bool = False) -> Rule:
    """Channels by their own statistics where the attribute ``training`` says so, with those that run on, if
    ``running``; else by stored ones, folded into a scale and a shift. ``channels``: an operand with one of each."""

    def work(op: OpCall) -> Cost:
        """Batch normalization of C channels of m elements."""
        total, count = op.inputs[0].numel, op.operand(channels).numel
        op.let(E=total, C=count)
        if op.arg(training, default):
            return Cost(elementwise_flops=7 * total + (9 if running else 2) * count, transcendentals=3 * count)
        return Cost(elementwise_flops=2 * total + 5 * count, transcendentals=count)

    own = f"; in training C (7m + {9 if running else 2})" if training else ""
    return Rule("", "C (2m + 5) by stored statistics" + own, work)


@family("scan", "first")
def running(weights: str | Sequence[int] = "arithmetic", *, axis: str = "", default: int | None = -1) -> Rule:
    """Running sums, products or extrema along rows. Without ``axis`` it is a value: then one for each element."""
    found = weights_of(weights)

    def work(op: OpCall) -> Cost:
        """n - 1 combinations per row of n."""
        if not axis:
            return elements(op, op.inputs[0].numel, found) + Cost(exact=False, reason="bound: the axis is not known")
        rows, n = along(op, axis, default)
        return elements(op, rows * (n - 1), found, kind_of(op.inputs[:1]))

    return Rule("", "R (n - 1)" if axis else "1 per element (bound: n - 1 per row of n)", work)


def merge_comparisons(n: int) -> int:
    """Comparisons of merge sort in the worst case, for n elements (Knuth, vol. 3, 5.2.4).

    >>> [merge_comparisons(n) for n in (0, 1, 2, 4, 64)]
    [0, 0, 1, 5, 321]
    """
    levels = ceil_log2(n)
    return n * levels - (1 << levels) + 1 if n > 1 else 0


def ceil_log2(n: int) -> int:
    """The smallest L with 2**L >= n."""
    return (n - 1).bit_length() if n > 1 else 0


@family("sort", "first")
def sort(axis: str = "") -> Rule:
    """Rows sorted by the first operand."""

    def work(op: OpCall) -> Cost:
        """Merge sort of every row, worst case."""
        rows, n = along(op, axis)
        return elements(op, rows * merge_comparisons(n), COMPARISON, kind_of(op.inputs[:1]))

    return Rule("", "R (n L - 2^L + 1) comparisons, L = ceil(log2 n)", work)


@family("sort")
def topk(axis: str = "", k: str = "") -> Rule:
    """The ``k`` largest of every row, by a heap; as many as the result has if no attribute says so."""

    def work(op: OpCall) -> Cost:
        """The k largest of every row, by a heap of k."""
        rows, n = along(op, axis)
        shape: Sequence[int] = op.out.shape
        found = op.arg(k) if k and op.has(k) else shape[op.arg(axis, -1) if axis else -1] if shape else 1
        op.let(k=found)
        return elements(op, rows * n * ceil_log2(found + 1), COMPARISON, kind_of(op.inputs[:1]))

    return Rule("", "R n ceil(log2(k + 1)) comparisons", work)


@family("sort")
def search(table: str = "0") -> Rule:
    """Binary search for every element of the result in the last dimension of ``table``, an operand or a list."""

    def work(op: OpCall) -> Cost:
        """Binary search."""
        listed = op.arg(table)
        shape = op.operand(table).shape if not isinstance(listed, tuple) else (len(listed),)
        n = shape[-1] if shape else 1
        op.let(E=op.out.numel, n=n)
        kind = None if isinstance(listed, tuple) else kind_of([op.operand(table)])
        return elements(op, op.out.numel * ceil_log2(n + 1), COMPARISON, kind)

    return Rule("", "ceil(log2(n + 1)) comparisons per query", work)
