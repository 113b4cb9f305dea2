"""Products: matrices, batches of matrices, einsum."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.expr import Expr
from tensortide.importers.tf1.program import Shape
from tensortide.importers.tf1.shapes.elementwise import broadcast
from tensortide.importers.tf1.shapes.table import Op, Result, Tensor, shape_of
from tensortide.importers.tf1.sizes.unify import Contradiction

__all__ = ["einsum_terms"]


def _matrices(op: Op, transposed: Sequence[bool]) -> list[Shape]:
    """Return the shapes of both operands as they are multiplied."""
    shapes = []
    for i, swapped in enumerate(transposed):
        shape = op.shape(i)
        if len(shape) < 2:
            raise Contradiction(f"a matrix of {len(shape)} dimensions")
        shapes.append((*shape[:-2], shape[-1], shape[-2]) if swapped else shape)
    return shapes


@shape_of("MatMul SparseMatMul")
def matrix_product(op: Op) -> Result:
    a, b = _matrices(op, (op.flag("transpose_a"), op.flag("transpose_b")))
    if len(a) != 2 or len(b) != 2:
        raise Contradiction(f"matrices of {len(a)} and {len(b)} dimensions")
    op.equal(a[1], b[0])
    return [Tensor((op.sizes.now(a[0]), op.sizes.now(b[1])))]


@shape_of("BatchMatMul BatchMatMulV2 BatchMatMulV3")
def batch_product(op: Op) -> Result:
    a, b = _matrices(op, (op.flag("adj_x"), op.flag("adj_y")))
    op.equal(a[-1], b[-2])
    batch = op.same(a[:-2], b[:-2]) if op.type == "BatchMatMul" else broadcast(op, a[:-2], b[:-2])
    return [Tensor((*batch, a[-2], b[-1]))]


def einsum_terms(equation: str) -> tuple[list[str], str]:
    """Return the index letters of the operands and of the result; an ellipsis is one letter, ``.``."""
    left, arrow, result = equation.replace(" ", "").replace("...", ".").partition("->")
    terms = left.split(",")
    if not arrow:
        letters = "".join(terms)
        result = "".join(sorted({c for c in letters if letters.count(c) == 1 or c == "."}))
    return terms, result


@shape_of("Einsum")
def einsum(op: Op) -> Result:
    terms, result = einsum_terms(op.text("equation"))
    if len(terms) != len(op.inputs):
        raise Contradiction(f"{len(op.inputs)} operands and the equation {op.text('equation')!r}")
    sizes: dict[str, Expr] = {}
    around: Shape = ()
    for i, letters in enumerate(terms):
        shape = op.shape(i)
        extra = len(shape) - len(letters.replace(".", ""))
        if extra < 0 or (extra and "." not in letters):
            raise Contradiction(f"{len(shape)} dimensions and the indices {letters!r}")
        front = letters.find(".") if "." in letters else 0
        around = broadcast(op, around, shape[front : front + extra])
        named = shape[:front] + shape[front + extra :]
        for letter, dim in zip(letters.replace(".", ""), named, strict=True):
            sizes[letter] = op.equal(sizes[letter], dim) if letter in sizes else dim
    dims: list[Expr] = []
    for letter in result:
        dims += around if letter == "." else [sizes[letter]]
    return [Tensor(tuple(dims))]
