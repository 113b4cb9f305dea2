"""Grouped products, the form of routed experts. Counting convention: docs/cost.md, grouped products.

Offsets are values, which a capture does not have: all rows that are there are taken to be routed.
"""

from __future__ import annotations

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.products import product

REASON = "routed rows: all rows given are counted"


@rule(
    "aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2", "aten::grouped_mm",
    formula="(T,K) x (G,K,N): T K N MACs; (G,M,K) x (G,K,N): G M K N; (M,T) x (T,N): M T N; (G,M,K) x (K,T): M K T",
)  # fmt: skip
def grouped(op: OpCall) -> Cost:
    """Products of groups of rows with one matrix each."""
    left, right = op.shape("self"), op.shape("mat2")
    m, k, n = left[-2], left[-1], right[-1]
    groups = left[0] if len(left) == len(right) == 3 else 1
    op.let(G=groups, M=m, K=k, N=n)
    cost = product(op, groups * m * k * n, op.out.numel if op.has("bias") else 0)
    if len(left) == len(right) == 3:
        return cost
    scaled = "scaled" in op.base
    return Cost(
        macs=cost.macs,
        active_macs=cost.macs,
        elementwise_flops=cost.elementwise_flops + (op.out.numel if scaled else 0),
        exact=False,
        reason=REASON,
    )
