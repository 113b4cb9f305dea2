"""Products of JAX: contractions, convolutions and their gradients, ragged products, attention, linear algebra.

The same counts as for the ops of other vocabularies: docs/cost.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.products import product
from tensortide.importers.jax.rules.register import jax


@jax("dot_general", "E k MACs, k the contracted sizes; if nothing is contracted, E multiplications")
def dot_general(op: OpCall) -> Cost:
    """Contraction of two tensors over pairs of dimensions, batched over others."""
    (contracted, _), _ = op.arg("dimension_numbers")
    k = math.prod(op.shape("lhs")[dim] for dim in contracted)
    op.let(E=op.out.numel, k=k)
    return product(op, op.out.numel * k) if contracted else product(op, 0, op.out.numel)


@jax(
    "conv_general_dilated",
    "N O C_out (C_in/g) K MACs; with lhs_dilation I for O; gradients as the convolution that they are of",
)
def convolution(op: OpCall) -> Cost:
    """Every output site meets the whole kernel, taps on padding included; of a dilated (transposed) input every input
    site does. A gradient costs what its convolution does, in whichever form it is written."""
    lhs_spec, rhs_spec, out_spec = op.arg("dimension_numbers")
    left, kernel = _spatial(op.shape("lhs"), lhs_spec), _spatial(op.shape("rhs"), rhs_spec)
    made = _spatial(op.out.shape, out_spec)
    features = op.shape("rhs")[rhs_spec[1]]
    transposed = _dilated(op.arg("lhs_dilation"))
    per_site = op.out.numel // max(1, made) * features
    op.let(I=left, O=made, K=kernel, C=per_site)
    match op.arg("gradient_of", ""):
        case "weight":  # here the kernel is a gradient, and the output as large as the kernel
            return product(op, op.out.numel * features * (left if transposed else kernel))
        case "input":
            sites = made if _dilated(op.arg("window_strides")) else left
            return product(op, per_site * kernel * sites)
        case _:
            return product(op, per_site * kernel * (left if transposed else made))


def _spatial(shape: Sequence[int], spec: Sequence[int]) -> int:
    """Return the number of sites: the first two dimensions of a specification are batch and features."""
    return math.prod(shape[dim] for dim in spec[2:])


def _dilated(steps: Any) -> bool:
    return any(step != 1 for step in steps or ())


@jax("ragged_dot_general", "T k n MACs: each row meets one group's matrix; by groups of the contraction also T k n")
def ragged(op: OpCall) -> Cost:
    """Product of rows with the matrix of their group. How many rows the groups have is data: all of them count."""
    numbers = op.arg("ragged_dot_dimension_numbers")
    (contracted, _), (batch, _) = numbers[0]
    left, right = op.shape("lhs"), op.shape("rhs")
    k = math.prod(left[dim] for dim in contracted)
    others = math.prod(n for dim, n in enumerate(left) if dim not in (*contracted, *batch))
    in_groups = set(numbers[2])
    columns = math.prod(
        n for dim, n in enumerate(right)
        if dim not in in_groups and dim not in numbers[0][0][1] and dim not in numbers[0][1][1]
    )  # fmt: skip
    macs = math.prod(left[dim] for dim in batch) * others * k * columns
    op.let(T=others, k=k, n=columns)
    return msgspec.structs.replace(product(op, macs), exact=False, reason="bound: rows beyond the groups count, too")


@jax("scaled_dot", "E k MACs")
def scaled_dot(op: OpCall) -> Cost:
    """Product of matrices in a format with shared scales."""
    k = op.inputs[0].shape[-1]
    return product(op, op.out.numel * k)


@jax(
    "dot_product_attention_fwd dot_product_attention_fwd_wrapper", "B H Sq Sk (Dk + Dv) MACs, + B H Sq (5 Sk - 2 + Sk)",
    "Fused attention of cuDNN on (batch, sequence, heads, size).",
)  # fmt: skip
@jax(
    "dot_product_attention_bwd dot_product_attention_bwd_wrapper",
    "2 B H Sq Sk (Dk + Dv) MACs, + B H Sq (5 Sk - 1)", "Gradient of fused attention.",
)  # fmt: skip
def attention(op: OpCall) -> Cost:
    """Scores, softmax and values of every head; dense, whatever the mask."""
    query, key, value = (tensor.shape for tensor in op.inputs[:3])
    if len(query) != 4 or len(key) != 4 or len(value) != 4:
        return Cost(exact=False, reason="attention in an unknown layout")
    batch, rows, heads, size = query
    columns, pairs = key[1], batch * heads * rows * key[1]
    op.let(B=batch, H=heads, Sq=rows, Sk=columns)
    backward = "bwd" in op.base
    macs = pairs * (size + value[3]) * (2 if backward else 1)
    work = batch * heads * rows * ((5 * columns - 1) if backward else (6 * columns - 2))
    cost = product(op, macs, work)
    return msgspec.structs.replace(cost, kernel_recompute_macs=pairs * size if backward else 0)


def _solved(op: OpCall, macs: int) -> Cost:
    return msgspec.structs.replace(product(op, macs), exact=False, reason="leading term")


@jax("cholesky", "n^3/6 MACs", "Cholesky factor of (n,n).")
@jax("lu", "n^3/3 MACs", "LU factors of (n,n).")
@jax("qr geqrf geqp3", "n^2 (m - n/3) MACs", "QR factors of (m,n), R only.")
@jax("triangular_solve", "n^2 r/2 MACs", "Solution of a triangular system with r right sides.")
@jax("tridiagonal_solve", "3 n r MACs", "Solution of a tridiagonal system with r right sides.")
@jax("householder_product ormqr", "n^2 (m - n/3) MACs", "Product of the reflections of a QR factorization.")
def linear_algebra(op: OpCall) -> Cost:
    """Leading term, rounded down."""
    if op.base == "tridiagonal_solve":
        return _solved(op, 3 * op.inputs[-1].numel)
    *outer, m, n = op.inputs[0].shape
    batch = math.prod(outer)
    op.let(m=m, n=n)
    if op.base == "triangular_solve":
        right = op.inputs[1].numel // max(1, m * batch)
        op.let(r=right)
        return _solved(op, batch * (n * n * right // 2))
    small, large = min(m, n), max(m, n)
    macs = {"cholesky": n**3 // 6, "lu": small * small * large // 3 if m != n else n**3 // 3}
    return _solved(op, batch * macs.get(op.base, (3 * small * small * large - small**3) // 3))
