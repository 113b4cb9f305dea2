"""Kinds of numbers that ops compute with, and the cost of elementwise work of each kind."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from tensortide import dtypes
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.errors import TensortideError
from tensortide.graph.model import Tensor

V = TypeVar("V")


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

    def per(self, what: str) -> str:
        """Formula text: so many per ``what``."""
        parts = {"special": self.transcendentals, "compared": self.comparisons}
        detail = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
        return f"{self.flops} per {what}" + (f" ({detail})" if detail else "")


WEIGHTS = {
    "arithmetic": Weights(1, 0, 0, 2),
    "comparison": Weights(1, 0, 1, 2),
    "multiplication": Weights(1, 0, 0, 6),
    "division": Weights(1, 1, 0, 11),
    "special": Weights(1, 1),
    "remainder": Weights(2, 1, 1),
    "conjugate": Weights(1, 0, 0, 1),
    "bounds": Weights(2, 0, 2),  # at least one number and at most another
    "relu": Weights(1, 0, 1, 2),
    "relu6": Weights(2, 0, 2),
    "relu_n1_to_1": Weights(2, 0, 2),
    "sign_bit": Weights(1, 0, 1, 2),
    "leaky_relu": Weights(2, 0, 1),
    "sigmoid": Weights(4, 2, 0, 16),  # negate, exp, add, reciprocal
    "tanh": Weights(1, 1),
    "silu": Weights(5, 2),
    "softplus": Weights(3, 2, 1),
    "softsign": Weights(3, 1, 1),  # x / (1 + |x|)
    "elu": Weights(4, 1, 1),
    "selu": Weights(5, 1, 1),
    "mish": Weights(5, 3, 1),
    "gelu": Weights(5, 1),
    "gelu_tanh": Weights(9, 1),
    "hard_sigmoid": Weights(4, 1, 2),  # add 3, two bounds, divide by 6
    "hard_swish": Weights(5, 1, 2),
    "xlogy": Weights(3, 1, 1),
    "quantize": Weights(4, 1, 3),
    "fake_quantize": Weights(6, 1, 3),
    "relu_gradient": Weights(1, 0, 1),
    "bounds_gradient": Weights(2, 0, 2),
    "leaky_relu_gradient": Weights(2, 0, 1),
    "sigmoid_gradient": Weights(3, 0, 0, 14),  # of tanh, too
    "elu_gradient": Weights(3, 0, 1),
    "softplus_gradient": Weights(5, 2, 1),
    "softsign_gradient": Weights(4, 1, 1),
    "silu_gradient": Weights(9, 2),
    "mish_gradient": Weights(14, 5, 1),
    "gelu_gradient": Weights(11, 2),
    "gelu_tanh_gradient": Weights(18, 1),
    "hard_sigmoid_gradient": Weights(3, 0, 2),
    "hard_swish_gradient": Weights(4, 0, 2),
}
"""Weights of functions by name, as rows of every vocabulary give them."""
ARITHMETIC, COMPARISON = WEIGHTS["arithmetic"], WEIGHTS["comparison"]


def weights_of(given: Weights | str | int | Sequence[int]) -> Weights:
    """Weights as a row gives them: a name of ``WEIGHTS``, FLOPs alone, or a list of the fields."""
    if isinstance(given, Weights):
        return given
    if isinstance(given, str):
        return chosen("weights", given, WEIGHTS)
    numbers = given if isinstance(given, Sequence) else [given]
    if not 0 < len(numbers) <= len(Weights._fields) or not all(type(n) is int and n >= 0 for n in numbers):
        raise TensortideError(
            f"weights: {given!r} is neither a name nor whole numbers, one to four, none negative: FLOPs, special "
            "functions, comparisons, FLOPs of a complex element."
        )
    return Weights(*numbers)


def chosen(key: str, given: str, table: Mapping[str, V]) -> V:
    """Look up what the key of a row says. Raises TensortideError, which lists the choices."""
    if given not in table:
        raise TensortideError(f"{key}: there is no {given!r}.\nGive one of: {', '.join(sorted(table))}.")
    return table[given]


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


Weigh: TypeAlias = Callable[[OpCall], Weights]


def per_element(
    weigh: Weigh, of: str = "out", kind: Kind | None = None, bound: str = ""
) -> Callable[[OpCall], Cost | None]:
    """Charge what ``weigh`` says for every element of the operand ``of``, of a sparse one for those that it stores.

    ``kind`` is that of the numbers where the op's tensors do not say it. ``bound`` is why the cost is no exact one.
    """

    @functools.wraps(weigh)
    def work(op: OpCall) -> Cost | None:
        count = op.stored(of)
        if count is None:
            return None
        op.let(E=count)
        cost = elements(op, count, weigh(op), kind)
        return msgspec.structs.replace(cost, exact=False, reason=bound) if bound else cost

    return work
