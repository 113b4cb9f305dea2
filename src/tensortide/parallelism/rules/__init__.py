"""Sharding rules: for every op which dimensions of its tensors are one axis, and what is partial if it is sharded.

One table with a row per op, by its name without namespace and overload. A view needs no row (``layout``), nor does an
op, a user's own too, whose row of costs names the dimensions of a product, nor one of PyTorch's own of a family whose
rule ``OF_FAMILY`` has, or that PyTorch tags as pointwise.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from tensortide.cost.opcall import qualified
from tensortide.cost.registry import Rule as CostRule
from tensortide.cost.registry import find
from tensortide.graph.model import Call
from tensortide.parallelism.rules.pointwise import listed, pointwise
from tensortide.parallelism.rules.products import contracted
from tensortide.parallelism.rules.reductions import along
from tensortide.parallelism.rules.shapes import spatial
from tensortide.parallelism.rules.table import RULES, Rule
from tensortide.parallelism.sites import base_name, holes_of

OF_FAMILY = {"elementwise": pointwise, "window": spatial, "softmax": along, "scan": along}
"""Rules of ops of a family (``cost/families/``) that have none of their own, in the namespaces whose axes are known:
a family tells what an op costs, and elsewhere ops of one may work along another axis or have their channels last."""
_LAID_OUT = ("aten.", "prims.")


@functools.cache
def rules() -> dict[str, Rule]:
    """The complete table."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return RULES


def factors(call: Call) -> tuple[int, ...]:
    """The positions of the factors of a product of two among its tensors, as the row of its cost names them; none of
    any other op."""
    priced = find(qualified(call.op))
    given = holes_of(call)
    return tuple(given.index(name) for name, _ in priced.dims[:-1] if name in given) if priced is not None else ()


def rule_of(op: str, tags: tuple[str, ...] = ()) -> Rule | None:
    """The rule of an op by its name as recorded and its tags; None if it has none."""
    return _rule_of(op, tags, find(qualified(op)))


@functools.cache
def _rule_of(op: str, tags: tuple[str, ...], priced: CostRule | None) -> Rule | None:
    """The rule of an op whose cost is ``priced``, by a row that may be read later than the op is first met."""
    name = base_name(op)
    if name in rules() or name.startswith("_foreach_"):
        return rules().get(name, listed)
    if priced is not None and priced.dims:
        return functools.partial(contracted, dims=priced.dims)
    found = OF_FAMILY.get(priced.family) if priced is not None and op.startswith(_LAID_OUT) else None
    return found or (pointwise if "pointwise" in tags else None)
