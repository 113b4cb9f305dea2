"""Sorting and searching: comparisons. Counting convention: docs/cost.md, sorting, searching, indexing."""

from __future__ import annotations

import math

from tensortide.cost.kinds import Kind, Weights, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


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


def compared(op: OpCall, count: int, name: str = "self") -> Cost:
    """``count`` comparisons: FLOPs between floating-point numbers, else integer ops."""
    return elements(op, count, Weights(1, 0, 1, 2), kind_of([op.tensor(name)]))


def _rows(op: OpCall, default: int = -1) -> tuple[int, int]:
    shape = op.shape("self")
    n = shape[op.arg("dim", default)] if shape else 1
    rows = math.prod(shape) // max(1, n)
    op.let(R=rows, n=n)
    return rows, n


@rule("aten::sort", "aten::argsort", "aten::msort", formula="R (n L - 2^L + 1) comparisons, L = ceil(log2 n)")
def sort(op: OpCall) -> Cost:
    """Merge sort of every row, worst case."""
    rows, n = _rows(op)
    return compared(op, rows * merge_comparisons(n))


@rule("aten::topk", "aten::kthvalue", formula="R n ceil(log2(k + 1)) comparisons")
def topk(op: OpCall) -> Cost:
    """The k largest of every row, by a heap of k."""
    rows, n = _rows(op)
    k = int(op.arg("k", 1))
    op.let(k=k)
    return compared(op, rows * n * ceil_log2(k + 1))


@rule("aten::median", "aten::nanmedian", "aten::mode", formula="as a sort of every row (bound)")
def median(op: OpCall) -> Cost:
    """Middle or most frequent value; without a dimension, of all elements."""
    rows, n = _rows(op) if "dim" in op.arguments or op.base == "mode" else (1, op.tensor("self").numel)
    cost = compared(op, rows * merge_comparisons(n))
    return Cost(
        elementwise_flops=cost.elementwise_flops,
        comparisons=cost.comparisons,
        int_ops=cost.int_ops,
        exact=False,
        reason="bound: a full sort",
    )


@rule("aten::searchsorted", "aten::bucketize", formula="ceil(log2(n + 1)) comparisons per query")
def search(op: OpCall) -> Cost:
    """Binary search."""
    table = op.tensor("sorted_sequence" if "sorted_sequence" in op.arguments else "boundaries")
    n = table.shape[-1] if table.shape else 1
    op.let(E=op.out.numel, n=n)
    return elements(op, op.out.numel * ceil_log2(n + 1), Weights(1, 0, 1), kind_of([table]))


@rule("aten::isin", formula="(E + M) ceil(log2(M + 1)) comparisons")
def isin(op: OpCall) -> Cost:
    """Membership, by a sort of the M test elements and a search for each element."""
    tests = op.tensors("test_elements") or op.tensors("test_element")
    m = tests[0].numel if tests else 1
    values = op.tensors("elements") or op.tensors("element")
    count = values[0].numel if values else 1
    return elements(op, (count + m) * ceil_log2(m + 1), Weights(1, 0, 1), kind_of([*values, *tests]))


@rule(
    "aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive",
    "aten::nonzero", "aten::masked_select", "aten::nonzero_static",
    formula="n comparisons",
)  # fmt: skip
def unique(op: OpCall) -> Cost:
    """One comparison per element; the size of the result depends on the values."""
    count = op.tensor("mask" if op.base == "masked_select" else "self").numel
    kind = kind_of([op.tensor("self")]) if op.base != "masked_select" else Kind.INTEGER
    return elements(op, count, Weights(1, 0, 1, 2), kind)
