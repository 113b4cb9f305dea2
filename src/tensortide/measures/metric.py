"""Metrics as data: a name, a unit, a direction, and how two values of one are compared."""

from __future__ import annotations

import enum
from typing import Literal, TypeAlias, get_args

import msgspec

from tensortide.errors import MetricError

Direction: TypeAlias = Literal["lower", "higher", ""]
"""Which of two values is better; ``""``: neither."""
Unit: TypeAlias = Literal[
    "bytes", "flops", "macs", "ns", "amount", "count", "share", "flops_per_byte", "number", "text"
]
"""Base unit of a value. Display alone scales it."""
Number: TypeAlias = int | float
_DIRECTIONS = get_args(Direction)


class Comparative(enum.StrEnum):
    """Form of the one number that compares a reference x with another value y."""

    DIFF = "diff"
    """x - y"""
    DIV = "div"
    """x / y"""
    RECIPROCAL = "reciprocal"
    """y / x"""
    NONE = "none"

    @classmethod
    def of(cls, named: Comparative | str) -> Comparative:
        """Return a comparative by its name, in any case. Raises MetricError if there is none."""
        try:
            return cls(named.lower())
        except ValueError:
            known = ", ".join(one.name for one in cls)
            raise MetricError(f"there is no comparative {named!r}; there are {known}") from None

    def of_values(self, x: Number, y: Number) -> float | None:
        """Compare a reference ``x`` with ``y``; None without a comparative, and for a division by 0."""
        if self is Comparative.DIFF:
            return x - y
        if self is Comparative.NONE or (y if self is Comparative.DIV else x) == 0:
            return None
        return x / y if self is Comparative.DIV else y / x


class Metric(msgspec.Struct, frozen=True):
    """A named figure: its ``title`` for people, its base unit, what it is, and which of two values is better.

    ``row`` is False of a key that is stored like a metric but is no row of a table, such as a layer table.
    ``lower_bound``: it sums over ops and leaves out those without a cost rule. ``of_model``: it describes the model
    alone, and so is the same of a step and of a forward pass.
    """

    name: str
    title: str
    unit: Unit
    description: str
    direction: Direction = "lower"
    comparative: Comparative = Comparative.DIV
    row: bool = True
    lower_bound: bool = False
    of_model: bool = False

    def __post_init__(self) -> None:
        for given, kind, known in ((self.unit, "unit", get_args(Unit)), (self.direction, "direction", _DIRECTIONS)):
            if given not in known:
                listed = ", ".join(one or "''" for one in known)
                raise MetricError(f"there is no {kind} {given!r}, which the metric {self.name} has; there are {listed}")


class Missing(msgspec.Struct, frozen=True, tag=True):
    """In place of a value: the reason why there is none."""

    reason: str


Value: TypeAlias = int | float | str | Missing
