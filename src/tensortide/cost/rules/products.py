"""Matrix products: dense, grouped, or with a structurally sparse operand.

Counting convention: docs/cost.md, matrix products.
"""

from __future__ import annotations

import math

import msgspec

from tensortide.cost.access import sum_with
from tensortide.cost.families import contraction, einsum
from tensortide.cost.families.products import added, product
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "contraction")
_ADDMM = contraction("mk,kn", "mat1 mat2", term=True)


def _activated(op: OpCall) -> Cost | None:
    """A product, a term added, and an activation."""
    cost = _ADDMM.work(op)
    return None if cost is None else cost + activation(op.out.numel, op.arg("use_gelu", False))


def activation(count: int, gelu: bool) -> Cost:
    """ReLU, or GELU, of ``count`` elements."""
    if gelu:
        return Cost(elementwise_flops=5 * count, transcendentals=count)
    return Cost(elementwise_flops=count, comparisons=count)


aten.rows(
    {
        "einsum": einsum(squeezed=True),
        "mm _int_mm": contraction("mk,kn", "self mat2"),
        "addmm _sparse_addmm": _ADDMM,
        "_addmm_activation": msgspec.structs.replace(_ADDMM, work=_activated),
        "bmm": contraction("bmk,bkn", "self mat2"),
        "baddbmm": contraction("bmk,bkn", "batch1 batch2", term=True),
        "mv": contraction("mk,k", "self vec"),
        "addmv": contraction("mk,k", "mat vec", term=True),
        "dot": contraction("k,k", "self tensor"),
        "vdot": contraction("k,k", "self other"),
    }
)


@aten("addbmm", "b m n k MACs + (b-1) m n adds + as addmm", bytes=sum_with("batch1", "batch2"))
def summed(op: OpCall) -> Cost:
    """Sum of a batch of products, added to a term."""
    (b, m, k), n = op.shape("batch1"), op.shape("batch2")[2]
    op.let(b=b, m=m, n=n, k=k)
    left = op.arg("alpha", 1) != 0
    return product(op, b * m * n * k * left, max(0, b - 1) * m * n * left + added(op, m * n))


@aten("addr", "m n mul + m n add, no MACs", bytes=sum_with())
def addr(op: OpCall) -> Cost:
    """Outer product, added to a term: pointwise, also the product times 0."""
    m, n, alpha, beta = op.shape("vec1")[0], op.shape("vec2")[0], op.arg("alpha", 1), op.arg("beta", 1)
    op.let(m=m, n=n)
    return product(op, 0, m * n * (1 + (alpha != 1) + (beta not in (0, 1)) + (beta != 0)))


@aten("outer ger kron", "E mul, no MACs")
def outer(op: OpCall) -> Cost:
    """Outer product: pointwise."""
    return product(op, 0, op.out.numel)


@aten("linear mkldnn_linear", "R n k MACs (+ R n add of the bias)")
def linear(op: OpCall) -> Cost:
    """Rows (R,k) times a weight (n,k)."""
    x, weight = op.first("input", "self").shape, op.shape("weight")
    rows, n, k = math.prod(x[:-1]), math.prod(weight[:-1]), x[-1]
    op.let(R=rows, n=n, k=k)
    return product(op, rows * n * k, rows * n * op.has("bias"))


@aten("linear_backward mkldnn_linear_backward", "R n k MACs per wanted gradient + (R-1) n adds")
def linear_backward(op: OpCall) -> Cost:
    """Gradients of a linear layer for input, weight and bias, as wanted."""
    (n, k), rows = op.shape("weight"), math.prod(op.shape("self")[:-1])
    op.let(R=rows, n=n, k=k)
    of_input, of_weight, of_bias = op.arg("output_mask", (True, True, True))
    return product(op, rows * n * k * (of_input + of_weight), (rows - 1) * n if of_bias else 0)


@aten("mkldnn_linear_backward_input", "R n k MACs", meaning="Gradient of a linear layer's input.")
@aten(
    "mkldnn_linear_backward_weights",
    "R n k MACs + (R-1) n adds",
    meaning="Gradients of a linear layer's weight and bias.",
)
def linear_backward_part(op: OpCall) -> Cost:
    """Gradient of a linear layer for its input, or for weight and bias."""
    gradient = op.tensor("grad_output")
    biased = op.arg("bias_defined", False)
    k = op.shape("input" if "weights" in op.base else "weight")[-1]
    return product(op, gradient.numel * k, gradient.numel - gradient.shape[-1] if biased else 0)


@aten(
    "matmul",
    "B m n k MACs, B = product of the broadcast batch",
    meaning="Product of operands of any rank; a vector has m = 1 or n = 1.",
)
@aten("matmul_backward", "as the product, for each wanted gradient")
def matmul(op: OpCall) -> Cost:
    """Gradients of both operands, as wanted."""
    k = (1, *op.shape("self"))[-1]
    if op.base == "matmul":
        return product(op, op.out.numel * k)
    return product(op, op.tensor("grad").numel * k * sum(op.arg("mask", (True, True))))


@aten("_trilinear", "R Oo I2 (I1 + 1) MACs: the first two factors are contracted, then the third")
def trilinear(op: OpCall) -> Cost:
    """``sum over i, j of x1[i] W[o,i,j] x2[j]``, the form of nn.Bilinear, and its gradients."""
    sizes = []
    for i in (1, 2, 3):
        shape = list(op.shape(f"i{i}"))
        for dim in sorted(op.arg(f"expand{i}", ())):
            shape.insert(dim, 1)
        sizes.append(shape)
    summed = set(op.arg("sumdim", ()))
    early = {d for d in summed if sizes[2][d] == 1}
    joined = [max(a, b) for a, b in zip(sizes[0], sizes[1], strict=True)]
    first = math.prod(joined)
    second = math.prod(1 if d in early else max(n, m) for d, (n, m) in enumerate(zip(joined, sizes[2], strict=True)))
    op.let(first=first, second=second)
    macs = (first if early else 0) + (second if summed - early else 0)
    return product(op, macs, first + second - macs)


@aten("_foreach_mm", "m n k MACs per item")
def foreach_mm(op: OpCall) -> Cost:
    """A list of products."""
    pairs = zip(op.tensors("self"), op.tensors("mat2"), strict=False)
    return product(op, sum(a.shape[0] * a.shape[1] * b.shape[1] for a, b in pairs))


@aten(
    "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2 grouped_mm",
    "(T,K) x (G,K,N): T K N MACs; (G,M,K) x (G,K,N): G M K N; (M,T) x (T,N): M T N; (G,M,K) x (K,T): M K T",
)
def grouped(op: OpCall) -> Cost:
    """Products of groups of rows with one matrix each."""
    # the form of routed experts; offsets are values, which a capture does not have: all rows are taken to be routed
    left, right = op.shape("self"), op.shape("mat2")
    m, k, n = left[-2], left[-1], right[-1]
    paired = len(left) == len(right) == 3
    groups = left[0] if paired else 1
    op.let(G=groups, M=m, K=k, N=n)
    cost = product(op, groups * m * k * n, op.out.numel if op.has("bias") else 0)
    if paired:
        return cost
    flops = cost.elementwise_flops + (op.out.numel if "scaled" in op.base else 0)
    reason = "routed rows: all rows given are counted"
    return Cost(macs=cost.macs, elementwise_flops=flops, exact=False, reason=reason)


@aten("tensordot", "contraction product: elements of the result times contracted sizes")
def tensordot(op: OpCall) -> Cost:
    """Product over the dimensions named."""
    shape = op.shape("self")
    contracted = math.prod(shape[dim] for dim in op.arg("dims_self", ()))
    op.let(E=op.out.numel, k=contracted)
    return product(op, op.out.numel * contracted)


# -- structurally sparse operands -------------------------------------------------------------------


@aten(
    "_sparse_semi_structured_linear",
    "R n k MACs, half of them active",
    meaning="A linear layer with 2:4 sparse weights.",
)
@aten(
    "_sparse_semi_structured_mm _sparse_semi_structured_addmm",
    "m n k MACs, half active",
    meaning="A product with a 2:4 sparse left operand, stored at half its width.",
)
@aten("_cslt_sparse_mm", "m n k MACs, half of them active", meaning="A product with a compressed 2:4 sparse operand.")
def half_sparse(op: OpCall) -> Cost:
    """A product with an operand of which two of four weights are zero."""
    if "mat1" in op.arguments:
        (k, n), m = op.shape("mat2"), op.shape("mat1")[0]
        op.let(m=m, n=n)
        macs = m * n * k
    else:
        k = op.shape("input")[-1] if "input" in op.arguments else op.shape("dense_B")[0]
        macs = op.out.numel * k
    op.let(outputs=op.out.numel, k=k)
    fused = op.has("bias") + op.has("activation") + op.base.endswith("addmm")
    return Cost(macs=macs, active_macs=macs // 2, elementwise_flops=op.out.numel * fused)


@aten("sparse_sampled_addmm", "nnz k MACs + nnz add")
def sampled(op: OpCall) -> Cost | None:
    """The elements of a product at the places of a sparse matrix."""
    stored, k = op.stored("self") if "self" in op.sparse else None, op.shape("mat1")[-1]
    op.let(k=k)
    return None if stored is None else Cost(macs=stored * k, elementwise_flops=added(op, stored))
