"""Factorizations and solves, pairwise distances, Fourier transforms.

Counting convention: docs/cost.md, matrix products and FFT. Factorizations count leading terms, after Golub and Van
Loan, Matrix Computations; what iterates until it converges (eigenvalues, singular values) has no rule. A complex
transform of any length n is 5 n log2 n, the figure of radix 2 (Cooley and Tukey, 1965; Frigo and Johnson report all
FFTs in it).
"""

from __future__ import annotations

import math

from tensortide.cost.families import decomposition, move
from tensortide.cost.families.products import product, transform
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.graph.model import Tensor

aten = Vocabulary("aten", "decomposition")


def _leading(op: OpCall, per_matrix: int, batch: int) -> Cost:
    macs = product(op, per_matrix * batch).macs
    return Cost(macs=macs, exact=False, reason="leading term")


def _matrix(op: OpCall, matrix: Tensor | None = None) -> tuple[int, int, int]:
    """Rows, columns and batch of the matrix that an op is given."""
    *batch, m, n = (matrix or op.first("self", "A", "input")).shape
    op.let(m=m, n=n, batch=math.prod(batch))
    return m, n, math.prod(batch)


aten.rows({
    "linalg_cholesky_ex cholesky linalg_cholesky": decomposition("cholesky"),
    "linalg_inv_ex linalg_inv inverse": decomposition("inverse"),
    "cholesky_inverse": decomposition("inverse_of_factor"),
    "linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet": decomposition("lu"),
    "linalg_ldl_factor_ex": decomposition("ldl"),
    "geqrf linalg_householder_product": decomposition("qr"),
    "_linalg_check_errors": move("A check of the result of a factorization."),
})  # fmt: skip


@aten("linalg_qr", "n^2 (m - n/3) MACs for R, as much again for Q (m >= n)")
def qr(op: OpCall) -> Cost | None:
    """Orthogonal and triangular factor by reflections."""
    one = decomposition("qr").work(op)
    return one if one is None or op.arg("mode", "reduced") == "r" else one * 2


@aten("ormqr", "2 m n k MACs: k reflections applied to (m,n)")
def apply_reflections(op: OpCall) -> Cost:
    """An orthogonal matrix, given by reflections, times a matrix."""
    m, n, batch = _matrix(op, op.tensor("input3"))
    return _leading(op, 2 * m * n * op.shape("input2")[-1], batch)


def _right_sides(op: OpCall, name: str, n: int) -> int:
    """Right-hand sides per matrix: one for a vector."""
    shape = op.shape(name)
    r = shape[-1] if len(shape) > 1 and shape[-2] == n else 1
    op.let(r=r)
    return r


@aten("linalg_solve_triangular triangular_solve", "n^2 r / 2 MACs")
def solve_triangular(op: OpCall) -> Cost:
    """Back substitution for r right-hand sides."""
    matrix, sides = ("A", "self") if op.base == "triangular_solve" else ("self", "B")
    n, _, batch = _matrix(op, op.tensor(matrix))
    r = op.shape(sides)[-1 if op.arg("left", True) else -2]
    op.let(r=r)
    return _leading(op, n * n * r // 2, max(batch, math.prod(op.shape(sides)[:-2])))


@aten("_linalg_solve_ex linalg_solve", "n^3 / 3 + n^2 r MACs")
def solve(op: OpCall) -> Cost:
    """Elimination, then two substitutions for r right-hand sides."""
    n, _, batch = _matrix(op, op.tensor("A"))
    return _leading(op, n**3 // 3 + n * n * _right_sides(op, "B", n), batch)


@aten("cholesky_solve _cholesky_solve_helper linalg_lu_solve linalg_ldl_solve", "n^2 r MACs")
def solve_factored(op: OpCall) -> Cost:
    """Two substitutions for r right-hand sides."""
    sides = "self" if "cholesky" in op.base else "B"
    n, _, batch = _matrix(op, op.first("LU", "LD", "A", "input2"))
    return _leading(op, n * n * _right_sides(op, sides, n), max(batch, math.prod(op.shape(sides)[:-2])))


@aten("_compute_linear_combination", "m n k MACs")
def linear_combination(op: OpCall) -> Cost:
    """Several matrices weighted and summed."""
    return product(op, op.tensor("coefficients").numel * math.prod(op.shape("input")[1:]))


# -- distances --------------------------------------------------------------------------------------

PRODUCT_FROM = 25
"""Above this number of rows on either side PyTorch multiplies instead of subtracting, unless told otherwise."""


def by_product(batch: int, rows: int, others: int, d: int) -> Cost:
    """``|x|^2 + |y|^2 - 2 x y``; the two columns that the kernel appends to the product are recomputation."""
    pairs = batch * rows * others
    return Cost(
        macs=pairs * d,
        kernel_recompute_macs=2 * pairs,
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


@aten("_euclidean_dist", "P R d MACs + 2 d (P + R) + 3 P R", meaning="Euclidean distances by a product.")
@aten("_cdist_forward cdist", "product mode P R d MACs + 2 d (P + R) + 3 P R; direct 3 d per pair")
def cdist(op: OpCall) -> Cost:
    """Distances of all pairs of rows: mode 1 multiplies, 2 subtracts, else by the number of rows."""
    (*_, rows, d), others, batch = op.shape("x1"), op.shape("x2")[-2], math.prod(op.out.shape[:-2])
    op.let(B=batch, P=rows, R=others, d=d)
    p, mode = float(op.arg("p", 2.0)), op.arg("compute_mode", 0)
    if op.base == "_euclidean_dist" or (p == 2 and (mode == 1 or (mode == 0 and max(rows, others) > PRODUCT_FROM))):
        return by_product(batch, rows, others, d)
    return directly(batch * rows * others, d, p)


@aten("_pdist_forward", "direct: 3 d per pair")
def pdist(op: OpCall) -> Cost:
    """Distances of the pairs among one set of rows."""
    n, d = op.shape("self")
    op.let(n=n, d=d)
    return directly(n * (n - 1) // 2, d, float(op.arg("p", 2.0)))


@aten("_cdist_backward _pdist_backward", "4 d per pair")
def distance_backward(op: OpCall) -> Cost:
    """Gradient of pairwise distances."""
    pairs, d = op.first("cdist", "pdist").numel, op.first("x1", "self").shape[-1]
    return Cost(elementwise_flops=4 * d * pairs, transcendentals=pairs)


# -- Fourier transforms -----------------------------------------------------------------------------


@aten(
    "_fft_c2c",
    "per transform ceil(5 n log2 n), + 2 per output if normalized",
    meaning="Complex to complex.",
    family="fourier",
)
@aten(
    "_fft_r2c",
    "per transform ceil(2.5 n log2 n), + 2 per output if normalized",
    meaning="Real to complex, with or without the redundant half.",
)
@aten("_fft_c2r", "per transform ceil(2.5 n log2 n), + 1 per output if normalized")
def fft(op: OpCall) -> Cost:
    """Complex to real."""
    shape = op.out.shape if op.base == "_fft_c2r" else op.shape("self")
    n = math.prod(shape[d] for d in op.arg("dim", ()))
    batch = math.prod(shape) // max(1, n)
    op.let(n=n, batch=batch)
    scale = (1 if op.base == "_fft_c2r" else 2) if op.arg("normalization", 0) else 0
    flops = batch * transform(n, real=op.base != "_fft_c2c") + scale * op.out.numel
    return Cost(elementwise_flops=flops, exact=False, reason="FFT by convention: 5 n log2 n")
