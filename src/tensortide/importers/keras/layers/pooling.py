"""Pooling, padding, cropping and resizing."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.convolution import window_size
from tensortide.importers.keras.layers.layer import Layer, layer
from tensortide.importers.shapes import ShapeError, padded, reduced


def _spaced(call: Layer, sizes: Sequence[int]) -> list[int]:
    dims, (_, space) = list(call.x.shape), call.layout(call.x)
    for axis, size in zip(space, sizes, strict=True):
        dims[axis] = size
    return dims


@layer("MaxPooling1D MaxPooling2D MaxPooling3D AveragePooling1D AveragePooling2D AveragePooling3D")
def pooled(call: Layer) -> Handle:
    """Largest or mean of each window."""
    _, space = call.layout(call.x)
    window = call.numbers("pool_size", len(space), 2)
    given = call.config.get("strides")
    strides = window if given is None else call.numbers("strides", len(space))
    padding = str(call.config.get("padding", "valid"))
    sizes = [window_size(call.x.shape[axis], window[i], strides[i], padding) for i, axis in enumerate(space)]
    return call.op(call.kind, {"x": call.x}, _spaced(call, sizes), call.x.dtype, pool_size=window)


@layer(
    "GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D "
    "GlobalMaxPooling3D"
)
def pooled_to_one(call: Layer) -> Handle:
    """Largest or mean of all of space."""
    dims = reduced(call.x.shape, call.layout(call.x)[1], *(1,) * call.is_true("keepdims"))
    return call.op(call.kind, {"x": call.x}, dims, call.x.dtype)


@layer(
    "AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D AdaptiveMaxPooling1D "
    "AdaptiveMaxPooling2D AdaptiveMaxPooling3D"
)
def adaptive(call: Layer) -> Handle:
    """Windows that divide the input evenly into as many as are asked for."""
    _, space = call.layout(call.x)
    sizes = call.numbers("output_size", len(space))
    return call.op(call.kind, {"x": call.x}, _spaced(call, sizes), call.x.dtype)


def _edges(call: Layer, name: str, count: int) -> list[tuple[int, int]]:
    """Return what is added or cut on both sides of each axis."""
    value = call.config.get(name)
    pairs = value if isinstance(value, list) else [value] * count
    if count == 1 and isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) for n in value):
        pairs = [value]
    found = [(pair, pair) if isinstance(pair, int) else tuple(pair) if isinstance(pair, list) else () for pair in pairs]
    if len(found) != count or any(len(pair) != 2 or not all(isinstance(n, int) for n in pair) for pair in found):
        raise ShapeError(f"its {name} is {value!r}")
    return [(int(pair[0]), int(pair[1])) for pair in found]


@layer("ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D Cropping2D Cropping3D")
def edged(call: Layer) -> Handle:
    """Zeros around, or edges cut off."""
    _, space = call.layout(call.x)
    cuts = call.kind.startswith("Cropping")
    edges = _edges(call, "cropping" if cuts else "padding", len(space))
    sign = -1 if cuts else 1
    dims = padded(call.x.shape, ((axis, sign * a, sign * b) for axis, (a, b) in zip(space, edges, strict=True)))
    if min(dims) < 0:
        raise ShapeError(f"its edges {edges} cut more than there is of {call.x.shape}")
    return call.op(call.kind, {"x": call.x}, dims, call.x.dtype)


@layer("UpSampling1D UpSampling2D UpSampling3D")
def upsampled(call: Layer) -> Handle:
    """Every element several times, or points between."""
    _, space = call.layout(call.x)
    factors = call.numbers("size", len(space), 2)
    sizes = [call.x.shape[axis] * factors[i] for i, axis in enumerate(space)]
    between = call.config.get("interpolation") == "bilinear"
    kind = "Resizing_bilinear" if between else call.kind
    return call.op(kind, {"x": call.x}, _spaced(call, sizes), call.x.dtype)


@layer("Resizing CenterCrop RandomCrop")
def resized(call: Layer) -> Handle:
    """Images of a given height and width."""
    sizes = (call.number("height"), call.number("width"))
    bilinear = call.kind == "Resizing" and call.config.get("interpolation", "bilinear") == "bilinear"
    return call.op("Resizing_bilinear" if bilinear else call.kind, {"x": call.x}, _spaced(call, sizes), call.x.dtype)
