"""Shapes of ops that look up elements by indices, or select those of a kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensortide.importers.onnx.contents import array
from tensortide.importers.onnx.shapes.base import Call, count, shape
from tensortide.importers.onnx.value import Spec
from tensortide.importers.shapes import ShapeError, blocks_moved, inserted, replaced


@shape("Gather")
def gather(call: Call) -> Spec:
    """Slices along an axis by their indices."""
    x, indices = call.ranked(0, 1), call.x(1)
    axis = call.axis_attr(x.rank, 0)
    dims = replaced(x.shape, axis, *indices.shape)
    found = None
    if x.contents is not None and indices.contents is not None:
        places: list[Any] = list(indices.contents.flat)
        length = int(x.shape[axis])
        if all(type(at) is int for at in places):
            if any(not -length <= at < length for at in places):
                raise ShapeError(f"the indices {places[:8]} of {length}")
            taken: Any = x.contents.take(np.array(places, int).reshape(indices.contents.shape), axis)
            found = array(taken.flat if isinstance(taken, np.ndarray) else [taken], dims)
    return call.like(dims, contents=found)


@shape("GatherND")
def gather_nd(call: Call) -> Spec:
    """Slices by tuples of indices."""
    x, indices, batch = call.x(), call.ranked(1, 1), call.attr("batch_dims", 0)
    depth = int(indices.shape[-1])
    if not 0 <= batch + depth <= x.rank:
        raise ShapeError(f"tuples of {depth} indices of {x.rank} dimensions")
    return call.like((*indices.shape[:-1], *x.shape[batch + depth :]))


@shape("DepthToSpace SpaceToDepth")
def blocks(call: Call) -> Spec:
    """Channels into space, or space into channels."""
    x, block = call.ranked(0, 3), call.attr("blocksize", 1)
    if block < 1:
        raise ShapeError(f"a block size of {block}")
    return call.like(blocks_moved(x.shape, block, 1, range(2, x.rank), into=call.node.type == "SpaceToDepth"))


@shape("NonZero")
def non_zero(call: Call) -> Spec:
    """Indices of what is not zero: at most every element."""
    x = call.x()
    if x.contents is None or any(element is None for element in x.contents.flat):
        return Spec((x.rank, call.symbol("count", count(x.shape))), "int64")
    flags = np.array([bool(element) for element in x.contents.flat], bool)
    places = np.argwhere(flags.reshape(x.contents.shape)).reshape(-1, x.rank)
    return Spec((x.rank, len(places)), "int64", array([int(at) for at in places.T.flat], (x.rank, len(places))))


@shape("Compress Unique")
def selected(call: Call) -> list[Spec]:
    """Some elements or slices: at most all. Of distinct ones also their places, the way back, and their numbers."""
    x, along = call.x(), call.attr("axis")
    axis = 0 if along is None else call.axis(int(along), x.rank)
    whole = count(x.shape) if along is None else x.shape[axis]
    some = call.symbol("count", whole)
    numbers = [Spec((n,), "int64") for n in (some, whole, some)] if call.node.type == "Unique" else []
    return [call.like((some,) if along is None else replaced(x.shape, axis, some)), *numbers]


@shape("OneHot")
def one_hot(call: Call) -> Spec:
    """A vector of a depth for every index."""
    x = call.x()
    depth = call.size(1, "depth")
    return Spec(inserted(x.shape, call.axis_attr(x.rank + 1), depth), call.x(2).dtype)


shape("GatherElements")(lambda call: call.like(call.x(1).shape))
shape("Scatter ScatterElements ScatterND TensorScatter")(lambda call: call.like())
