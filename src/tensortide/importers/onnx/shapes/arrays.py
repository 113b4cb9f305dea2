"""Shapes of ops that rearrange, cut, join and look up."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensortide.importers.onnx.contents import array, scalar
from tensortide.importers.onnx.shapes.base import Call, count, like, shape
from tensortide.importers.onnx.shapes.elements import contents_of, dims_of
from tensortide.importers.onnx.value import FEW, MOST_DIMS, Spec


@shape("Identity")
def identity(call: Call) -> list[Spec]:
    """The input itself."""
    x = call.given(0)
    if x is not None and x.items is not None:
        return [Spec(items=x.items)]
    return [Spec(call.x().shape, call.x().dtype, call.x().contents, view_of=0)]


@shape("Shape")
def shape_of(call: Call) -> list[Spec]:
    """The dimensions as a tensor."""
    x = call.x()
    dims = list(x.shape)[call.attr("start", 0) : call.attr("end", x.rank)]
    return [Spec((len(dims),), "int64", array(dims))]


@shape("Size")
def size_of(call: Call) -> list[Spec]:
    """The number of elements."""
    return [Spec((), "int64", scalar(count(call.x().shape)))]


@shape("Reshape")
def reshape(call: Call) -> list[Spec]:
    """The same elements in another shape; -1 is what remains, 0 copies a dimension."""
    x = call.x()
    wanted = _wanted(call)
    dims = [x.shape[i] if n is not None and int(n) == 0 and not call.attr("allowzero", 0) else n
            for i, n in enumerate(wanted)]  # fmt: skip
    unknown = [i for i, n in enumerate(dims) if n is None]
    open_ = [i for i, n in enumerate(dims) if n is not None and int(n) == -1]
    if len(unknown) == 1 and not open_:
        open_, unknown = unknown, []  # one unknown size follows from the number of elements
    for i in unknown:
        dims[i] = call.symbol(f"dim{i}", 1)
    if len(open_) > 1:
        raise call.fail(f"the shape {wanted}")
    total = count(x.shape)
    if open_:
        rest = count([n for i, n in enumerate(dims) if i not in open_])
        if rest == 0 or int(total) % int(rest):
            raise call.fail(f"the shape {_plain(x.shape)} as {_plain(wanted)}")
        dims[open_[0]] = total // rest
    elif not unknown and int(count(dims)) != int(total):
        raise call.fail(f"the shape {_plain(x.shape)} as {_plain(wanted)}")
    if any(int(n) < 0 for n in dims):
        raise call.fail(f"the shape {_plain(wanted)}")
    return [Spec(tuple(dims), x.dtype, None if x.contents is None else _reshaped(x.contents, dims), view_of=0)]


def _wanted(call: Call) -> list[Any]:
    """List the dimensions that a Reshape asks for."""
    attribute = call.attr("shape")
    if attribute is not None and call.given(1) is None:
        return list(attribute)
    rank = int(count(call.x(1).shape))
    if rank > MOST_DIMS:
        raise call.fail(f"a shape of {rank} dimensions")
    return call.content(1) or [None] * rank


def _reshaped(contents: np.ndarray, dims: list[int]) -> np.ndarray | None:
    shape = tuple(map(int, dims))
    return contents.reshape(shape) if contents.size == count(shape) else None


def _plain(dims: object) -> list[int | None]:
    return [None if n is None else int(n) for n in dims]  # type: ignore[attr-defined]


@shape("Flatten")
def flatten(call: Call) -> list[Spec]:
    """Two dimensions."""
    x = call.x()
    axis = call.attr("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise call.fail(f"axis {axis} of {x.rank} dimensions")
    axis = axis + x.rank if axis < 0 else axis
    return [Spec((count(x.shape[:axis]), count(x.shape[axis:])), x.dtype, view_of=0)]


@shape("Squeeze")
def squeeze(call: Call) -> list[Spec]:
    """Dimensions of 1 left out."""
    x, axes = call.x(), call.integers(1, "axes")
    if axes is None:
        gone = {i for i, n in enumerate(x.shape) if int(n) == 1}
    else:
        gone = {call.axis(axis, x.rank) for axis in axes}
        if bad := [x.shape[i] for i in gone if int(x.shape[i]) != 1]:
            raise call.fail(f"it leaves out a dimension of {bad[0]}")
    dims = tuple(n for i, n in enumerate(x.shape) if i not in gone)
    return [Spec(dims, x.dtype, None if x.contents is None else _reshaped(x.contents, list(dims)), view_of=0)]


@shape("Unsqueeze")
def unsqueeze(call: Call) -> list[Spec]:
    """Dimensions of 1 put in."""
    x, axes = call.x(), call.integers(1, "axes") or ()
    rank = x.rank + len(axes)
    places = {call.axis(axis, rank) for axis in axes}
    rest = iter(x.shape)
    dims = tuple(1 if i in places else next(rest) for i in range(x.rank + len(places)))
    return [Spec(dims, x.dtype, None if x.contents is None else _reshaped(x.contents, list(dims)), view_of=0)]


@shape("Transpose")
def transpose(call: Call) -> list[Spec]:
    """Dimensions in another order."""
    x = call.x()
    order = call.attr("perm", tuple(reversed(range(x.rank))))
    if sorted(order) != list(range(x.rank)):
        raise call.fail(f"the order {order} of {x.rank} dimensions")
    found = None if x.contents is None else x.contents.transpose(order)
    return [like(x, shape=tuple(x.shape[i] for i in order), contents=found)]


@shape("Expand")
def expand(call: Call) -> list[Spec]:
    """Broadcast to a shape."""
    x = call.x()
    wanted = dims_of(call, 1, x.shape)
    dims = call.broadcast(x.shape, wanted)
    few = x.contents is not None and count(dims) <= FEW
    found = np.broadcast_to(x.contents, tuple(map(int, dims))) if few and x.contents is not None else None
    return [like(x, shape=dims, contents=found)]


@shape("Tile")
def tile(call: Call) -> list[Spec]:
    """Repeated along dimensions."""
    x = call.x()
    repeats = dims_of(call, 1)
    if len(repeats) != x.rank:
        raise call.fail(f"{len(repeats)} repeats of {x.rank} dimensions")
    dims = tuple(n * times for n, times in zip(x.shape, repeats, strict=True))
    few = x.contents is not None and count(dims) <= FEW
    return [
        like(
            x,
            shape=dims,
            contents=np.tile(x.contents, tuple(map(int, repeats))) if few and x.contents is not None else None,
        )
    ]


@shape("Concat")
def concat(call: Call) -> list[Spec]:
    """Joined along an axis."""
    values = [call.x(i) for i in range(len(call.inputs))]
    first = call.ranked(0, 1)
    axis = call.axis(call.attr("axis", 0), first.rank)
    if any(value.rank != first.rank for value in values):
        raise call.fail(f"inputs of {sorted({value.rank for value in values})} dimensions")
    dims = list(first.shape)
    dims[axis] = sum(value.shape[axis] for value in values)
    found = None
    if first.rank == 1 and dims[0] <= FEW and any(value.contents is not None for value in values):
        found = array(element for value in values for element in contents_of(value))
    elif all(value.contents is not None for value in values):
        found = np.concatenate([value.contents for value in values if value.contents is not None], axis)
    for value in values:
        for i, n in enumerate(value.shape):
            if i != axis and int(n) != int(dims[i]):
                raise call.fail(f"the shapes {first.shape} and {value.shape} along axis {axis}")
    return [like(first, shape=tuple(dims), contents=found)]


@shape("Split")
def split(call: Call) -> list[Spec]:
    """Cut along an axis."""
    x = call.ranked(0, 1)
    axis = call.axis(call.attr("axis", 0), x.rank)
    parts, total = len(call.node.outputs), x.shape[axis]
    sizes = call.integers(1, "split")
    if sizes is None:
        each = -(-total // max(parts, 1))
        sizes = (each,) * (parts - 1) + (total - each * (parts - 1),)
    if int(sum(sizes)) != int(total) or len(sizes) != parts or any(int(n) < 0 for n in sizes):
        raise call.fail(f"{int(total)} as the parts {tuple(map(int, sizes))}")
    made, start = [], 0
    for n in sizes:
        found = None
        if x.contents is not None:
            found = x.contents.take(range(int(start), int(start + n)), axis)
        made.append(like(x, shape=(*x.shape[:axis], n, *x.shape[axis + 1 :]), contents=found))
        start += n
    return made


@shape("Slice")
def cut(call: Call) -> list[Spec]:
    """A part along axes, possibly with steps."""
    x = call.x()
    starts, ends = (
        (call.content(1), call.content(2)) if call.version >= 10 else (call.attr("starts"), call.attr("ends"))
    )
    if starts is None or ends is None or len(starts) != len(ends):
        return [_cut_by_data(call)]
    axes = (call.integers(3, "axes") if call.version >= 10 else call.attr("axes")) or tuple(range(len(starts)))
    steps = (call.content(4) if call.version >= 10 else None) or [1] * len(starts)
    if not len(axes) == len(steps) == len(starts):
        raise call.fail("starts, ends, axes and steps of different numbers")
    dims, found = list(x.shape), x.contents
    for i, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = call.axis(i, x.rank)
        if start is None or end is None or step is None:
            dims[axis], found = call.symbol(f"dim{axis}", dims[axis]), None
            continue
        if int(step) == 0:
            raise call.fail("a step of 0")
        first, last = bounds(start, end, step, dims[axis])
        dims[axis] = -((first - last) // step) if (int(last) - int(first)) * int(step) > 0 else 0
        if found is not None:
            stop = int(last) if int(last) >= 0 else None
            picked = range(int(first), int(last), int(step)) if stop is not None or int(step) < 0 else range(0)
            found = found.take(list(picked), axis)
    return [like(x, shape=tuple(dims), contents=found)]


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


def _cut_by_data(call: Call) -> Spec:
    x, axes = call.x(), None
    if call.version >= 10 and call.given(3) is not None:
        axes = call.content(3)
    places = range(x.rank) if axes is None or any(axis is None for axis in axes) else axes
    dims = list(x.shape)
    for axis in places:
        dims[call.axis(axis, x.rank)] = call.symbol(f"dim{axis}", dims[call.axis(axis, x.rank)])
    return like(x, shape=tuple(dims))


@shape("Pad")
def pad(call: Call) -> list[Spec]:
    """Padded at both ends of dimensions."""
    x = call.x()
    pads = call.integers(1, "pads") if call.version >= 11 else call.attr("pads", ())
    axes = call.integers(3, "axes") or tuple(range(x.rank))
    if pads is None or len(pads) != 2 * len(axes):
        raise call.fail(f"pads {pads} of {len(axes)} dimensions")
    dims = list(x.shape)
    for i, axis in enumerate(axes):
        dims[call.axis(axis, x.rank)] += pads[i] + pads[i + len(axes)]
    if any(int(n) < 0 for n in dims):
        raise call.fail(f"the pads {pads} of the shape {x.shape}")
    return [like(x, shape=tuple(dims))]


@shape("CenterCropPad")
def crop_pad(call: Call) -> list[Spec]:
    """Cut or padded to a shape."""
    x, wanted = call.x(), dims_of(call, 1)
    axes = call.attr("axes", tuple(range(x.rank)))
    if len(axes) != len(wanted):
        raise call.fail(f"{len(wanted)} sizes of {len(axes)} dimensions")
    dims = list(x.shape)
    for axis, n in zip(axes, wanted, strict=True):
        dims[call.axis(axis, x.rank)] = n
    return [like(x, shape=tuple(dims))]


@shape("TfIdfVectorizer")
def tf_idf(call: Call) -> list[Spec]:
    """Counts of n-grams."""
    x = call.x()
    n = max(call.attr("ngram_indexes", (0,)), default=0) + 1
    return [Spec((*x.shape[:-1], n), "float32")]


@shape("StringSplit")
def string_split(call: Call) -> list[Spec]:
    """Parts of texts, and how many there are."""
    x = call.x()
    return [Spec((*x.shape, call.symbol("parts", 1)), "string"), Spec(x.shape, "int64")]


@shape("ImageDecoder")
def decoded(call: Call) -> list[Spec]:
    """A picture of a size that its bytes say."""
    return [Spec((call.symbol("height", 224), call.symbol("width", 224), 3), "uint8")]
