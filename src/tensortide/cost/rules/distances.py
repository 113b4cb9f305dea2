"""Pairwise distances. Counting convention: docs/cost.md, matrix products."""

from __future__ import annotations

import math

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

PRODUCT_FROM = 25
"""Above this number of rows on either side PyTorch multiplies instead of subtracting, unless told otherwise."""


def by_product(batch: int, rows: int, others: int, d: int) -> Cost:
    """``|x|^2 + |y|^2 - 2 x y``; the two columns that the kernel appends to the product are recomputation."""
    pairs = batch * rows * others
    return Cost(
        macs=pairs * d,
        recompute_macs=2 * pairs,
        elementwise_flops=batch * 2 * d * (rows + others) + 3 * pairs,
        transcendentals=pairs,
        comparisons=pairs,
    )


def directly(pairs: int, d: int, p: float) -> Cost:
    """Differences, a power each, their sum and a root."""
    if p == 2:
        return Cost(elementwise_flops=3 * d * pairs, transcendentals=pairs)
    if p == 1 or math.isinf(p):
        return Cost(elementwise_flops=(3 * d - 1) * pairs, comparisons=d * pairs)
    return Cost(elementwise_flops=4 * d * pairs, transcendentals=(d + 1) * pairs)


def _sizes(op: OpCall) -> tuple[int, int, int, int]:
    *_, rows, d = op.shape("x1")
    others = op.shape("x2")[-2]
    batch = math.prod(op.out.shape[:-2])
    op.let(B=batch, P=rows, R=others, d=d)
    return batch, rows, others, d


@rule("aten::_euclidean_dist", formula="P R d MACs + 2 d (P + R) + 3 P R")
def euclidean(op: OpCall) -> Cost:
    """Euclidean distances by a product."""
    return by_product(*_sizes(op))


@rule(
    "aten::_cdist_forward", "aten::cdist", formula="product mode P R d MACs + 2 d (P + R) + 3 P R; direct 3 d per pair"
)
def cdist(op: OpCall) -> Cost:
    """Distances of all pairs of rows: mode 1 multiplies, 2 subtracts, else by the number of rows."""
    batch, rows, others, d = _sizes(op)
    p, mode = float(op.arg("p", 2.0)), op.arg("compute_mode", 0)
    if p == 2 and (mode == 1 or (mode == 0 and max(rows, others) > PRODUCT_FROM)):
        return by_product(batch, rows, others, d)
    return directly(batch * rows * others, d, p)


@rule("aten::_pdist_forward", formula="direct: 3 d per pair")
def pdist(op: OpCall) -> Cost:
    """Distances of the pairs among one set of rows."""
    n, d = op.shape("self")
    op.let(n=n, d=d)
    return directly(n * (n - 1) // 2, d, float(op.arg("p", 2.0)))


@rule("aten::_cdist_backward", "aten::_pdist_backward", formula="4 d per pair")
def distance_backward(op: OpCall) -> Cost:
    """Gradient of pairwise distances."""
    pairs = op.tensor("cdist" if "cdist" in op.arguments else "pdist").numel
    d = op.shape("x1" if "x1" in op.arguments else "self")[-1]
    return Cost(elementwise_flops=4 * d * pairs, transcendentals=pairs)
