"""Reductions, scans and norms; sorting and searching.

Counting convention: docs/cost.md, reductions, and sorting, searching, indexing. A reduction of an input of E elements
to R results costs E - R combinations.
"""

from __future__ import annotations

import math

import msgspec

from tensortide.cost.families import histogram, reduction, running, search, sort, topk
from tensortide.cost.families.reductions import along, ceil_log2, merge_comparisons
from tensortide.cost.kinds import COMPARISON, Kind, Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.graph.model import Tensor

aten = Vocabulary("aten", "reduction")

aten.rows({
    "sum _nested_sum_backward": reduction("sum"),
    "prod": reduction("product"),
    "mean nanmean": reduction("mean"),
    "amax amin argmax argmin any all _is_all_true _is_any_true": reduction("max"),
    "logsumexp": reduction("log_sum_exp"),
    "var var_mean": reduction("variance"),
    "std std_mean": reduction("deviation"),
    "histc histogram _histogramdd_from_bin_cts": histogram("reduction"),
    "cumsum": running("arithmetic", axis="dim", default=0),
    "cummax cummin _cummax_helper _cummin_helper": running("comparison", axis="dim", default=0),
    "cumprod": running("multiplication", axis="dim", default=0),
    "sort argsort msort": sort("dim"),
    "topk kthvalue": topk("dim", "k"),
    "searchsorted bucketize": search("sorted_sequence boundaries"),
})  # fmt: skip


def sizes(op: OpCall) -> tuple[int, int]:
    """Input elements E and results R."""
    total = op.tensor("self").numel
    results = min(op.out.numel, total)
    op.let(E=total, R=results)
    return total, results


@aten("trace nansum", "R (n - 1) (nansum: + R n tests)")
def total(op: OpCall) -> Cost:
    """n - 1 additions per row of n, or of the diagonal."""
    count, results = sizes(op)
    if op.base == "trace":
        count = min(op.shape("self"))
    extra = count if op.base == "nansum" else 0
    return rows_work(op, max(0, count - results) + extra, comparisons=extra)


@aten("max min aminmax _aminmax", "R (n - 1) comparisons, 2 R (n - 1) for both")
def extremum(op: OpCall) -> Cost:
    """Largest or smallest, or both; between two tensors, one comparison per element."""
    if isinstance(op.arg("other"), Tensor):
        return elements(op, op.out.numel, COMPARISON)
    count, results = sizes(op)
    return elements(op, (1 + ("aminmax" in op.base)) * max(0, count - results), COMPARISON)


@aten("count_nonzero", "R (2n - 1) integer ops")
def count_nonzero(op: OpCall) -> Cost:
    """A test per element and their sum."""
    count, results = sizes(op)
    if kind_of(op.inputs) is Kind.INTEGER:
        return Cost(int_ops=2 * count - results)
    return Cost(elementwise_flops=count, comparisons=count, int_ops=count - results)


@aten(
    "linalg_vector_norm norm native_norm frobenius_norm",
    "2-norm 2n R; 1-norm, infinity and 0: R (2n - 1); other p: 3n R",
)
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
    if order in (0.0, 1.0) or math.isinf(order):
        compared = 2 * count - results if math.isinf(order) else count
        return Cost(elementwise_flops=(first + 1) * count - results, comparisons=compared)
    return Cost(elementwise_flops=(first + 2) * count, transcendentals=count + results, comparisons=count)


@aten("_foreach_powsum linalg__powsum", "R (2n - 1), 3n - 1 unless the power is 1 or 2")
def power_sum(op: OpCall) -> Cost:
    """Sum of powers."""
    count, results = sizes(op)
    general = op.arg("ord", 2) not in (1, 2)
    return rows_work(op, (2 + general) * count - results, count * general)


@aten("dist", "n (difference) + norm")
def distance(op: OpCall) -> Cost:
    """Norm of a difference."""
    count = op.tensor("self").numel
    return Cost(elementwise_flops=count) + vector_norm(float(op.arg("p", 2)), count, 1)


@aten("renorm embedding_renorm", "norm of every row, 3 per row, n to scale")
def renormalize(op: OpCall) -> Cost:
    """Rows longer than a maximum scaled down to it."""
    shape, looked_up = op.shape("self"), "indices" in op.arguments
    rows = op.tensor("indices").numel if looked_up else shape[op.arg("dim", 0)]
    count = rows * (math.prod(shape[1:]) if looked_up else math.prod(shape) // max(1, rows))
    reason = "bound: every row is scaled" if looked_up else ""
    scaling = Cost(elementwise_flops=3 * rows + count, comparisons=rows, exact=not looked_up, reason=reason)
    return vector_norm(float(op.arg("p", op.arg("norm_type", 2))), count, rows) + scaling


@aten("logcumsumexp _logcumsumexp", "5 R (n - 1)")
def log_scan(op: OpCall) -> Cost:
    """Running logarithm of a sum of exponentials."""
    rows, n = along(op, "dim", 0)
    work = rows * (n - 1)
    return rows_work(op, 5 * work, 2 * work, work)


@aten("bincount", "1 per element")
def bincount(op: OpCall) -> Cost:
    """A count, or a sum of weights, per value."""
    count = op.tensor("self").numel
    return Cost(elementwise_flops=count) if op.has("weights") else Cost(int_ops=count)


@aten("segment_reduce _segment_reduce_backward", "1 per element (bound)")
def segments(op: OpCall) -> Cost:
    """Reduction of consecutive pieces."""
    return Cost(elementwise_flops=max(t.numel for t in op.inputs), exact=False, reason="bound: lengths not known")


# -- sorting and searching: comparisons are FLOPs between floating-point numbers, else integer ops --------


@aten("median nanmedian mode", "as a sort of every row (bound)")
def middle(op: OpCall) -> Cost:
    """Middle or most frequent value; without a dimension, of all elements."""
    whole = "median" in op.base and "dim" not in op.arguments
    rows, n = (1, op.tensor("self").numel) if whole else along(op, "dim")
    cost = elements(op, rows * merge_comparisons(n), COMPARISON, kind_of([op.tensor("self")]))
    return msgspec.structs.replace(cost, exact=False, reason="bound: a full sort")


@aten("isin", "(E + M) ceil(log2(M + 1)) comparisons")
def isin(op: OpCall) -> Cost:
    """Membership, by a sort of the M test elements and a search for each element."""
    tests = op.tensors("test_elements") or op.tensors("test_element")
    values = op.tensors("elements") or op.tensors("element")
    m, count = (given[0].numel if given else 1 for given in (tests, values))
    return elements(op, (count + m) * ceil_log2(m + 1), Weights(1, 0, 1), kind_of([*values, *tests]))


@aten(
    "_unique _unique2 unique_dim unique_consecutive unique_dim_consecutive nonzero masked_select nonzero_static",
    "n comparisons",
)
def unique(op: OpCall) -> Cost:
    """One comparison per element; the size of the result depends on the values."""
    if op.base == "masked_select":
        return Cost(int_ops=op.tensor("mask").numel)
    return elements(op, op.tensor("self").numel, COMPARISON, kind_of([op.tensor("self")]))
