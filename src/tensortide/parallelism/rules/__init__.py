"""Sharding rules: for every op which dimensions of its tensors are one axis, and what is partial if it is sharded.

One table with a row per op, by its name without namespace and overload. A view needs no row (``layout``), and an op
that PyTorch tags as pointwise has the pointwise rule.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from tensortide.parallelism.rules.table import RULES, Rule


@functools.cache
def rules() -> dict[str, Rule]:
    """The complete table."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return RULES
