"""Operations that join, cut and place, and those that change axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from tensortide.importers.keras.layers.layer import Shape
from tensortide.importers.keras.op_shapes.operation import MOST_RESULTS, Operation, shape
from tensortide.importers.shapes import (
    PLAIN,
    ShapeError,
    axis_of,
    broadcast,
    concatenated,
    inserted,
    padded,
    permuted,
    reduced,
    replaced,
    unsqueezed,
)

# --- joining and cutting -------------------------------------------------------------------------------


@shape("Concatenate")
def joined(call: Operation) -> Shape:
    """One after the other along an axis."""
    return concatenated(PLAIN, call.listed, call.axis(len(call.listed[0])))


@shape("Append")
def appended(call: Operation) -> Shape:
    """Two, one after the other along an axis, or flat."""
    a, b = call.x, call.shape(1)
    if call.config["axis"] is None:
        return (math.prod(a) + math.prod(b),)
    return concatenated(PLAIN, [a, b], call.axis(len(a)))


@shape("Stack")
def stacked(call: Operation) -> Shape:
    """One beside the other along a new axis."""
    first = call.listed[0]
    return inserted(first, call.axis(len(first) + 1), len(call.listed))


@shape("Hstack Vstack")
def put_together(call: Operation) -> Shape:
    """One after the other along the first axis or the second; vectors are rows."""
    least = 2 if call.kind == "Vstack" else 1
    dims = [(1,) * (least - len(one)) + one for one in call.listed]
    return concatenated(PLAIN, dims, int(call.kind == "Hstack" and len(dims[0]) > 1))


@shape("ArraySplit Dsplit Hsplit Split Vsplit")
def split(call: Operation) -> list[Shape]:
    """Equal parts, the first of them longer by one where the size does not divide, or parts between positions."""
    of_name = {"Vsplit": 0, "Hsplit": min(1, len(call.x) - 1), "Dsplit": 2}.get(call.kind)
    axis = call.axis(len(call.x)) if of_name is None else axis_of(of_name, len(call.x))
    parts = call.config["indices_or_sections"]
    size = call.x[axis]
    if isinstance(parts, int):
        if not 0 < parts <= MOST_RESULTS or (call.kind != "ArraySplit" and size % parts):
            raise ShapeError(f"{parts} parts of {size}")
        sizes = [size // parts + (i < size % parts) for i in range(parts)]
    else:
        edges = [0, *(min(edge if edge >= 0 else edge + size, size) for edge in parts), size]
        sizes = [max(0, after - before) for before, after in pairwise(edges)]
    return [replaced(call.x, axis, one) for one in sizes]


@shape("Unstack")
def unstacked(call: Operation) -> list[Shape]:
    """Every place of an axis by itself."""
    axis = call.axis(len(call.x))
    return [reduced(call.x, [axis])] * min(int(call.x[axis]), MOST_RESULTS + 1)


# --- places --------------------------------------------------------------------------------------------


@shape("TakeAlongAxis")
def taken_along(call: Operation) -> Shape:
    """Places of an axis in each row."""
    if call.config["axis"] is None:
        return (math.prod(call.shape(1)),)
    axis = call.axis(len(call.x))
    return replaced(
        broadcast(PLAIN, replaced(call.x, axis, 1), replaced(call.shape(1), axis, 1)), axis, call.shape(1)[axis]
    )


@shape("Take")
def taken(call: Operation) -> Shape:
    """Places of an axis, or of all elements in a row."""
    where = call.shape(1)
    return where if call.config["axis"] is None else replaced(call.x, call.axis(len(call.x)), *where)


@shape("GetItem")
def item(call: Operation) -> Shape:
    """Parts and places of axes, an ellipsis for those between, None for a new one."""
    key = call.arguments[1]
    keys = [*key] if isinstance(key, list) else [key]
    rest = [isinstance(one, Mapping) and one["class_name"] == "__ellipsis__" for one in keys]
    at = rest.index(True) if True in rest else len(keys)
    between = len(call.x) - sum(one is not None for one in keys) + any(rest)
    if between < 0:
        raise ShapeError(f"{len(keys)} places of {len(call.x)} dimensions")
    whole = {"class_name": "__slice__", "config": {}}
    keys[at : at + 1] = [whole] * between
    sizes, dims = iter(call.x), []
    for one in keys:
        if one is None:
            dims.append(1)
            continue
        size = next(sizes)
        if isinstance(one, Mapping) and one["class_name"] == "__slice__":
            dims.append(_sliced(size, **one["config"]))
        elif isinstance(one, bool) or not isinstance(one, int):
            raise ShapeError(f"the place {one!r}")
    return tuple(dims)


def _sliced(size: int, start: int | None = None, stop: int | None = None, step: int | None = None) -> int:
    if start in (None, 0) and stop is None and step in (None, 1):
        return size
    return len(range(*slice(start, stop, step).indices(int(size))))


@shape("Slice")
def cut(call: Operation) -> Shape:
    """A part of given sizes; -1 is what is left from its start."""
    sizes, starts = call.config["shape"], call.arguments[1]
    return tuple(n - starts[i] if sizes[i] == -1 else sizes[i] for i, n in enumerate(call.x))


@shape("Pad")
def edged(call: Operation) -> Shape:
    """As much more at both ends as each axis has; one pair is for all."""
    pairs = call.config["pad_width"]
    if isinstance(pairs, int):
        pairs = [[pairs, pairs]]
    pairs = pairs * len(call.x) if len(pairs) == 1 else pairs
    return padded(call.x, ((axis, *pair) for axis, pair in zip(range(len(call.x)), pairs, strict=True)))


@shape("Repeat")
def repeated(call: Operation) -> Shape:
    """Every element of an axis so often, one after the other."""
    times, axis = call.config["repeats"], call.config["axis"]
    dims, axis = ((math.prod(call.x),), 0) if axis is None else (call.x, call.axis(len(call.x)))
    once = times[0] if isinstance(times, list) and len(times) == 1 else times
    return replaced(dims, axis, dims[axis] * once if isinstance(once, int) else sum(once))


@shape("Tile")
def tiled(call: Operation) -> Shape:
    """The whole so often along each axis."""
    times = call.config["repeats"]
    times = (times,) if isinstance(times, int) else tuple(times)
    rank = max(len(call.x), len(times))
    dims, times = (1,) * (rank - len(call.x)) + call.x, (1,) * (rank - len(times)) + times
    return tuple(n * m for n, m in zip(dims, times, strict=True))


@shape("Diff")
def differences(call: Operation) -> Shape:
    """One less along an axis for each difference."""
    axis = call.axis(len(call.x))
    return replaced(call.x, axis, max(0, call.x[axis] - call.config["n"]))


@shape("Glu")
def gated(call: Operation) -> Shape:
    """Half of an axis, by the other half."""
    axis = call.axis(len(call.x))
    return replaced(call.x, axis, call.x[axis] // 2)


@shape("RFFT")
def half_spectrum(call: Operation) -> list[Shape]:
    """The frequencies of real signals that are not mirrored: real and imaginary parts."""
    length = call.config["fft_length"]
    return [replaced(call.listed[0] if isinstance(call.arguments[0], list) else call.x, -1 % len(call.x),
                     (call.x[-1] if length is None else length) // 2 + 1)] * 2  # fmt: skip


# --- axes ----------------------------------------------------------------------------------------------


@shape("Rot90")
def turned(call: Operation) -> Shape:
    """A plane turned by quarters."""
    a, b = call.axes(len(call.x), "axes")
    return replaced(replaced(call.x, a, call.x[b]), b, call.x[a]) if call.config["k"] % 2 else call.x


@shape("Transpose")
def transposed(call: Operation) -> Shape:
    """Axes in another order, by default backwards."""
    axes = call.config["axes"]
    return call.x[::-1] if axes is None else permuted(call.x, [axis_of(axis, len(call.x)) for axis in axes])


@shape("Swapaxes")
def swapped(call: Operation) -> Shape:
    """Two axes for each other."""
    a, b = (call.axis(len(call.x), name) for name in ("axis1", "axis2"))
    return replaced(replaced(call.x, a, call.x[b]), b, call.x[a])


@shape("Moveaxis")
def moved(call: Operation) -> Shape:
    """Axes at other places; the rest keep their order."""
    rank = len(call.x)
    source, target = call.axes(rank, "source"), call.axes(rank, "destination")
    order = [axis for axis in range(rank) if axis not in source]
    for place, axis in sorted(zip(target, source, strict=True)):
        order.insert(place, axis)
    return permuted(call.x, order)


@shape("ExpandDims")
def expanded(call: Operation) -> Shape:
    """New axes of one."""
    value = call.config["axis"]
    count = 1 if isinstance(value, int) else len(value)
    return unsqueezed(call.x, call.axes(len(call.x) + count), 1)


@shape("Squeeze")
def squeezed(call: Operation) -> Shape:
    """No axes of one."""
    given = call.config["axis"] is not None
    return reduced(call.x, [i for i in call.axes(len(call.x)) if given or int(call.x[i]) == 1])


@shape("Ravel Reshape")
def reshaped(call: Operation) -> Shape:
    """Other sizes for the same elements; one of them may be what is left."""
    target = [-1] if call.kind == "Ravel" else call.config["newshape"]
    target = [target] if isinstance(target, int) else target
    known = math.prod(n for n in target if n != -1)
    return tuple(math.prod(call.x) // known if n == -1 else n for n in target)


@shape("BroadcastTo Full")
def given(call: Operation) -> Shape:
    """The shape that is described."""
    dims = call.config["shape"]
    return (dims,) if isinstance(dims, int) else tuple(dims)


@shape("OneHot")
def one_hot(call: Operation) -> Shape:
    """A new axis with a place for each class."""
    return inserted(call.x, call.axis(len(call.x) + 1), call.config["num_classes"])


@shape("Geomspace Linspace Logspace")
def spaced(call: Operation) -> Shape:
    """A new axis with numbers between two."""
    dims = broadcast(PLAIN, call.x, call.shape(1))
    return inserted(dims, call.axis(len(dims) + 1), call.config["num"])
