"""Shapes of ops that rearrange, cut and join."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensortide.importers.onnx.contents import array, scalar
from tensortide.importers.onnx.shapes.base import Call, count, shape
from tensortide.importers.onnx.value import FEW, MOST_DIMS, Spec, Value
from tensortide.importers.shapes import (
    PLAIN,
    ShapeError,
    broadcast,
    concatenated,
    padded,
    permuted,
    plain,
    reduced,
    replaced,
    unsqueezed,
)


@shape("Identity")
def identity(call: Call) -> Spec:
    """The input itself."""
    x = call.given(0)
    return Spec(items=x.items) if x is not None and x.items is not None else call.viewed(call.x().shape)


@shape("Shape")
def shape_of(call: Call) -> Spec:
    """The dimensions as a tensor."""
    x = call.x()
    dims = list(x.shape)[call.attr("start", 0) : call.attr("end", x.rank)]
    return Spec((len(dims),), "int64", array(dims))


@shape("Reshape")
def reshape(call: Call) -> Spec:
    """The same elements in another shape; -1 is what remains, 0 copies a dimension."""
    x = call.x()
    wanted = _wanted(call)
    dims = [x.shape[i] if n is not None and int(n) == 0 and not call.attr("allowzero", 0) else n
            for i, n in enumerate(wanted)]  # fmt: skip
    misfit = ShapeError(f"the shape {plain(x.shape)} as {[None if n is None else int(n) for n in wanted]}")
    unknown = [i for i, n in enumerate(dims) if n is None]
    open_ = [i for i, n in enumerate(dims) if n is not None and int(n) == -1]
    if len(unknown) == 1 and not open_:
        open_, unknown = unknown, []  # one unknown size follows from the number of elements
    for i in unknown:
        dims[i] = call.symbol(f"dim{i}", 1)
    if len(open_) > 1:
        raise misfit
    total = count(x.shape)
    if open_:
        rest = count([n for i, n in enumerate(dims) if i not in open_])
        if rest == 0 or int(total) % int(rest):
            raise misfit
        dims[open_[0]] = total // rest
    elif not unknown and int(count(dims)) != int(total):
        raise misfit
    if any(int(n) < 0 for n in dims):
        raise misfit
    return call.viewed(dims)


def _wanted(call: Call) -> list[Any]:
    """List the dimensions that a Reshape asks for."""
    attribute = call.attr("shape")
    if attribute is not None and call.given(1) is None:
        return list(attribute)
    rank = int(count(call.x(1).shape))
    if rank > MOST_DIMS:
        raise ShapeError(f"a shape of {rank} dimensions")
    return call.content(1) or [None] * rank


@shape("Flatten")
def flatten(call: Call) -> Spec:
    """Two dimensions."""
    x, axis = call.x(), call.attr("axis", 1)
    if axis != x.rank:
        axis = call.axis(axis, x.rank)
    return call.viewed((count(x.shape[:axis]), count(x.shape[axis:])))


@shape("Squeeze")
def squeeze(call: Call) -> Spec:
    """Dimensions of 1 left out."""
    x, axes = call.x(), call.integers(1, "axes")
    gone = {i for i, n in enumerate(x.shape) if int(n) == 1} if axes is None else {call.axis(a, x.rank) for a in axes}
    for i in gone:
        if int(x.shape[i]) != 1:
            raise ShapeError(f"it leaves out a dimension of {int(x.shape[i])}")
    return call.viewed(reduced(x.shape, gone))


@shape("Unsqueeze")
def unsqueeze(call: Call) -> Spec:
    """Dimensions of 1 put in."""
    x, axes = call.x(), call.integers(1, "axes") or ()
    return call.viewed(unsqueezed(x.shape, {call.axis(axis, x.rank + len(axes)) for axis in axes}, 1))


@shape("Transpose")
def transpose(call: Call) -> Spec:
    """Dimensions in another order."""
    x = call.x()
    order = call.attr("perm", tuple(reversed(range(x.rank))))
    dims = permuted(x.shape, order)
    return call.like(dims, contents=None if x.contents is None else x.contents.transpose(order))


@shape("Expand")
def expand(call: Call) -> Spec:
    """Broadcast to a shape."""
    x = call.x()
    dims = broadcast(PLAIN, x.shape, call.sizes(1, x.shape))
    few = x.contents is not None and count(dims) <= FEW
    return call.like(dims, contents=np.broadcast_to(x.contents, plain(dims)) if few else None)  # type: ignore[arg-type]


@shape("Tile")
def tile(call: Call) -> Spec:
    """Repeated along dimensions."""
    x, repeats = call.x(), call.sizes(1)
    if len(repeats) != x.rank:
        raise ShapeError(f"{len(repeats)} repeats of {x.rank} dimensions")
    dims = [n * times for n, times in zip(x.shape, repeats, strict=True)]
    few = x.contents is not None and count(dims) <= FEW
    return call.like(dims, contents=np.tile(x.contents, plain(repeats)) if few else None)  # type: ignore[arg-type]


@shape("Concat")
def concat(call: Call) -> Spec:
    """Joined along an axis."""
    values = [call.x(i) for i in range(len(call.inputs))]
    axis = call.axis_attr(call.ranked(0, 1).rank, 0)
    dims = concatenated(PLAIN, [value.shape for value in values], axis)
    found: Any = None
    if len(dims) == 1 and dims[0] <= FEW and any(value.contents is not None for value in values):
        found = array(element for value in values for element in _contents_of(value))
    elif all(value.contents is not None for value in values):
        found = np.concatenate([value.contents for value in values if value.contents is not None], axis)
    return call.like(dims, contents=found)


def _contents_of(value: Value) -> list[Any]:
    """List the contents, or as many unknown elements."""
    return [None] * int(count(value.shape)) if value.contents is None else list(value.contents.flat)


@shape("Split")
def split(call: Call) -> list[Spec]:
    """Cut along an axis."""
    x = call.ranked(0, 1)
    axis = call.axis_attr(x.rank, 0)
    parts, total = len(call.node.outputs), x.shape[axis]
    sizes = call.integers(1, "split")
    if sizes is None:
        each = -(-total // max(parts, 1))
        sizes = (each,) * (parts - 1) + (total - each * (parts - 1),)
    if int(sum(sizes)) != int(total) or len(sizes) != parts or any(int(n) < 0 for n in sizes):
        raise ShapeError(f"{int(total)} as the parts {plain(sizes)}")
    made, start = [], 0
    for n in sizes:
        found = None if x.contents is None else x.contents.take(range(int(start), int(start + n)), axis)
        made.append(call.like(replaced(x.shape, axis, n), contents=found))
        start += n
    return made


@shape("Slice")
def cut(call: Call) -> Spec:
    """A part along axes, possibly with steps."""
    x, new = call.x(), call.version >= 10
    starts, ends = (call.content(1), call.content(2)) if new else (call.attr("starts"), call.attr("ends"))
    dims, found = list(x.shape), x.contents
    if starts is None or ends is None or len(starts) != len(ends):
        known = call.content(3) if new else None
        for axis in range(x.rank) if known is None or None in known else known:
            place = call.axis(axis, x.rank)
            dims[place] = call.symbol(f"dim{axis}", dims[place])
        return call.like(dims)
    axes = (call.integers(3, "axes") if new else call.attr("axes")) or tuple(range(len(starts)))
    steps = (call.content(4) if new else None) or [1] * len(starts)
    if not len(axes) == len(steps) == len(starts):
        raise ShapeError("starts, ends, axes and steps of different numbers")
    for i, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = call.axis(i, x.rank)
        if start is None or end is None or step is None:
            dims[axis], found = call.symbol(f"dim{axis}", dims[axis]), None
            continue
        if int(step) == 0:
            raise ShapeError("a step of 0")
        first, last = bounds(start, end, step, dims[axis])
        dims[axis] = -((first - last) // step) if (int(last) - int(first)) * int(step) > 0 else 0
        if found is not None:
            stop = int(last) if int(last) >= 0 else None
            picked = range(int(first), int(last), int(step)) if stop is not None or int(step) < 0 else range(0)
            found = found.take(list(picked), axis)
    return call.like(dims, contents=found)


def bounds(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Return start and end of a slice within a dimension of ``size``."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    made = []
    for at in (start, end):
        place = at + size if int(at) < 0 else at
        made.append(low if int(place) < int(low) else high if int(place) > int(high) else place)
    if step < 0 and int(start) >= 0 and int(made[0]) < 0:
        made[0] = 0
    return made[0], made[1]


@shape("Pad")
def pad(call: Call) -> Spec:
    """Padded at both ends of dimensions."""
    x = call.x()
    pads = call.integers(1, "pads") if call.version >= 11 else call.attr("pads", ())
    axes = call.integers(3, "axes") or tuple(range(x.rank))
    if pads is None or len(pads) != 2 * len(axes):
        raise ShapeError(f"pads {pads} of {len(axes)} dimensions")
    edges = zip([call.axis(axis, x.rank) for axis in axes], pads, pads[len(axes) :], strict=False)
    dims = padded(x.shape, edges)
    if any(int(n) < 0 for n in dims):
        raise ShapeError(f"the pads {pads} of the shape {x.shape}")
    return call.like(dims)


@shape("CenterCropPad")
def crop_pad(call: Call) -> Spec:
    """Cut or padded to a shape."""
    x, wanted = call.x(), call.sizes(1)
    axes = call.attr("axes", tuple(range(x.rank)))
    if len(axes) != len(wanted):
        raise ShapeError(f"{len(wanted)} sizes of {len(axes)} dimensions")
    dims = x.shape
    for axis, n in zip(axes, wanted, strict=True):
        dims = replaced(dims, call.axis(axis, x.rank), n)
    return call.like(dims)


shape("Size")(lambda call: Spec((), "int64", scalar(count(call.x().shape))))
shape("TfIdfVectorizer")(  # counts of n-grams
    lambda call: Spec((*call.x().shape[:-1], max(call.attr("ngram_indexes", (0,)), default=0) + 1), "float32")
)
shape("StringSplit")(
    lambda call: [call.like((*call.x().shape, call.symbol("parts", 1)), dtype="string"), call.like(dtype="int64")]
)
shape("ImageDecoder")(lambda call: Spec((call.symbol("height", 224), call.symbol("width", 224), 3), "uint8"))
