"""Reductions, scans and norms. Counting convention: docs/cost.md, reductions.

A reduction of an input of E elements to R results costs E - R combinations.
"""

from __future__ import annotations

import math

from tensortide.cost.kinds import Kind, Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule
from tensortide.graph.model import Tensor


def sizes(op: OpCall, name: str = "self") -> tuple[int, int]:
    """Input elements E and results R."""
    total = op.tensor(name).numel
    results = min(op.out.numel, total)
    op.let(E=total, R=results)
    return total, results


@rule("aten::sum", "aten::prod", "aten::trace", "aten::nansum", "aten::_nested_sum_backward", formula="R (n - 1)")
def total(op: OpCall) -> Cost:
    """n - 1 additions or products per row of n."""
    count, results = sizes(op)
    if op.base == "trace":
        count = min(op.shape("self"))
    if op.base == "prod":
        return elements(op, max(0, count - results), Weights(1, 0, 0, 6))
    extra = count if op.base == "nansum" else 0
    return rows_work(op, max(0, count - results) + extra, comparisons=extra)


@rule("aten::mean", "aten::nanmean", formula="R n: n - 1 adds and a division per row")
def mean(op: OpCall) -> Cost:
    """Average."""
    count, results = sizes(op)
    return rows_work(op, max(count, results), results)


@rule(
    "aten::max", "aten::min", "aten::amax", "aten::amin", "aten::argmax", "aten::argmin", "aten::any", "aten::all",
    "aten::_is_all_true", "aten::_is_any_true",
    formula="R (n - 1) comparisons",
)  # fmt: skip
def extremum(op: OpCall) -> Cost:
    """Largest or smallest, or its place; between two tensors, one comparison per element."""
    if isinstance(op.arg("other"), Tensor):
        return elements(op, op.out.numel, Weights(1, 0, 1))
    count, results = sizes(op)
    return elements(op, max(0, count - results), Weights(1, 0, 1), kind_of([op.tensor("self")]))


@rule("aten::aminmax", "aten::_aminmax", formula="2 R (n - 1) comparisons")
def both_extrema(op: OpCall) -> Cost:
    """Smallest and largest."""
    count, results = sizes(op)
    return elements(op, 2 * max(0, count - results), Weights(1, 0, 1))


@rule("aten::count_nonzero", formula="R (2n - 1) integer ops")
def count_nonzero(op: OpCall) -> Cost:
    """A test per element and their sum."""
    count, results = sizes(op)
    if kind_of(op.inputs) is Kind.INTEGER:
        return Cost(int_ops=2 * count - results)
    return Cost(elementwise_flops=count, comparisons=count, int_ops=count - results)


@rule("aten::var", "aten::var_mean", formula="4 n R")
def variance(op: OpCall) -> Cost:
    """Per row: mean n, centre n, square n, mean n."""
    count, results = sizes(op)
    return rows_work(op, 4 * count, 2 * results)


@rule("aten::std", "aten::std_mean", formula="R (4n + 1)")
def deviation(op: OpCall) -> Cost:
    """Per row: variance 4n and a square root."""
    count, results = sizes(op)
    return rows_work(op, 4 * count + results, 3 * results)


@rule(
    "aten::linalg_vector_norm", "aten::norm", "aten::native_norm", "aten::frobenius_norm",
    formula="2-norm 2n R; 1-norm, infinity and 0: R (2n - 1); other p: 3n R",
)  # fmt: skip
def norm(op: OpCall) -> Cost:
    """Norm of rows: one function per element, a sum or maximum, one function per row."""
    order = op.arg("ord", op.arg("p", 2))
    order = float(order) if isinstance(order, (int, float)) else 2.0
    count, results = sizes(op)
    op.let(ord=str(order))
    return vector_norm(order, count, results, kind_of(op.inputs) is Kind.COMPLEX)


def vector_norm(order: float, count: int, results: int, complex_input: bool = False) -> Cost:
    """Norm ``order`` of ``count`` elements in ``results`` rows; |z|^2 of a complex number is 3, |z| 4."""
    first = (3 if order == 2 else 4) if complex_input else 1
    if order == 2:
        return Cost(elementwise_flops=(first + 1) * count, transcendentals=results)
    if order in (0.0, 1.0):
        compared = count
        return Cost(elementwise_flops=(first + 1) * count - results, comparisons=compared)
    if math.isinf(order):
        return Cost(elementwise_flops=(first + 1) * count - results, comparisons=2 * count - results)
    return Cost(elementwise_flops=(first + 2) * count, transcendentals=count + results, comparisons=count)


@rule("aten::_foreach_powsum", "aten::linalg__powsum", formula="R (2n - 1), 3n - 1 unless the power is 1 or 2")
def power_sum(op: OpCall) -> Cost:
    """Sum of powers."""
    order = op.arg("ord", 2)
    count, results = sizes(op)
    general = order not in (1, 2)
    return rows_work(op, (3 if general else 2) * count - results, count if general else 0)


@rule("aten::dist", formula="n (difference) + norm")
def distance(op: OpCall) -> Cost:
    """Norm of a difference."""
    count = op.tensor("self").numel
    return Cost(elementwise_flops=count) + vector_norm(float(op.arg("p", 2)), count, 1)


@rule("aten::renorm", "aten::embedding_renorm", formula="norm of every row, 3 per row, n to scale")
def renormalize(op: OpCall) -> Cost:
    """Rows longer than a maximum scaled down to it."""
    shape = op.shape("self")
    order = float(op.arg("p", op.arg("norm_type", 2)))
    rows = op.tensor("indices").numel if "indices" in op.arguments else shape[op.arg("dim", 0)]
    count = rows * (math.prod(shape[1:]) if "indices" in op.arguments else math.prod(shape) // max(1, rows))
    cost = vector_norm(order, count, rows) + Cost(elementwise_flops=3 * rows + count, comparisons=rows)
    return Cost(
        elementwise_flops=cost.elementwise_flops,
        transcendentals=cost.transcendentals,
        comparisons=cost.comparisons,
        exact="indices" not in op.arguments,
        reason="bound: every row is scaled" if "indices" in op.arguments else "",
    )


@rule("aten::cumsum", "aten::cumprod", "aten::cummax", "aten::cummin", formula="R (n - 1)")
@rule("aten::_cummax_helper", "aten::_cummin_helper", formula="R (n - 1)")
def scan(op: OpCall) -> Cost:
    """Running sum, product or extremum: n - 1 combinations per row of n."""
    count, rows = _rows(op)
    compared = "cumm" in op.base
    kind = kind_of([op.tensor("self")])
    return elements(op, count - rows, Weights(1, 0, int(compared), 6 if op.base == "cumprod" else 2), kind)


@rule("aten::logcumsumexp", "aten::_logcumsumexp", formula="5 R (n - 1)")
def log_scan(op: OpCall) -> Cost:
    """Running logarithm of a sum of exponentials."""
    count, rows = _rows(op)
    work = count - rows
    return rows_work(op, 5 * work, 2 * work, work)


def _rows(op: OpCall) -> tuple[int, int]:
    shape = op.shape("self")
    count = math.prod(shape)
    n = shape[op.arg("dim", 0)] if shape else 1
    op.let(R=count // max(1, n), n=n)
    return count, count // max(1, n)


@rule("aten::logsumexp", formula="4 n R")
def logsumexp(op: OpCall) -> Cost:
    """Per row: maximum n - 1, subtract n, exp n, add n - 1, log 1, add 1."""
    count, results = sizes(op)
    return rows_work(op, 4 * count, count + results, count - results)


@rule("aten::histc", "aten::histogram", "aten::_histogramdd_from_bin_cts", formula="3 per element and an integer add")
def histogram(op: OpCall) -> Cost:
    """Bin of each element (subtract, divide, round down) and a count."""
    count = op.tensor("self").numel
    return Cost(elementwise_flops=3 * count, transcendentals=count, comparisons=count, int_ops=count)


@rule("aten::bincount", formula="1 per element")
def bincount(op: OpCall) -> Cost:
    """A count, or a sum of weights, per value."""
    count = op.tensor("self").numel
    return Cost(elementwise_flops=count) if op.has("weights") else Cost(int_ops=count)


@rule("aten::segment_reduce", "aten::_segment_reduce_backward", formula="1 per element (bound)")
def segments(op: OpCall) -> Cost:
    """Reduction of consecutive pieces."""
    return Cost(elementwise_flops=max(t.numel for t in op.inputs), exact=False, reason="bound: lengths not known")
