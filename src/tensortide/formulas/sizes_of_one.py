"""Sizes that the step computes and that may be 1, where many ops behave differently: windows of a short sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensortide.expr import Condition, Expr, expr_of
from tensortide.formulas.space import Setting, Space
from tensortide.graph.model import Graph

_VALUES = (2, 3, 5, 7, 11, 17, 29, 53, 101, 211, 401, 809)
"""Values of one hyperparameter at which a size is evaluated."""


def computed_sizes(graph: Graph, names: Iterable[str]) -> list[Expr]:
    """The dimensions of the graph's tensors that are rounded, a minimum or the like, short ones first; all in
    ``names``."""
    known = frozenset(names)
    dimensions = dict.fromkeys(expr_of(size) for tensor in graph.tensors for size in tensor.shape)
    found = [e for e in dimensions if e.symbols <= known and not all(isinstance(atom, str) for atom in e.atoms)]
    return sorted(found, key=lambda e: (len(str(e)), str(e)))


def is_one(expr: Expr, setting: Mapping[str, int]) -> bool:
    """Return whether a size is 1 at a setting."""
    try:
        return expr.evaluate(setting) == 1
    except ArithmeticError:
        return False


def ones_at(sizes: Iterable[Expr], setting: Mapping[str, int], used: Sequence[Mapping[str, int]]) -> list[Condition]:
    """Conditions that those of the ``sizes`` are larger that are 1 at a setting and at none of those ``used``."""
    at = [size for size in sizes if is_one(size, setting) and not any(is_one(size, other) for other in used)]
    return [Condition(size - 1, ">") for size in at[:1]]


def settings_of_one(space: Space, size: Expr, low: Setting, ones: Sequence[str]) -> Iterator[Setting]:
    """Legal settings in which one hyperparameter, not 1, makes ``size`` 1: the others as in ``low``, and, as two sizes
    of 1 may matter only together, those in ``ones`` 1."""
    for start in (low, {**low, **{name: 1 for name in ones if name not in size.symbols}}):
        choices = (
            {**start, name: space.unit(name, start) * value} for name in sorted(size.symbols) for value in _VALUES
        )
        found = next((setting for setting in choices if is_one(size, setting) and space.allows(setting)), None)
        if found is not None:
            yield found
