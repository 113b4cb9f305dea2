"""Matrix products. Counting convention: docs/cost.md, matrix products."""

from __future__ import annotations

import math

from tensortide.cost.kinds import Kind, dtype_kind, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


def product(op: OpCall, macs: int, elementwise: int = 0) -> Cost:
    """``macs`` of the kind of the op's operands: a complex multiply-accumulate is 4 real ones, with a real 2."""
    floats = [dtype_kind(t.dtype) for t in op.inputs]
    if kind_of(op.inputs) is Kind.COMPLEX:
        factor = 4 if floats.count(Kind.COMPLEX) > 1 else 2
        return Cost(macs=factor * macs, elementwise_flops=2 * elementwise)
    if kind_of([*op.inputs, *op.outputs]) is Kind.INTEGER:
        return Cost(macs=macs, int_ops=elementwise)
    return Cost(macs=macs, elementwise_flops=elementwise)


def added(op: OpCall, count: int) -> int:
    """Elementwise work of ``beta * self + alpha * product`` on ``count`` elements."""
    alpha, beta = op.arg("alpha", 1), op.arg("beta", 1)
    scaled = (count if alpha != 1 else 0) + (count if beta not in (0, 1) else 0)
    return scaled + (count if beta != 0 else 0)


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


@rule("aten::mm", formula="m n k MACs; of a sparse operand nnz n")
def mm(op: OpCall) -> Cost | None:
    """Product of (m,k) and (k,n)."""
    macs = pairs(op, "self", "mat2")
    return None if macs is None else product(op, macs)


@rule(
    "aten::addmm",
    "aten::_addmm_activation",
    "aten::_sparse_addmm",
    formula="m n k MACs (of a sparse operand nnz n) + m n add (+ m n per factor alpha, beta)",
)
def addmm(op: OpCall) -> Cost | None:
    """Product of (m,k) and (k,n), added to a term."""
    macs = pairs(op, "mat1", "mat2")
    if macs is None:
        return None
    m, n = op.shape("mat1")[0], op.shape("mat2")[1]
    cost = product(op, macs, added(op, m * n))
    if op.base == "_addmm_activation":
        gelu = op.arg("use_gelu", False)
        cost += Cost(
            elementwise_flops=(5 if gelu else 1) * m * n,
            transcendentals=m * n if gelu else 0,
            comparisons=0 if gelu else m * n,
        )
    return cost


@rule("aten::bmm", formula="b m n k MACs")
def bmm(op: OpCall) -> Cost:
    """Batch of products of (m,k) and (k,n)."""
    (b, m, k), n = op.shape("self"), op.shape("mat2")[2]
    op.let(b=b, m=m, n=n, k=k)
    return product(op, b * m * n * k)


@rule("aten::baddbmm", formula="b m n k MACs + b m n add (+ b m n per factor alpha, beta)")
def baddbmm(op: OpCall) -> Cost:
    """Batch of products, added to a term."""
    (b, m, k), n = op.shape("batch1"), op.shape("batch2")[2]
    op.let(b=b, m=m, n=n, k=k)
    return product(op, b * m * n * k, added(op, b * m * n))


@rule("aten::addbmm", formula="b m n k MACs + (b-1) m n adds + as addmm")
def addbmm(op: OpCall) -> Cost:
    """Sum of a batch of products, added to a term."""
    (b, m, k), n = op.shape("batch1"), op.shape("batch2")[2]
    op.let(b=b, m=m, n=n, k=k)
    return product(op, b * m * n * k, max(0, b - 1) * m * n + added(op, m * n))


@rule("aten::mv", formula="m k MACs")
def mv(op: OpCall) -> Cost:
    """Product of a matrix (m,k) and a vector."""
    m, k = op.shape("self")
    op.let(m=m, k=k)
    return product(op, m * k)


@rule("aten::addmv", formula="m k MACs + m add")
def addmv(op: OpCall) -> Cost:
    """Product of a matrix (m,k) and a vector, added to a term."""
    m, k = op.shape("mat")
    op.let(m=m, k=k)
    return product(op, m * k, added(op, m))


@rule("aten::dot", "aten::vdot", formula="k MACs")
def dot(op: OpCall) -> Cost:
    """Product of two vectors."""
    (k,) = op.shape("self")
    op.let(k=k)
    return product(op, k)


@rule("aten::addr", formula="m n mul + m n add, no MACs")
def addr(op: OpCall) -> Cost:
    """Outer product, added to a term: pointwise."""
    m, n = op.shape("vec1")[0], op.shape("vec2")[0]
    op.let(m=m, n=n)
    return product(op, 0, m * n + added(op, m * n))


@rule("aten::outer", "aten::ger", "aten::kron", formula="E mul, no MACs")
def outer(op: OpCall) -> Cost:
    """Outer product: pointwise."""
    return product(op, 0, op.out.numel)


@rule("aten::linear", "aten::mkldnn_linear", formula="R n k MACs (+ R n add of the bias)")
def linear(op: OpCall) -> Cost:
    """Rows (R,k) times a weight (n,k)."""
    x, weight = op.tensor("input" if "input" in op.arguments else "self"), op.tensor("weight")
    k = x.shape[-1]
    n = math.prod(weight.shape[:-1])
    rows = math.prod(x.shape[:-1])
    op.let(R=rows, n=n, k=k)
    return product(op, rows * n * k, rows * n if op.has("bias") else 0)


@rule("aten::linear_backward", "aten::mkldnn_linear_backward", formula="R n k MACs per wanted gradient + (R-1) n adds")
def linear_backward(op: OpCall) -> Cost:
    """Gradients of a linear layer for input, weight and bias, as wanted."""
    x, weight = op.tensor("self"), op.tensor("weight")
    n, k = weight.shape
    rows = math.prod(x.shape[:-1])
    op.let(R=rows, n=n, k=k)
    of_input, of_weight, of_bias = op.arg("output_mask", (True, True, True))
    return product(op, rows * n * k * (of_input + of_weight), (rows - 1) * n if of_bias else 0)


@rule("aten::mkldnn_linear_backward_input", formula="R n k MACs")
def linear_backward_input(op: OpCall) -> Cost:
    """Gradient of a linear layer's input."""
    gradient, weight = op.tensor("grad_output"), op.tensor("weight")
    return product(op, gradient.numel * weight.shape[-1])


@rule("aten::mkldnn_linear_backward_weights", formula="R n k MACs + (R-1) n adds")
def linear_backward_weights(op: OpCall) -> Cost:
    """Gradients of a linear layer's weight and bias."""
    gradient, x = op.tensor("grad_output"), op.tensor("input")
    n = gradient.shape[-1]
    return product(op, gradient.numel * x.shape[-1], gradient.numel - n if op.arg("bias_defined", False) else 0)


@rule("aten::matmul", formula="B m n k MACs, B = product of the broadcast batch")
def matmul(op: OpCall) -> Cost:
    """Product of operands of any rank; a vector has m = 1 or n = 1."""
    shape = op.shape("self")
    return product(op, op.out.numel * (shape[-1] if shape else 1))


@rule("aten::_trilinear", formula="R Oo I2 (I1 + 1) MACs: the first two factors are contracted, then the third")
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
    first = [max(a, b) for a, b in zip(sizes[0], sizes[1], strict=True)]
    second = [1 if d in early else max(n, m) for d, (n, m) in enumerate(zip(first, sizes[2], strict=True))]
    macs = (math.prod(first) if early else 0) + (math.prod(second) if summed - early else 0)
    multiplies = (0 if early else math.prod(first)) + (0 if summed - early else math.prod(second))
    op.let(first=math.prod(first), second=math.prod(second))
    return product(op, macs, multiplies)


@rule("aten::matmul_backward", formula="as the product, for each wanted gradient")
def matmul_backward(op: OpCall) -> Cost:
    """Gradients of both operands, as wanted."""
    left = op.shape("self")
    macs = op.tensor("grad").numel * (left[-1] if left else 1)
    return product(op, macs * sum(op.arg("mask", (True, True))))


@rule("aten::_foreach_mm", formula="m n k MACs per item")
def foreach_mm(op: OpCall) -> Cost:
    """A list of products."""
    pairs = zip(op.tensors("self"), op.tensors("mat2"), strict=False)
    return product(op, sum(a.shape[0] * a.shape[1] * b.shape[1] for a, b in pairs))
