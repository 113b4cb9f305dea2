"""The place in a model where the conversion is: names in scope, opsets, attributes of the function that was called."""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from tensortide.importers.onnx.read import Body, Model, Node, Reference
from tensortide.importers.onnx.value import OnnxError, Settings, Value

DEEPEST_CALL = 120
"""Most graphs and functions inside one another."""
MANY = 20_000
"""Nodes up to which every call of a function is written out."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A graph or function that is being converted. ``place`` opens messages, ``path`` names modules; ``omitted`` are
    the inputs of the function that the call leaves out."""

    body: Body
    scope: MutableMapping[str, Value]
    opsets: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    path: str = ""
    depth: int = 0
    omitted: frozenset[str] = frozenset()

    def inner(self, body: Body, place: str) -> Frame:
        """Return the frame of a graph inside a node of this one: it sees the names outside."""
        scope: MutableMapping[str, Value] = ChainMap({}, self.scope)
        if len(scope.maps) > 8:  # type: ignore[attr-defined]
            scope = dict(scope)
        return replace(self, body=body, scope=scope, place=place, depth=self.depth + 1)

    def resolved(self, node: Node) -> Node:
        """Return ``node`` with the attributes of the call in place of references to them."""
        if not any(isinstance(value, Reference) for value in node.attributes.values()):
            return node
        found = {
            key: self.attributes.get(value.name) if isinstance(value, Reference) else value
            for key, value in node.attributes.items()
        }
        return replace(node, attributes=found)

    def version(self, node: Node) -> int:
        """Return the opset of the node's domain."""
        return self.opsets.get(node.domain, 1)


def expanded(model: Model) -> int:
    """Count the nodes that run if every function is written out at every call. Raises OnnxError for one that calls
    itself, or calls nested too deeply."""
    known: dict[tuple[str, str], int] = {}
    open_: list[tuple[str, str]] = []

    def of_body(body: Body) -> int:
        return sum(map(of_node, body.nodes))

    def of_node(node: Node) -> int:
        inside = sum(of_body(value) for value in node.attributes.values() if isinstance(value, Body))
        return 1 + inside + of_function((node.domain, node.type))

    def of_function(key: tuple[str, str]) -> int:
        body = model.functions.get(key)
        if body is None:
            return 0
        if key in open_ or len(open_) > DEEPEST_CALL:
            why = "calls itself" if key in open_ else f"is called through more than {DEEPEST_CALL} others"
            raise OnnxError(f"{model.file}: the function {'::'.join(filter(None, key))} {why}")
        if key not in known:
            open_.append(key)
            known[key] = of_body(body)
            open_.pop()
        return known[key]

    return of_body(model.graph)


def dim_size(settings: Settings, dim: int | str | None, name: str, place: int) -> int:
    """Return the size of a declared dimension: a number, or a symbol (an expression of symbols, as exporters write)."""
    if isinstance(dim, int):
        return dim
    hint = 1 if place == 0 else settings.length
    if dim is None:
        return settings.size(f"{name}_{place}", hint)
    return _named(settings, dim.strip(), hint)


def _named(settings: Settings, text: str, hint: int) -> int:
    from tensortide.errors import ExpressionError
    from tensortide.expr import parse, sized

    if not text.isidentifier() and len(text) <= 80:
        with contextlib.suppress(ExpressionError, ArithmeticError):
            expr = parse(text)
            sizes = {name: settings.size(name, hint) for name in expr.symbols}
            value = expr.subs({name: int(size) for name, size in sizes.items()}).value
            if isinstance(value, int) and value >= 0 and sizes:
                return sized(expr, value)
    return settings.size(text, hint)
