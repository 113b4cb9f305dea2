"""Layers that join several inputs."""

from __future__ import annotations

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, LayerError, Shape, layer


def broadcast(shapes: list[Shape]) -> Shape:
    """Return the shape of operands that are broadcast. Raises LayerError for those that do not fit."""
    rank = max(map(len, shapes), default=0)
    dims = []
    for axis in range(rank):
        sizes = [shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0]
        size = next((n for n in sizes if n != 1), 1)
        if any(n not in (1, size) for n in sizes):
            raise LayerError(f"its inputs have the shapes {shapes}")
        dims.append(size)
    return tuple(dims)


@layer("Add Subtract Multiply Average Maximum Minimum")
def merged(call: Layer) -> Handle:
    """Element by element."""
    inputs = {f"x{i}": x for i, x in enumerate(call.inputs)}
    return call.op(call.kind, inputs, broadcast([x.shape for x in call.inputs]), call.x.dtype)


@layer("Concatenate")
def concatenated(call: Layer) -> Handle:
    """One after the other along an axis."""
    axis, shapes = call.config.get("axis", -1), [x.shape for x in call.inputs]
    rank = len(call.x.shape)
    if not isinstance(axis, int) or not -rank <= axis < rank or any(len(shape) != rank for shape in shapes):
        raise LayerError(f"its inputs have the shapes {shapes} and its axis is {axis!r}")
    dims = list(call.x.shape)
    dims[axis] = sum(shape[axis] for shape in shapes)
    return call.op("Concatenate", {f"x{i}": x for i, x in enumerate(call.inputs)}, dims, call.x.dtype)


@layer("Dot")
def dot(call: Layer) -> Handle:
    """A batch of products over one axis of each."""
    if len(call.inputs) != 2:
        raise LayerError(f"it takes two inputs and has {len(call.inputs)}")
    (a, b), axes = call.inputs, call.config.get("axes")
    first, second = (axes, axes) if isinstance(axes, int) else tuple(axes) if isinstance(axes, list) else (0, 0)
    if not (isinstance(first, int) and isinstance(second, int)):
        raise LayerError(f"its axes are {axes!r}")
    first, second = first % len(a.shape), second % len(b.shape)
    rest = [n for i, n in enumerate(a.shape) if i not in (0, first)]
    rest += [n for i, n in enumerate(b.shape) if i not in (0, second)]
    return call.op("Dot", {"x0": a, "x1": b}, (a.shape[0], *(rest or [1])), contracted=a.shape[first])
