"""Softmax and its logarithm. Counting convention: docs/cost.md, normalization and softmax."""

from __future__ import annotations

import math

from tensortide.cost.kinds import rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


def _row(op: OpCall, name: str = "self") -> tuple[int, int]:
    """Rows and row length of a reduction over one dimension."""
    shape = op.shape(name)
    n = shape[op.arg("dim", -1)] if shape else 1
    op.let(R=math.prod(shape) // max(1, n), n=n)
    return math.prod(shape) // max(1, n), n


@rule("aten::_softmax", "aten::_safe_softmax", "aten::softmax", "aten::_masked_softmax", formula="R (5n - 2)")
def softmax(op: OpCall) -> Cost:
    """Per row: maximum n-1, subtract n, exp n, add n-1, divide n."""
    rows, n = _row(op)
    masked = rows * n if op.has("mask") else 0
    return rows_work(op, rows * (5 * n - 2) + masked, 2 * rows * n, rows * (n - 1) + masked)


@rule("aten::_log_softmax", "aten::log_softmax", formula="R (5n - 1)")
def log_softmax(op: OpCall) -> Cost:
    """Per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n."""
    rows, n = _row(op)
    return rows_work(op, rows * (5 * n - 1), rows * (n + 1), rows * (n - 1))


@rule(
    "aten::_softmax_backward_data",
    "aten::_log_softmax_backward_data",
    "aten::_masked_softmax_backward",
    formula="R (4n - 1)",
)
def softmax_backward(op: OpCall) -> Cost:
    """Per row: one product and one sum, then subtract and multiply (exp in the logarithmic form)."""
    rows, n = _row(op, "grad_output")
    return rows_work(op, rows * (4 * n - 1), rows * n if "log" in op.base else 0)
