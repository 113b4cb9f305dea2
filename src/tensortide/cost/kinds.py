"""Kinds of numbers that ops compute with, and the cost of elementwise work of each kind."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from tensortide import dtypes
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.graph.model import Tensor


class Kind(enum.IntEnum):
    """Integers and booleans, real floating-point numbers, or complex ones; the larger absorbs the smaller."""

    INTEGER = 0
    REAL = 1
    COMPLEX = 2


def dtype_kind(dtype: str) -> Kind:
    """Kind of a dtype by its name."""
    return _KINDS.get(dtype, Kind.INTEGER)


_OF_TABLE = {dtypes.Kind.FLOAT: Kind.REAL, dtypes.Kind.COMPLEX: Kind.COMPLEX}
_KINDS = {row.name: _OF_TABLE.get(row.kind, Kind.INTEGER) for row in dtypes.DTYPES.values()}


def kind_of(tensors: Iterable[Tensor]) -> Kind:
    """The largest kind among ``tensors``."""
    return max((dtype_kind(tensor.dtype) for tensor in tensors), default=Kind.INTEGER)


class Weights(NamedTuple):
    """Elementwise FLOPs per element, of which transcendentals and comparisons; FLOPs per complex element."""

    flops: int
    transcendentals: int = 0
    comparisons: int = 0
    complex_flops: int | None = None


def elements(op: OpCall, count: int, weights: Weights, kind: Kind | None = None) -> Cost:
    """The cost of ``weights`` on ``count`` elements, of the kind that the op's tensors say."""
    if kind is None:
        kind = kind_of([*op.inputs, *op.outputs])
    flops = weights.flops
    if kind is Kind.INTEGER:
        return Cost(int_ops=count * flops)
    if kind is Kind.COMPLEX:
        if weights.complex_flops is None:
            return Cost(elementwise_flops=2 * flops * count, exact=False, reason="complex: twice the real work")
        flops = weights.complex_flops
    return Cost(
        elementwise_flops=count * flops,
        transcendentals=count * weights.transcendentals,
        comparisons=count * weights.comparisons,
    )


def rows_work(op: OpCall, flops: int, transcendentals: int = 0, comparisons: int = 0) -> Cost:
    """Work counted in total, not per element; complex additions and the like cost twice."""
    return elements(op, 1, Weights(flops, transcendentals, comparisons, 2 * flops))
