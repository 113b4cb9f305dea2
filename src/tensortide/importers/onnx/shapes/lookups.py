"""Shapes of ops that look up elements by indices, or select those of a kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensortide.importers.onnx.contents import array
from tensortide.importers.onnx.shapes.base import Call, count, like, shape
from tensortide.importers.onnx.value import Spec


@shape("Gather")
def gather(call: Call) -> list[Spec]:
    """Slices along an axis by their indices."""
    x, indices = call.ranked(0, 1), call.x(1)
    axis = call.axis(call.attr("axis", 0), x.rank)
    dims = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    found = None
    if x.contents is not None and indices.contents is not None:
        places: list[Any] = list(indices.contents.flat)
        length = int(x.shape[axis])
        if all(type(at) is int for at in places):
            if any(not -length <= at < length for at in places):
                raise call.fail(f"the indices {places[:8]} of {length}")
            taken: Any = x.contents.take(np.array(places, int).reshape(indices.contents.shape), axis)
            found = array(taken.flat if isinstance(taken, np.ndarray) else [taken], dims)
    return [like(x, shape=dims, contents=found)]


@shape("GatherElements")
def gather_elements(call: Call) -> list[Spec]:
    """An element for every index."""
    return [like(call.x(), shape=call.x(1).shape)]


@shape("GatherND")
def gather_nd(call: Call) -> list[Spec]:
    """Slices by tuples of indices."""
    x, indices, batch = call.x(), call.ranked(1, 1), call.attr("batch_dims", 0)
    depth = int(indices.shape[-1])
    if not 0 <= batch + depth <= x.rank:
        raise call.fail(f"tuples of {depth} indices of {x.rank} dimensions")
    return [like(x, shape=(*indices.shape[:-1], *x.shape[batch + depth :]))]


@shape("Scatter ScatterElements ScatterND TensorScatter")
def scatter(call: Call) -> list[Spec]:
    """The data with some elements replaced."""
    return [like(call.x())]


@shape("DepthToSpace SpaceToDepth")
def blocks(call: Call) -> list[Spec]:
    """Channels into space, or space into channels."""
    n, c, *space = call.ranked(0, 3).shape
    block = call.attr("blocksize", 1)
    if block < 1:
        raise call.fail(f"a block size of {block}")
    area = block ** len(space)
    if call.node.type == "SpaceToDepth":
        return [like(call.x(), shape=(n, c * area, *(size // block for size in space)))]
    return [like(call.x(), shape=(n, c // area, *(size * block for size in space)))]


@shape("OneHot")
def one_hot(call: Call) -> list[Spec]:
    """A vector of a depth for every index."""
    x, depth = call.x(), call.content(1)
    n = depth[0] if depth and depth[0] is not None else call.symbol("depth", 1)
    axis = call.axis(call.attr("axis", -1), x.rank + 1)
    return [Spec((*x.shape[:axis], n, *x.shape[axis:]), call.x(2).dtype)]


@shape("NonZero")
def non_zero(call: Call) -> list[Spec]:
    """Indices of what is not zero: at most every element."""
    x = call.x()
    if x.contents is not None and all(element is not None for element in x.contents.flat):
        places = (
            np.argwhere(np.vectorize(bool, otypes=[bool])(x.contents)) if x.contents.size else np.empty((0, x.rank))
        )
        found = array([int(at) for at in places.T.flat], (x.rank, len(places)))
        return [Spec((x.rank, len(places)), "int64", found)]
    return [Spec((x.rank, call.symbol("count", count(x.shape))), "int64")]


@shape("Compress")
def compress(call: Call) -> list[Spec]:
    """Slices where a condition holds: at most all."""
    x, axis = call.x(), call.attr("axis")
    if axis is None:
        return [like(x, shape=(call.symbol("count", count(x.shape)),))]
    place = call.axis(int(axis), x.rank)
    return [like(x, shape=tuple(call.symbol("count", n) if i == place else n for i, n in enumerate(x.shape)))]


@shape("Unique")
def unique(call: Call) -> list[Spec]:
    """Distinct elements or slices: at most all."""
    x, axis = call.x(), call.attr("axis")
    whole = count(x.shape) if axis is None else x.shape[call.axis(int(axis), x.rank)]
    found = call.symbol("count", whole)
    place = 0 if axis is None else call.axis(int(axis), x.rank)
    dims = (found,) if axis is None else tuple(found if i == place else n for i, n in enumerate(x.shape))
    return [like(x, shape=dims), Spec((found,), "int64"), Spec((whole,), "int64"), Spec((found,), "int64")]
