"""Marks of parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some_slow(values: Iterable[Any], slow: Collection[Any]) -> list[Any]:
    """``values`` for ``parametrize``, with the mark ``slow`` on those in ``slow``; a tuple is several values."""
    parts = [(value, value if isinstance(value, tuple) else (value,)) for value in values]
    return [pytest.param(*part, marks=pytest.mark.slow if value in slow else ()) for value, part in parts]


def since(major: int, minor: int, reason: str) -> pytest.MarkDecorator:
    """Skip the test on older versions of PyTorch, for a difference that ``docs/compatibility.md`` lists."""
    from tensortide.recorder.torch_compat import VERSION

    return pytest.mark.skipif((major, minor) > VERSION, reason=f"before PyTorch {major}.{minor}: {reason}")
