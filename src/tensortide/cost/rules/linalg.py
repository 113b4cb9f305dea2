"""Factorizations and solves: leading terms, after Golub and Van Loan, Matrix Computations.

Counting convention: docs/cost.md, matrix products. What iterates until it converges (eigenvalues, singular values)
has no rule.
"""

from __future__ import annotations

import math

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.cost.rules.products import product

REASON = "leading term"


def _cost(op: OpCall, per_matrix: int, batch: int) -> Cost:
    cost = product(op, per_matrix * batch)
    return Cost(macs=cost.macs, exact=False, reason=REASON)


def _matrix(op: OpCall, name: str) -> tuple[int, int, int]:
    """Rows, columns and batch."""
    *batch, m, n = op.shape(name)
    op.let(m=m, n=n, batch=math.prod(batch))
    return m, n, math.prod(batch)


def _first(op: OpCall) -> str:
    return next(name for name in ("self", "A", "input") if name in op.arguments)


@rule("aten::linalg_cholesky_ex", "aten::cholesky", "aten::linalg_cholesky", formula="n^3 / 6 MACs")
def cholesky(op: OpCall) -> Cost:
    """Triangular factor of a positive definite matrix."""
    n, _, batch = _matrix(op, _first(op))
    return _cost(op, n**3 // 6, batch)


@rule(
    "aten::linalg_lu_factor_ex", "aten::linalg_lu", "aten::_linalg_det", "aten::_linalg_slogdet",
    "aten::linalg_ldl_factor_ex",
    formula="k^2 (max - k/3) / 2 MACs, k the smaller side: n^3 / 3 if square; LDL n^3 / 6",
)  # fmt: skip
def lu(op: OpCall) -> Cost:
    """Triangular factors by elimination."""
    m, n, batch = _matrix(op, _first(op))
    k, large = min(m, n), max(m, n)
    return _cost(op, k * k * (3 * large - k) // (12 if "ldl" in op.base else 6), batch)


@rule("aten::linalg_qr", "aten::geqrf", formula="n^2 (m - n/3) MACs for R, as much again for Q (m >= n)")
def qr(op: OpCall) -> Cost:
    """Orthogonal and triangular factor by reflections."""
    m, n, batch = _matrix(op, _first(op))
    k, large = min(m, n), max(m, n)
    factors = 1 if op.base == "geqrf" or op.arg("mode", "reduced") == "r" else 2
    return _cost(op, factors * (k * k * (3 * large - k) // 3), batch)


@rule("aten::linalg_householder_product", formula="n^2 (m - n/3) MACs")
def householder(op: OpCall) -> Cost:
    """The orthogonal matrix of a set of reflections."""
    m, n, batch = _matrix(op, _first(op))
    k, large = min(m, n), max(m, n)
    return _cost(op, k * k * (3 * large - k) // 3, batch)


@rule("aten::ormqr", formula="2 m n k MACs: k reflections applied to (m,n)")
def apply_reflections(op: OpCall) -> Cost:
    """An orthogonal matrix, given by reflections, times a matrix."""
    m, n, batch = _matrix(op, "input3")
    return _cost(op, 2 * m * n * op.shape("input2")[-1], batch)


@rule("aten::linalg_inv_ex", "aten::linalg_inv", "aten::inverse", formula="n^3 MACs")
def inverse(op: OpCall) -> Cost:
    """Inverse matrix."""
    n, _, batch = _matrix(op, _first(op))
    return _cost(op, n**3, batch)


@rule("aten::cholesky_inverse", formula="n^3 / 3 MACs")
def cholesky_inverse(op: OpCall) -> Cost:
    """Inverse from a triangular factor."""
    n, _, batch = _matrix(op, "self")
    return _cost(op, n**3 // 3, batch)


def _right_sides(op: OpCall, name: str, n: int) -> int:
    """Right-hand sides per matrix: one for a vector."""
    shape = op.shape(name)
    return shape[-1] if len(shape) > 1 and shape[-2] == n else 1


@rule("aten::linalg_solve_triangular", "aten::triangular_solve", formula="n^2 r / 2 MACs")
def solve_triangular(op: OpCall) -> Cost:
    """Back substitution for r right-hand sides."""
    matrix, sides = ("A", "self") if op.base == "triangular_solve" else ("self", "B")
    n, _, batch = _matrix(op, matrix)
    left = op.arg("left", True)
    r = op.shape(sides)[-1 if left else -2]
    batch = max(batch, math.prod(op.shape(sides)[:-2]))
    op.let(r=r)
    return _cost(op, n * n * r // 2, batch)


@rule("aten::_linalg_solve_ex", "aten::linalg_solve", formula="n^3 / 3 + n^2 r MACs")
def solve(op: OpCall) -> Cost:
    """Elimination, then two substitutions for r right-hand sides."""
    n, _, batch = _matrix(op, "A")
    r = _right_sides(op, "B", n)
    op.let(r=r)
    return _cost(op, n**3 // 3 + n * n * r, batch)


@rule(
    "aten::cholesky_solve", "aten::_cholesky_solve_helper", "aten::linalg_lu_solve", "aten::linalg_ldl_solve",
    formula="n^2 r MACs",
)  # fmt: skip
def solve_factored(op: OpCall) -> Cost:
    """Two substitutions for r right-hand sides."""
    matrix, sides = {"linalg_lu_solve": ("LU", "B"), "linalg_ldl_solve": ("LD", "B")}.get(op.base, ("A", "self"))
    if matrix == "A" and "A" not in op.arguments:
        matrix = "input2"
    n, _, batch = _matrix(op, matrix)
    r = _right_sides(op, sides, n)
    return _cost(op, n * n * r, max(batch, math.prod(op.shape(sides)[:-2])))


@rule("aten::_compute_linear_combination", formula="m n k MACs")
def linear_combination(op: OpCall) -> Cost:
    """Several matrices weighted and summed."""
    coefficients = op.tensor("coefficients")
    return product(op, coefficients.numel * math.prod(op.shape("input")[1:]))


@rule("aten::_linalg_check_errors", formula="0 FLOP: error flags are read")
def check(op: OpCall) -> Cost:
    """A check of the result of a factorization."""
    del op
    return Cost()
