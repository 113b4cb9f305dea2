"""Ops of TensorFlow graphs to be costed, and numbers that count what is done to them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tensortide.cost import Cost
from tensortide.cost.evaluate import apply, rule_for
from tensortide.cost.opcall import OpCall
from tensortide.graph import TENSOR, Tensor
from tensortide.importers.tensorflow.signatures import operands

Shape = tuple[int, ...]
made = itertools.count()


def tensor(shape: Shape, dtype: str = "float32") -> Tensor:
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return Tensor(next(made), dtype, shape, strides)


def call(type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **attributes: Any) -> OpCall:
    given = iter(inputs)
    arguments: dict[str, object] = {
        name: tuple(next(given) for _ in value) if isinstance(value, tuple) else next(given)
        for name, value in operands(type, len(inputs))
        if value is TENSOR or isinstance(value, tuple)
    }
    result = tuple(outputs) if len(outputs) > 1 else outputs[0] if outputs else None
    return OpCall(f"tf::{type}", {**arguments, **attributes}, outputs, result)


def cost(type: str, inputs: Sequence[Shape | Tensor], outputs: Sequence[Shape | Tensor], **attributes: Any) -> Cost:
    """The cost of an op on float tensors of these shapes."""
    tensors = [[t if isinstance(t, Tensor) else tensor(t) for t in group] for group in (inputs, outputs)]
    made = call(type, tensors[0], tensors[1], **attributes)
    rule = rule_for(made.name)
    assert rule is not None, type
    found = apply(rule, made)
    assert found is not None
    return found


class Num:
    """A number that counts what is done to it."""

    counts: ClassVar[Counter[str]] = Counter()

    def _did(self, what: str) -> Num:
        Num.counts[what] += 1
        return Num()

    def __add__(self, other: object = None) -> Num:
        return self._did("flop")

    __sub__ = __mul__ = __radd__ = __rsub__ = __rmul__ = __neg__ = __add__

    def __truediv__(self, other: object) -> Num:
        return self._did("special")

    __rtruediv__ = __truediv__

    def special(self) -> Num:
        """exp, log, sqrt, ..."""
        return self._did("special")

    def compared(self, other: object = None) -> Num:
        """max, >, ..."""
        return self._did("compared")


def counted(work: Callable[[], object]) -> tuple[int, int, int]:
    """FLOPs, special functions and comparisons of ``work``."""
    Num.counts.clear()
    work()
    return sum(Num.counts.values()), Num.counts["special"], Num.counts["compared"]


def numbers(cost: Cost) -> tuple[int, int, int]:
    return cost.elementwise_flops, cost.transcendentals, cost.comparisons


def total(values: Sequence[Num]) -> Num:
    first, *rest = values
    for value in rest:
        first = first + value
    return first


def highest(values: Sequence[Num]) -> Num:
    first, *rest = values
    for value in rest:
        first = first.compared(value)
    return first
