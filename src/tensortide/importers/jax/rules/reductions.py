"""Reductions, running sums and windows of JAX."""

from __future__ import annotations

import math

from tensortide.cost.kinds import Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON
from tensortide.importers.jax.rules.register import jax

_COMPARING = ("max", "min", "argmax", "argmin")


def _weights(name: str) -> Weights:
    if any(part in name for part in _COMPARING):
        return COMPARISON
    return Weights(1, 0, 0, 6) if "prod" in name or "mul" in name else ARITHMETIC


@jax("reduce_sum reduce_prod", "R (n - 1)")
@jax("reduce_max reduce_min argmax argmin", "R (n - 1) comparisons", "Largest or smallest, or its place.")
@jax("reduce_and reduce_or reduce_xor", "R (n - 1) integer ops", "Booleans or bits combined.")
def reduction(op: OpCall) -> Cost:
    """n - 1 additions, products or comparisons per row of n."""
    given, made = op.inputs[0].numel, op.out.numel
    op.let(E=given, R=made)
    if op.base in ("reduce_and", "reduce_or", "reduce_xor"):
        return Cost(int_ops=max(0, given - made))
    return elements(op, max(0, given - made), _weights(op.base), kind_of(op.inputs[:1]))


@jax("reduce", "R (n - 1) times the ops that combine two elements")
def reduce(op: OpCall) -> Cost:
    """A reduction by a function of two elements."""
    count = max(0, op.inputs[0].numel - op.out.numel)
    combining = op.arg("jaxpr", ("add",))
    work = rows_work(op, count * max(1, len(combining)))
    return work + Cost(exact=False, reason="by default: 1 FLOP per op that combines")


@jax("cumsum cumprod", "R (n - 1)", "Running sum or product along rows of n.")
@jax("cummax cummin", "R (n - 1) comparisons", "Running maximum or minimum.")
@jax("cumlogsumexp", "5 R (n - 1)", "Running logarithm of a sum of exponentials.")
def running(op: OpCall) -> Cost:
    """n - 1 steps per row."""
    given = op.inputs[0]
    n = given.shape[int(op.arg("axis", -1))]
    count = given.numel - given.numel // n if n else 0
    op.let(E=given.numel, n=n)
    return elements(op, count, Weights(5, 2, 1) if op.base == "cumlogsumexp" else _weights(op.base.removeprefix("cum")))


@jax("reduce_window_sum", "K - 1 adds per output", "Sum of each window.")
@jax("reduce_window_max reduce_window_min", "K - 1 comparisons per output", "Largest or smallest of each window.")
@jax("reduce_window", "K - 1 per output", "Reduction of each window by a function of two elements.")
def windows(op: OpCall) -> Cost:
    """Every window of K elements, those on padding included."""
    window = math.prod(op.arg("window_dimensions", (1,)))
    op.let(K=window, E=op.out.numel)
    return elements(op, (window - 1) * op.out.numel, _weights(op.base), kind_of(op.outputs[:1]))


@jax("select_and_scatter_add select_and_scatter", "K comparisons and additions per window", "Gradient of max pooling.")
@jax("select_and_gather_add", "K - 1 comparisons per output", "Tangent of max pooling.")
def pooled(op: OpCall) -> Cost:
    """Each gradient goes to the element of its window that was the largest: 1 per gradient, as for other pooling."""
    return elements(op, op.inputs[0].numel if "scatter" in op.base else op.out.numel, ARITHMETIC, kind_of(op.outputs))


@jax("scatter-add scatter-sub scatter-mul", "1 per update", "Updates added to the elements that indices name.")
@jax("scatter-min scatter-max", "1 comparison per update", "Smaller or larger values replace the elements.")
def scattered(op: OpCall) -> Cost:
    """One operation per element of the updates; a copy of the rest."""
    count = op.tensor("updates").numel if op.has("updates") and "updates" in op.arguments else op.out.numel
    weights = COMPARISON if op.base in ("scatter-min", "scatter-max") else _weights(op.base)
    return elements(op, count, weights, kind_of(op.outputs))
