"""Contents of small tensors: what shapes are computed with. Elements are exact; unknown ones are None."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tensortide.dtypes import Kind, kind_of
from tensortide.importers.onnx.value import FEW, Contents

_HUGE = 1 << 80


def array(elements: Iterable[Any], shape: tuple[int, ...] | None = None) -> Contents:
    """Make contents of a flat list of elements; of one dimension if no ``shape`` is given."""
    listed = list(elements)
    made = np.empty(len(listed), object)
    made[:] = listed
    return made if shape is None else made.reshape(tuple(map(int, shape)))


def scalar(element: Any) -> Contents:
    """Make the contents of a tensor without dimensions."""
    return array([element], ())


def flat(contents: Contents | None) -> list[Any] | None:
    """List the elements; None where the contents are not known at all."""
    return None if contents is None else list(contents.flat)


def mapped(function: Callable[..., Any], *operands: Contents | None) -> Contents | None:
    """Apply ``function`` element by element, operands broadcast. What cannot be computed is an unknown element."""
    if any(operand is None for operand in operands):
        return None

    def apply(*elements: Any) -> Any:
        if any(element is None for element in elements):
            return None
        try:
            found = function(*elements)
        except (ArithmeticError, ValueError, TypeError):
            return None
        return None if isinstance(found, int) and abs(found) > _HUGE else found

    try:
        shape = np.broadcast_shapes(*(operand.shape for operand in operands if operand is not None))
    except ValueError:
        return None
    if math.prod(shape) > FEW:
        return None
    spread = [np.broadcast_to(operand, shape).flat for operand in operands if operand is not None]
    return array((apply(*elements) for elements in zip(*spread, strict=True)), shape)


def quotient(a: Any, b: Any) -> Any:
    """Divide as ONNX does: integers towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if (a >= 0) == (b > 0) else -(-a // b)
    return a / b


def remainder(a: Any, b: Any) -> Any:
    """Return the remainder with the sign of the divisor."""
    return a % b


BINARY: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": quotient,
    "Mod": remainder,
    "Pow": lambda a, b: a**b if abs(b) <= 64 else None,
    "Min": lambda *all: min(all),
    "Max": lambda *all: max(all),
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": lambda a, b: bool(a) != bool(b),
    "Not": lambda a: not a,
    "Where": lambda c, a, b: a if c else b,
    "Neg": lambda a: -a,
    "Abs": abs,
    "Sqrt": math.sqrt,
    "Floor": math.floor,
    "Ceil": math.ceil,
    "Round": round,
    "Reciprocal": lambda a: 1 / a,
    "Sign": lambda a: (a > 0) - (a < 0),
    "Sum": lambda *all: sum(all),
}
"""Ops on elements that shapes are computed with."""


def cast(contents: Contents | None, dtype: str) -> Contents | None:
    """Convert elements to another dtype."""
    if dtype == "bool":
        return mapped(bool, contents)
    if kind_of(dtype) is Kind.INTEGER:
        return mapped(lambda a: math.trunc(a) if not isinstance(a, int) or isinstance(a, bool) else a, contents)
    return contents
