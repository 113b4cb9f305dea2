"""Tiny steps that several tests divide: each is captured once, on real tensors, which take less than fake ones then."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tensortide import capture
from tensortide.graph import Graph


def captured(workload: str | Callable[..., Any], sizes: Mapping[str, Any]) -> Graph:
    """The step of ``workload`` with ``sizes``."""
    return _captured(workload, tuple(sizes.items()))


@functools.cache
def _captured(workload: str | Callable[..., Any], sizes: tuple[tuple[str, Any], ...]) -> Graph:
    return capture(workload, hyperparameters=dict(sizes), real=True)
