"""Modules of a captured or traced Keras model: its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tensortide.graph.model import OUTSIDE, Graph, Module

GRADIENTS = "gradient_tape"
"""Scope of what differentiates; the phase of an op says as much."""


def by_layer(graph: Graph, layer_of: Callable[[Module], Module | None]) -> Graph:
    """Return the graph with other modules: ``layer_of`` each of them, None for what is outside of all layers."""
    table: dict[Module, int] = {}
    numbers = []
    for module in graph.modules:
        found = layer_of(module)
        numbers.append(OUTSIDE if found is None else table.setdefault(found, len(table)))
    ops = tuple(
        op if op.module == OUTSIDE else msgspec.structs.replace(op, module=numbers[op.module]) for op in graph.ops
    )
    return msgspec.structs.replace(graph, ops=ops, modules=tuple(table))


def layers_of(model: Any) -> list[Any]:
    """Return all layers of a model, those inside of others too."""
    import keras

    found: dict[int, Any] = {}
    pending = [model]
    while pending:
        layer = pending.pop()
        inside = [value for value in vars(layer).values() if isinstance(value, keras.Layer)]
        for other in (*getattr(layer, "layers", ()), *inside):
            if id(other) not in found and other is not model:
                found[id(other)] = other
                pending.append(other)
    return [*found.values()]


def path_of(layer: Any, model: Any) -> str:
    """Return the path of a layer in its model."""
    return str(layer.path or layer.name).removeprefix(f"{model.name}/").replace("/", ".")


def of_scopes(model: Any) -> Callable[[Module], Module | None]:
    """Return the function from scopes of TensorFlow, under the names of layers, to the layers."""
    known = {path_of(layer, model): type(layer).__name__ for layer in layers_of(model)}

    def layer_of(module: Module) -> Module | None:
        parts = [part for part in module.path.split(".") if part != GRADIENTS and part != model.name]
        for count in range(len(parts), 0, -1):
            if (path := ".".join(parts[:count])) in known:
                return Module(path, known[path])
        return None

    return layer_of
