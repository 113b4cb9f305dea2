"""Columns of comparisons: values of both sides, and their differences with a sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensortide.reports.blocks import Column, UnitName
from tensortide.reports.render.values import value_text

__all__ = ["change", "difference", "signed_text"]


def difference(key: str, label: str, unit: UnitName, values: Sequence[int], **options: Any) -> Column:
    """Make a column of differences, each with its sign; equal values are a dash."""
    signs = tuple("+" if value > 0 else "" for value in values)
    return Column(key, label, unit, tuple(values), before=signs, zero="-", **options)


def change(key: str, label: str, pairs: Sequence[tuple[int, int]], **options: Any) -> Column:
    """Make a column of relative changes, unknown where there was nothing."""
    values = tuple(b / a - 1 if a else None for a, b in pairs)
    return Column(key, label, "change", values, zero="-", **options)


def signed_text(value: float, unit: UnitName) -> str:
    """Print a difference with its sign."""
    return f"{'+' if value > 0 else ''}{value_text(value, unit)}" if value else "-"
