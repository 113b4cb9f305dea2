"""Registration of the rules of JAX's primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

W = TypeVar("W", bound=Callable[[OpCall], Cost | None])


def jax(names: str, formula: str, meaning: str = "", **options: Any) -> Callable[[W], W]:
    """Register the decorated function as the rule of the primitives ``names``, separated by spaces."""
    return rule(*(f"jax::{name}" for name in names.split()), formula=formula, meaning=meaning, **options)
