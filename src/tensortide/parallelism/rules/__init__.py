"""Sharding rules: for every op which dimensions of its tensors are one axis, and what is partial if it is sharded.

One table with a row per op, by its name without namespace and overload. A view needs no row (``layout``), nor does an
op of PyTorch's own of a family whose rule ``OF_FAMILY`` has, or one that PyTorch tags as pointwise.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from tensortide.cost.opcall import qualified
from tensortide.cost.registry import find
from tensortide.parallelism.rules.pointwise import listed, pointwise
from tensortide.parallelism.rules.shapes import spatial
from tensortide.parallelism.rules.table import RULES, Rule
from tensortide.parallelism.sites import base_name

OF_FAMILY = {"elementwise": pointwise, "window": spatial}
"""Rules of ops of a family (``cost/families/``) that have none of their own, in the namespaces whose axes are known:
a family tells what an op costs, and elsewhere ops of one may work along an axis or have their channels last."""
_LAID_OUT = ("aten.", "prims.")


@functools.cache
def rules() -> dict[str, Rule]:
    """The complete table."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return RULES


@functools.cache
def rule_of(op: str, tags: tuple[str, ...] = ()) -> Rule | None:
    """The rule of an op by its name as recorded and its tags; None if it has none."""
    name = base_name(op)
    if name in rules() or name.startswith("_foreach_"):
        return rules().get(name, listed)
    priced = find(qualified(op)) if op.startswith(_LAID_OUT) else None
    found = OF_FAMILY.get(priced.family) if priced is not None else None
    return found or (pointwise if "pointwise" in tags else None)
