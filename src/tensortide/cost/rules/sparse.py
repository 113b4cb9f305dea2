"""Products with a structurally sparse operand. Counting convention: docs/cost.md, matrix products."""

from __future__ import annotations

import math

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.products import added


def _half(macs: int, elementwise: int = 0) -> Cost:
    """Two of four weights are zero."""
    return Cost(macs=macs, active_macs=macs // 2, elementwise_flops=elementwise)


@rule("aten::_sparse_semi_structured_linear", formula="R n k MACs, half of them active")
def semi_structured_linear(op: OpCall) -> Cost:
    """A linear layer with 2:4 sparse weights."""
    k = op.shape("input")[-1]
    op.let(outputs=op.out.numel, k=k)
    fused = int(op.has("bias")) + int(op.has("activation"))
    return _half(op.out.numel * k, op.out.numel * fused)


@rule("aten::_sparse_semi_structured_mm", "aten::_sparse_semi_structured_addmm", formula="m n k MACs, half active")
def semi_structured_mm(op: OpCall) -> Cost:
    """A product with a 2:4 sparse left operand, stored at half its width."""
    k, n = op.shape("mat2")
    m = op.shape("mat1")[0]
    op.let(m=m, n=n, k=k)
    return _half(m * n * k, op.out.numel if op.base.endswith("addmm") else 0)


@rule("aten::_cslt_sparse_mm", formula="m n k MACs, half of them active")
def library_mm(op: OpCall) -> Cost:
    """A product with a compressed 2:4 sparse operand."""
    k = op.shape("dense_B")[0]
    return _half(op.out.numel * k, op.out.numel if op.has("bias") else 0)


@rule("aten::sparse_sampled_addmm", formula="nnz k MACs + nnz add")
def sampled(op: OpCall) -> Cost | None:
    """The elements of a product at the places of a sparse matrix."""
    stored, k = op.sparse.get("self"), op.shape("mat1")[-1]
    op.let(k=k)
    return None if stored is None else Cost(macs=stored * k, elementwise_flops=added(op, stored))


@rule("torchvision::nms", formula="13 per pair of boxes + 3 per box (bound)")
def suppress(op: OpCall) -> Cost:
    """Overlap of every pair of boxes, at most: 4 corners, 2 sides of at least 0, area, union 2, ratio, threshold."""
    n = op.shape("dets")[0]
    pairs = n * (n - 1) // 2
    return Cost(
        elementwise_flops=13 * pairs + 3 * n,
        transcendentals=pairs,
        comparisons=7 * pairs,
        exact=False,
        reason="bound: every pair compared",
    )


@rule("torchvision::roi_align", formula="samples per output x 15: bilinear reads and their weights, + 1 division")
def roi_align(op: OpCall) -> Cost:
    """Averages of bilinear samples in regions of interest."""
    ratio = max(1, int(op.arg("sampling_ratio", 2)))
    samples = ratio * ratio * math.prod(op.out.shape)
    return Cost(
        elementwise_flops=16 * samples,
        transcendentals=op.out.numel,
        exact=int(op.arg("sampling_ratio", 2)) > 0,
        reason="" if int(op.arg("sampling_ratio", 2)) > 0 else "adaptive sampling counted as 1",
    )
