"""Common forms of cost rules, registered for ops of ATen: so much per element, or nothing but bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from tensortide.cost.kinds import Kind, Weights, elements, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, Work

Weigh: TypeAlias = Callable[[OpCall], Weights]

aten = Vocabulary("aten")


def moves(names: str, formula: str, meaning: str, **options: Any) -> None:
    """Register the rule of ops that compute nothing: ``bytes`` says what they read and write, ``is_free``: nothing."""
    aten(names, formula, meaning=meaning, **options)(lambda op: Cost())


def each(
    names: str, formula: str, *, of: str = "", kind: Kind | None = None, bound: str = "", **options: Any
) -> Callable[[Weigh], Weigh]:
    """Register the decorated function, which weighs one element, as a rule.

    It is charged for every element of the argument ``of`` if the op has it, else of the output. ``kind`` is that of the
    numbers where the op's tensors do not say it. ``bound`` is why the cost is no exact one.
    """

    def register(weigh: Weigh) -> Weigh:
        aten(names, formula, **options)(_per_element(weigh, of, kind, bound))
        return weigh

    return register


each_real = functools.partial(each, of="grad_output", kind=Kind.REAL)
"""``each`` for ops on floating-point numbers; those of a backward op are charged per element of its gradient."""


def _per_element(weigh: Weigh, of: str = "", kind: Kind | None = None, bound: str = "") -> Work:
    @functools.wraps(weigh)
    def work(op: OpCall) -> Cost:
        count = (op.tensor(of) if of in op.arguments else op.out).numel
        op.let(E=count)
        cost = elements(op, count, weigh(op), kind)
        return msgspec.structs.replace(cost, exact=False, reason=bound) if bound else cost

    return work


def alike(weights: Weights, names: str, formula: str, meaning: str = "", **options: Any) -> None:
    """Register the rule of ops that cost the same for every element; options as for ``each``."""
    each(names, formula, meaning=meaning, **options)(lambda op: weights)


def simple(weights: Weights) -> Work:
    """The rule that charges ``weights`` for every output element."""
    return _per_element(lambda op: weights)


def rows_of(op: OpCall, name: str = "self", dim: int = -1) -> tuple[int, int]:
    """The number of rows, and their length, of an argument along the dimension ``dim``, if the op names no other."""
    shape = op.shape(name)
    n = shape[op.arg("dim", dim)] if shape else 1
    rows = math.prod(shape) // max(1, n)
    op.let(R=rows, n=n)
    return rows, n


def softmax_of(op: OpCall, rows: int, n: int, *, log: bool = False, extra: int = 0) -> Cost:
    """The cost of a softmax of ``rows`` of n elements, or of its logarithm, and of ``extra`` FLOPs before it.

    Per row: maximum n-1, subtract n, exp n, add n-1, divide n; the logarithm takes log 1, subtract n for the last.
    """
    flops = rows * (5 * n - (1 if log else 2)) + extra
    return rows_work(op, flops, rows * (n + 1 if log else 2 * n), rows * (n - 1))
