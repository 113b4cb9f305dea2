"""Layers that join several inputs."""

from __future__ import annotations

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, layer
from tensortide.importers.shapes import PLAIN, ShapeError, broadcast, concatenated


@layer("Add Subtract Multiply Average Maximum Minimum")
def merged(call: Layer) -> Handle:
    """Element by element."""
    inputs = {f"x{i}": x for i, x in enumerate(call.inputs)}
    return call.op(call.kind, inputs, broadcast(PLAIN, *(x.shape for x in call.inputs)), call.x.dtype)


@layer("Concatenate")
def concatenation(call: Layer) -> Handle:
    """One after the other along an axis."""
    (axis,) = call.axes()
    dims = concatenated(PLAIN, [x.shape for x in call.inputs], axis)
    return call.op("Concatenate", {f"x{i}": x for i, x in enumerate(call.inputs)}, dims, call.x.dtype)


@layer("Dot")
def dot(call: Layer) -> Handle:
    """A batch of products over one axis of each."""
    if len(call.inputs) != 2:
        raise ShapeError(f"it takes two inputs and has {len(call.inputs)}")
    (a, b), axes = call.inputs, call.config.get("axes")
    first, second = (axes, axes) if isinstance(axes, int) else tuple(axes) if isinstance(axes, list) else (0, 0)
    if not (isinstance(first, int) and isinstance(second, int)):
        raise ShapeError(f"its axes are {axes!r}")
    first, second = first % len(a.shape), second % len(b.shape)
    rest = [n for i, n in enumerate(a.shape) if i not in (0, first)]
    rest += [n for i, n in enumerate(b.shape) if i not in (0, second)]
    return call.op("Dot", {"x0": a, "x1": b}, (a.shape[0], *(rest or [1])), contracted=a.shape[first])
