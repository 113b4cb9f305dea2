"""Calls of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and named arguments."""
Call: TypeAlias = Callable[[Any, Any], Any]
"""A function that calls a model with arguments."""


def plainly(model: Any, arguments: Arguments) -> Any:
    """Call a model with positional and named arguments."""
    positional, named = arguments
    return model(*positional, **named)
