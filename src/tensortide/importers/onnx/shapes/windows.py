"""Shapes of convolutions, pooling and resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.importers.onnx.shapes.base import Call, count, shape
from tensortide.importers.onnx.value import Spec
from tensortide.importers.shapes import ShapeError, plain, positions, reduced, replaced, spread


def spatial(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    """Return an attribute with a positive number for every spatial dimension."""
    found = tuple(call.attr(name, (default,) * rank))
    if len(found) != rank or min(found, default=1) < (0 if name == "output_padding" else 1):
        raise ShapeError(f"its attribute {name} is {found} for {rank} spatial dimensions")
    return found


def pads_of(call: Call, rank: int) -> list[tuple[int, int]]:
    """List what is padded at both ends of every spatial dimension."""
    pads = call.attr("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise ShapeError(f"its attribute pads is {pads} for {rank} spatial dimensions")
    return [*zip(pads[:rank], pads[rank:], strict=True)]


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int], up: int = 0) -> tuple[int, ...]:
    """Return the number of places of a window along every spatial dimension; ``up``: rounded up if it is 1."""
    rank = len(sizes)
    strides, dilations = spatial(call, "strides", rank, 1), spatial(call, "dilations", rank, 1)
    auto = call.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(positions(n, 1, step, same=True) for n, step in zip(sizes, strides, strict=True))
    pads = [(0, 0)] * rank if auto == "VALID" else pads_of(call, rank)
    made = []
    for n, k, step, dilation, (before, after) in zip(sizes, kernel, strides, dilations, pads, strict=False):
        extent, room = (k - 1) * dilation + 1, n + before + after
        if int(room) < int(extent):
            raise ShapeError(f"a window of {int(extent)} in {int(room)}")
        found = positions(room, k, step, dilation)
        if up:
            steps = -(-(room - extent) // step)
            # not a window that would begin in the padding at the end
            found = steps + (int(steps) * step < int(n + before))
        made.append(found)
    return tuple(made)


def filters(call: Call, first: int = 0, second: int = 1, group_axis: int = 1) -> tuple[int, ...]:
    """Return the kernel's sizes, after checking channels and groups."""
    x, w, groups = call.x(first), call.x(second), call.attr("group", 1)
    if w.rank != x.rank or x.rank < 3:
        raise ShapeError(f"the shapes {plain(x.shape)} and {plain(w.shape)}")
    inputs = w.shape[1] * groups if group_axis == 1 else w.shape[0]
    if groups < 1 or int(inputs) != int(x.shape[1]) or int(w.shape[0]) % groups:
        raise ShapeError(f"{groups} groups of the shapes {plain(x.shape)} and {plain(w.shape)}")
    return w.shape[2:]


def convolved(call: Call, first: int = 0, second: int = 1) -> tuple[int, ...]:
    """Return the shape of a convolution; the kernel's sizes are those of the weight."""
    x, kernel = call.x(first), filters(call, first, second)
    return (x.shape[0], call.x(second).shape[0], *windows(call, x.shape[2:], kernel))


@shape("CausalConvWithState")
def causal_conv(call: Call) -> list[Spec]:
    """A convolution along time that keeps the last inputs as state."""
    x, w = call.ranked(0, 3), call.ranked(1, 3)
    return [call.like(), call.like((*x.shape[:2], *(n - 1 for n in w.shape[2:])))]


@shape("ConvTranspose")
def transposed(call: Call) -> Spec:
    """A transposed convolution: sizes from the input, or as asked."""
    x, kernel = call.x(0), filters(call, group_axis=0)
    rank, channels = len(kernel), call.x(1).shape[1] * call.attr("group", 1)
    strides, dilations = spatial(call, "strides", rank, 1), spatial(call, "dilations", rank, 1)
    asked = call.attr("output_shape")
    if asked is not None:
        if len(asked) not in (rank, rank + 2):
            raise ShapeError(f"its attribute output_shape is {asked}")
        return call.like((x.shape[0], channels, *asked[-rank:]))
    extra, pads = spatial(call, "output_padding", rank, 0), pads_of(call, rank)
    auto = call.attr("auto_pad", "NOTSET")
    made = []
    for i, n in enumerate(x.shape[2:]):
        cut = sum(pads[i]) if auto == "NOTSET" else 0
        full = spread(n, kernel[i], strides[i], dilations[i]) + extra[i] - cut
        made.append(n * strides[i] if auto in ("SAME_UPPER", "SAME_LOWER") else full)
    if any(int(n) < 0 for n in made):
        raise ShapeError(f"an output of {plain(made)}")
    return call.like((x.shape[0], channels, *made))


def kernel_of(call: Call, rank: int) -> tuple[int, ...]:
    """Return the window of a pooling of ``rank`` spatial dimensions."""
    kernel: tuple[int, ...] = call.attr("kernel_shape", ())
    if len(kernel) != rank or min(kernel, default=1) < 1:
        raise ShapeError(f"its attribute kernel_shape is {kernel} for the shape {plain(call.x().shape)}")
    return kernel


@shape("MaxPool AveragePool LpPool")
def pooled(call: Call) -> list[Spec]:
    """Windows reduced to a number each; of MaxPool also the places."""
    x = call.ranked(0, 3)
    dims = (*x.shape[:2], *windows(call, x.shape[2:], kernel_of(call, x.rank - 2), call.attr("ceil_mode", 0)))
    return [call.like(dims), Spec(dims, "int64")]


@shape("MaxUnpool")
def unpooled(call: Call) -> Spec:
    """Maxima put back at their places."""
    x = call.ranked(0, 3)
    if call.given(2) is not None:
        return call.like(call.sizes(2, x.shape))
    kernel, rank = kernel_of(call, x.rank - 2), x.rank - 2
    strides, pads = spatial(call, "strides", rank, 1), pads_of(call, rank)
    sizes = (spread(n, kernel[i], strides[i]) - sum(pads[i]) for i, n in enumerate(x.shape[2:]))
    return call.like((*x.shape[:2], *sizes))


@shape("Resize Upsample")
def resized(call: Call) -> Spec:
    """Interpolated to other sizes, or by factors."""
    x = call.x()
    old = call.node.type == "Upsample" or call.version < 11
    factors = (call.attr("scales") if old and call.version < 9 else call.content(1 if old else 2)) or None
    wanted = None if old or call.given(3) is None else list(call.sizes(3))
    axes = [call.axis(axis, x.rank) for axis in call.attr("axes", tuple(range(x.rank)))]
    for kind, found in (("sizes", wanted), ("scales", factors)):
        if found is not None and len(found) != len(axes):
            raise ShapeError(f"{len(found)} {kind} of {len(axes)} dimensions")
    dims = list(x.shape)
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    if wanted is not None and policy != "stretch":
        ratios = [int(n) / max(1, int(dims[axis])) for axis, n in zip(axes, wanted, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [math.floor(int(dims[axis]) * ratio + 0.5) for axis in axes]
    for i, axis in enumerate(axes):
        if wanted is not None:
            dims[axis] = wanted[i]
        elif factors is not None and factors[i] is not None:
            dims[axis] = math.floor(dims[axis] * _whole(factors[i]))
        else:
            dims[axis] = call.symbol(f"dim{axis}", dims[axis])
    return call.like(dims)


def _whole(factor: float) -> float:
    """A factor without a fraction is a number that expressions take."""
    return int(factor) if float(factor).is_integer() else float(factor)


@shape("AffineGrid")
def affine_grid(call: Call) -> Spec:
    """Places of a grid under affine maps."""
    call.ranked(0, 3, 3)
    size = call.sizes(1)
    return call.like((size[0], *size[2:], len(size) - 2))


@shape("Col2Im")
def columns(call: Call) -> Spec:
    """Blocks added into an image."""
    x, image, block = call.ranked(0, 3, 3), call.sizes(1), call.sizes(2)
    return call.like((x.shape[0], x.shape[1] // max(1, count(block)), *image))


@shape("NonMaxSuppression")
def suppressed(call: Call) -> Spec:
    """Boxes that are kept: at most so many per class as asked."""
    boxes, scores = call.ranked(0, 3, 3), call.ranked(1, 3, 3)
    most = call.content(2)
    each = boxes.shape[1] if not most or most[0] is None or int(most[0]) > int(boxes.shape[1]) else most[0]
    return Spec((call.symbol("count", int(scores.shape[0] * scores.shape[1] * each)), 3), "int64")


@shape("DFT")
def dft(call: Call) -> Spec:
    """A Fourier transform: complex numbers are a last dimension of 2."""
    x, new = call.ranked(0, 2), call.version >= 20
    given, length = call.content(2) if new else None, call.content(1)
    axis = call.axis(given[0] if given and given[0] is not None else call.attr("axis", -2 if new else 1), x.rank)
    n = length[0] if length and length[0] is not None else x.shape[axis]
    half, back = call.attr("onesided", 0), call.attr("inverse", 0)
    dims = replaced(x.shape, axis, n // 2 + 1 if half and not back else n)
    return call.like((*dims[:-1], 1 if half and back else 2))


@shape("STFT")
def stft(call: Call) -> Spec:
    """Fourier transforms of frames."""
    x, step = call.ranked(0, 2), call.content(1)
    window, length = call.given(2), call.content(3)
    n = window.shape[0] if window is not None else length[0] if length else x.shape[1]
    hop = step[0] if step and step[0] else 1
    if n is None or hop is None or int(hop) < 1:
        raise ShapeError("its frames depend on data")
    bins = n // 2 + 1 if call.attr("onesided", 1) else n
    return call.like((x.shape[0], positions(x.shape[1], n, hop), bins, 2))


def regions(call: Call, least: int, most: int, *size: int) -> Spec:
    """Describe places of a given number in every region, which the second input lists."""
    x = call.ranked(0, least, most)
    return call.like((call.ranked(1, 2).shape[0], x.shape[1], *size))


shape("Conv DeformConv")(lambda call: call.like(convolved(call)))
shape("ConvInteger")(lambda call: Spec(convolved(call), "int32"))
shape("QLinearConv")(lambda call: Spec(convolved(call, 0, 3), call.x(7).dtype))
shape("GlobalAveragePool GlobalMaxPool GlobalLpPool")(
    lambda call: call.like(reduced(call.ranked(0, 2).shape, range(2, call.x().rank), 1))
)
shape("MaxRoiPool")(lambda call: regions(call, 3, 64, *call.attr("pooled_shape", (1, 1))))
shape("RoiAlign")(lambda call: regions(call, 4, 4, call.attr("output_height", 1), call.attr("output_width", 1)))
shape("GridSample")(lambda call: call.like((*call.ranked(0, 3).shape[:2], *call.ranked(1, 3).shape[1:-1])))
shape("Det")(lambda call: call.like(call.ranked(0, 2).shape[:-2]))
