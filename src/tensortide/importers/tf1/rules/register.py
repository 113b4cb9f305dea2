"""Registration of cost rules for ops called ``tf::<Type>``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensortide.cost.access import BytesRule
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

__all__ = ["moves", "tf"]

W = TypeVar("W", bound=Callable[[OpCall], Cost | None])


def tf(names: str, formula: str, **options: Any) -> Callable[[W], W]:
    """Register the decorated function as the rule of the op types ``names``, separated by spaces."""
    return rule(*(f"tf::{name}" for name in names.split()), formula=formula, **options)


def moves(names: str, formula: str, bytes: BytesRule, meaning: str) -> None:
    """Register the rule of op types that compute nothing and move ``bytes``."""

    def work(op: OpCall) -> Cost:
        del op
        return Cost()

    work.__doc__ = meaning
    tf(names, formula, bytes=bytes)(work)
