"""Facts that let the compiled core run an op by itself; every other op is left to ``Runtime``."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from tensortide.run.operators import Operator, decomposes, operators
from tensortide.run.sizes import DYNAMIC

Facts: TypeAlias = tuple[Any, ...]
"""``view``, ``lean``, ``factory``, ``random`` and ``foreach`` of an Operator, the places of what it has
``written``, its ``statistics``, ``training`` and ``func``."""

_NAMESPACE = "aten"
_RESULTS = frozenset({"Tensor", "List[Tensor]", "number", "int", "float", "bool"})


def facts_of(name: str, overload: str) -> Facts | None:
    """Facts of the op ``name`` (``aten::add``), which has run; None if it needs more than the core does."""
    namespace, _, base = name.partition("::")
    func = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    operator = operators.get(id(func))
    if operator is None or not _ordinary(operator, namespace):
        return None
    facts = operator.view, operator.lean, operator.factory, operator.random, operator.foreach
    written = tuple(place for place, _ in operator.written)
    return *facts, written, tuple(operator.statistics), operator.training, func


def _ordinary(operator: Operator, namespace: str) -> bool:
    if namespace != _NAMESPACE or operator.passed or operator.composite or operator.resizing or operator.blank:
        return False
    if any(str(returned.type) not in _RESULTS for returned in operator.func._schema.returns):
        return False
    if operator.view:
        return not operator.written
    if operator.written and operator.statistics:
        return False
    unusual = operator.func._schema.name in DYNAMIC or (operator.random and operator.statistics)
    return operator.repeatable and not (decomposes(operator.func) or unusual)
