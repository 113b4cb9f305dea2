"""Matrix products: dense, grouped, or with a structurally sparse operand.

Counting convention: docs/cost.md, matrix products.
"""

from __future__ import annotations

import math

from tensortide.cost.families import einsum
from tensortide.cost.families.products import product
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "contraction")
aten.rows({"einsum": einsum(squeezed=True)})


def added(op: OpCall, count: int) -> int:
    """Elementwise work of ``beta * self + alpha * product`` on ``count`` elements."""
    alpha, beta = op.arg("alpha", 1), op.arg("beta", 1)
    return count * (int(alpha != 1) + int(beta not in (0, 1)) + int(beta != 0))


def pairs(op: OpCall, left: str, right: str) -> int | None:
    """Multiply-accumulates of (m,k) and (k,n); of a sparse operand only what it stores. None for two of those."""
    (m, k), n = op.shape(left), op.shape(right)[1]
    op.let(m=m, n=n, k=k)
    if left not in op.sparse and right not in op.sparse:
        return m * n * k
    if left in op.sparse and right in op.sparse:
        return None
    stored, other = (op.sparse[left], n) if left in op.sparse else (op.sparse[right], m)
    op.let(nnz=stored if stored is not None else "unknown")
    return None if stored is None else stored * other


@aten("mm", "m n k MACs; of a sparse operand nnz n")
def mm(op: OpCall) -> Cost | None:
    """Product of (m,k) and (k,n)."""
    macs = pairs(op, "self", "mat2")
    return None if macs is None else product(op, macs)


@aten(
    "addmm _addmm_activation _sparse_addmm",
    "m n k MACs (of a sparse operand nnz n) + m n add (+ m n per factor alpha, beta)",
)
def addmm(op: OpCall) -> Cost | None:
    """Product of (m,k) and (k,n), added to a term."""
    macs = pairs(op, "mat1", "mat2")
    if macs is None:
        return None
    count = op.shape("mat1")[0] * op.shape("mat2")[1]
    cost = product(op, macs, added(op, count))
    if op.base == "_addmm_activation":
        cost += activation(count, op.arg("use_gelu", False))
    return cost


def activation(count: int, gelu: bool) -> Cost:
    """ReLU, or GELU, of ``count`` elements."""
    if gelu:
        return Cost(elementwise_flops=5 * count, transcendentals=count)
    return Cost(elementwise_flops=count, comparisons=count)


@aten("bmm", "b m n k MACs", meaning="Batch of products of (m,k) and (k,n).")
@aten(
    "baddbmm",
    "b m n k MACs + b m n add (+ b m n per factor alpha, beta)",
    meaning="Batch of products, added to a term.",
)
@aten("addbmm", "b m n k MACs + (b-1) m n adds + as addmm", meaning="Sum of a batch of products, added to a term.")
def batched(op: OpCall) -> Cost:
    """Products of (m,k) and (k,n)."""
    (b, m, k), n = op.first("batch1", "self").shape, op.first("batch2", "mat2").shape[2]
    op.let(b=b, m=m, n=n, k=k)
    if op.base == "bmm":
        return product(op, b * m * n * k)
    summed = op.base.startswith("addbmm")
    terms = max(0, b - 1) * m * n + added(op, m * n) if summed else added(op, b * m * n)
    return product(op, b * m * n * k, terms)


@aten("mv", "m k MACs", meaning="Product of a matrix (m,k) and a vector.")
@aten("addmv", "m k MACs + m add", meaning="Product of a matrix (m,k) and a vector, added to a term.")
@aten("dot vdot", "k MACs", meaning="Product of two vectors.")
def with_vector(op: OpCall) -> Cost:
    """Product of a matrix, or a vector, and a vector."""
    m, k = (1, *op.first("mat", "self").shape)[-2:]
    op.let(m=m, k=k)
    return product(op, m * k, added(op, m) if op.base.startswith("addmv") else 0)


@aten("addr", "m n mul + m n add, no MACs")
def addr(op: OpCall) -> Cost:
    """Outer product, added to a term: pointwise."""
    m, n = op.shape("vec1")[0], op.shape("vec2")[0]
    op.let(m=m, n=n)
    return product(op, 0, m * n + added(op, m * n))


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
    stored, k = op.sparse.get("self"), op.shape("mat1")[-1]
    op.let(k=k)
    return None if stored is None else Cost(macs=stored * k, elementwise_flops=added(op, stored))
