"""Marks of parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some_slow(values: Iterable[Any], slow: Collection[Any]) -> list[Any]:
    """``values`` for ``parametrize``, with the mark ``slow`` on those in ``slow``."""
    return [pytest.param(value, marks=pytest.mark.slow) if value in slow else value for value in values]
