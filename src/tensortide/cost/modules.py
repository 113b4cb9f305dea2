"""Costs by module: a tree in which a module's inclusive total is its own plus those of its children."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tensortide.cost.totals import Total
from tensortide.graph.model import OUTSIDE, Graph

__all__ = ["ModuleTotal", "module_tree"]

OUTSIDE_PATH = "(outside)"


class ModuleTotal(msgspec.Struct, frozen=True):
    """One module: what its own ops cost, and what they cost with those of the modules inside it.

    ``path`` is the module's dotted path, ``""`` for the root of a single model, ``(outside)`` for ops that ran
    outside any module. ``type`` is its class, empty for a path on which there is no module.
    """

    path: str
    type: str
    exclusive: Total
    inclusive: Total
    children: tuple[ModuleTotal, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2] or "(root)"

    def walk(self) -> Iterator[ModuleTotal]:
        """This module and all inside it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def parent_path(path: str, known: Mapping[str, object]) -> str | None:
    """The path that contains ``path``, None at the top. The unnamed root contains everything if there is one."""
    if path in ("", OUTSIDE_PATH):
        return None
    head, dot, _ = path.rpartition(".")
    return head if dot else ("" if "" in known else None)


def module_tree(graph: Graph, exclusive: Mapping[int, Total]) -> tuple[ModuleTotal, ...]:
    """The trees of ``graph``'s modules from each module's own totals, in the order of the model."""
    types: dict[str, str] = {}
    own: dict[str, Total] = {}
    for index, module in enumerate(graph.modules):
        types.setdefault(module.path, module.type)
        if index in exclusive:
            own[module.path] = own.get(module.path, Total()) + exclusive[index]
    if OUTSIDE in exclusive:
        own[OUTSIDE_PATH] = exclusive[OUTSIDE]
    children: dict[str | None, list[str]] = {}
    placed: set[str] = set()
    for path in [*types, *own]:
        _place(path, types, children, placed)
    return tuple(_node(path, types, own, children) for path in children.get(None, ()))


def _place(path: str, types: dict[str, str], children: dict[str | None, list[str]], placed: set[str]) -> None:
    """Put ``path`` and every path that contains it under its parent."""
    if path in placed:
        return
    placed.add(path)
    parent = parent_path(path, types)
    if parent is not None:
        _place(parent, types, children, placed)
    children.setdefault(parent, []).append(path)


def _node(
    path: str, types: Mapping[str, str], own: Mapping[str, Total], children: Mapping[str | None, list[str]]
) -> ModuleTotal:
    inside = tuple(_node(child, types, own, children) for child in children.get(path, ()))
    exclusive = own.get(path, Total())
    inclusive = _sum([exclusive, *(child.inclusive for child in inside)])
    return ModuleTotal(path, types.get(path, ""), exclusive, inclusive, inside)


def _sum(totals: Iterable[Total]) -> Total:
    result = Total()
    for total in totals:
        result += total
    return result
