"""Shapes of convolutions, pooling and resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.importers.onnx.shapes.base import Call, count, like, shape
from tensortide.importers.onnx.shapes.elements import dims_of
from tensortide.importers.onnx.value import Spec, Value


def spatial(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    """Return an attribute with a positive number for every spatial dimension."""
    found = tuple(call.attr(name, (default,) * rank))
    if len(found) != rank or min(found, default=1) < (0 if name == "output_padding" else 1):
        raise call.fail(f"its attribute {name} is {found} for {rank} spatial dimensions")
    return found


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int], up: int = 0) -> tuple[int, ...]:
    """Return the number of places of a window along every spatial dimension; ``up``: rounded up if it is 1."""
    rank = len(sizes)
    strides, dilations = spatial(call, "strides", rank, 1), spatial(call, "dilations", rank, 1)
    auto = call.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(-(-n // step) for n, step in zip(sizes, strides, strict=True))
    pads = call.attr("pads", (0,) * (2 * rank)) if auto != "VALID" else (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise call.fail(f"its attribute pads is {pads} for {rank} spatial dimensions")
    made = []
    for i, n in enumerate(sizes):
        extent = (kernel[i] - 1) * dilations[i] + 1
        room = n + pads[i] + pads[i + rank] - extent
        if int(room) < 0:
            raise call.fail(f"a window of {int(extent)} in {int(n + pads[i] + pads[i + rank])}")
        steps = -(-room // strides[i]) if up else room // strides[i]
        if up and int(steps) * strides[i] >= int(n + pads[i]):
            steps -= 1  # a window that would begin in the padding at the end
        made.append(steps + 1)
    return tuple(made)


def _filters(call: Call, x: Value, w: Value, group_axis: int) -> tuple[int, ...]:
    """Return the kernel's sizes, after checking channels and groups."""
    if w.rank != x.rank or x.rank < 3:
        raise call.fail(f"the shapes {x.shape} and {w.shape}")
    groups = call.attr("group", 1)
    inputs = w.shape[1] * groups if group_axis == 1 else w.shape[0]
    if groups < 1 or int(inputs) != int(x.shape[1]) or int(w.shape[0]) % groups:
        raise call.fail(f"{groups} groups of the shapes {tuple(map(int, x.shape))} and {tuple(map(int, w.shape))}")
    return w.shape[2:]


@shape("Conv ConvInteger DeformConv")
def conv(call: Call) -> list[Spec]:
    """A convolution; the kernel's sizes are those of the weight."""
    x, w = call.x(0), call.x(1)
    kernel = _filters(call, x, w, 1)
    dtype = "int32" if call.node.type == "ConvInteger" else x.dtype
    return [Spec((x.shape[0], w.shape[0], *windows(call, x.shape[2:], kernel)), dtype)]


@shape("QLinearConv")
def quantized_conv(call: Call) -> list[Spec]:
    """A convolution of quantized numbers, with scales and zero points."""
    x, w = call.x(0), call.x(3)
    return [Spec((x.shape[0], w.shape[0], *windows(call, x.shape[2:], _filters(call, x, w, 1))), call.x(7).dtype)]


@shape("CausalConvWithState")
def causal_conv(call: Call) -> list[Spec]:
    """A convolution along time that keeps the last inputs as state."""
    x, w = call.ranked(0, 3), call.ranked(1, 3)
    state = (x.shape[0], x.shape[1], *(n - 1 for n in w.shape[2:]))
    return [like(x), like(x, shape=state)]


@shape("ConvTranspose")
def transposed(call: Call) -> list[Spec]:
    """A transposed convolution: sizes from the input, or as asked."""
    x, w = call.x(0), call.x(1)
    kernel = _filters(call, x, w, 0)
    rank, channels = len(kernel), w.shape[1] * call.attr("group", 1)
    strides, dilations = spatial(call, "strides", rank, 1), spatial(call, "dilations", rank, 1)
    asked = call.attr("output_shape")
    if asked is not None:
        if len(asked) not in (rank, rank + 2):
            raise call.fail(f"its attribute output_shape is {asked}")
        return [like(x, shape=(x.shape[0], channels, *asked[-rank:]))]
    extra = spatial(call, "output_padding", rank, 0)
    pads = call.attr("pads", (0,) * (2 * rank))
    auto = call.attr("auto_pad", "NOTSET")
    if len(pads) != 2 * rank:
        raise call.fail(f"its attribute pads is {pads} for {rank} spatial dimensions")
    made = []
    for i, n in enumerate(x.shape[2:]):
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            made.append(n * strides[i])
            continue
        cut = pads[i] + pads[i + rank] if auto == "NOTSET" else 0
        made.append((n - 1) * strides[i] + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - cut)
    if any(int(n) < 0 for n in made):
        raise call.fail(f"an output of {tuple(map(int, made))}")
    return [like(x, shape=(x.shape[0], channels, *made))]


@shape("MaxPool AveragePool LpPool")
def pooled(call: Call) -> list[Spec]:
    """Windows reduced to a number each; of MaxPool also the places."""
    x = call.ranked(0, 3)
    kernel = call.attr("kernel_shape", ())
    if len(kernel) != x.rank - 2:
        raise call.fail(f"its attribute kernel_shape is {kernel} for the shape {x.shape}")
    dims = (*x.shape[:2], *windows(call, x.shape[2:], kernel, call.attr("ceil_mode", 0)))
    return [like(x, shape=dims), Spec(dims, "int64")]


@shape("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def global_pool(call: Call) -> list[Spec]:
    """All places reduced to one."""
    x = call.ranked(0, 2)
    return [like(x, shape=(*x.shape[:2], *(1,) * (x.rank - 2)))]


@shape("MaxUnpool")
def unpooled(call: Call) -> list[Spec]:
    """Maxima put back at their places."""
    x = call.ranked(0, 3)
    if call.given(2) is not None:
        return [like(x, shape=dims_of(call, 2, x.shape))]
    kernel = call.attr("kernel_shape", ())
    rank = x.rank - 2
    strides, pads = spatial(call, "strides", rank, 1), call.attr("pads", (0,) * (2 * rank))
    if len(kernel) != rank or len(pads) != 2 * rank:
        raise call.fail(f"its attribute kernel_shape is {kernel} for the shape {x.shape}")
    sizes = ((n - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank] for i, n in enumerate(x.shape[2:]))
    return [like(x, shape=(*x.shape[:2], *sizes))]


@shape("MaxRoiPool")
def roi_pool(call: Call) -> list[Spec]:
    """A maximum of every part of every region."""
    x, regions = call.ranked(0, 3), call.ranked(1, 2)
    return [like(x, shape=(regions.shape[0], x.shape[1], *call.attr("pooled_shape", (1, 1))))]


@shape("RoiAlign")
def roi_align(call: Call) -> list[Spec]:
    """Interpolated places of every region."""
    x, regions = call.ranked(0, 4, 4), call.ranked(1, 2)
    return [like(x, shape=(regions.shape[0], x.shape[1], call.attr("output_height", 1), call.attr("output_width", 1)))]


@shape("Resize Upsample")
def resized(call: Call) -> list[Spec]:
    """Interpolated to other sizes, or by factors."""
    x = call.x()
    old = call.node.type == "Upsample" or call.version < 11
    scales = call.attr("scales") if old and call.version < 9 else call.content(1 if old else 2)
    wanted = None if old or call.given(3) is None else list(dims_of(call, 3))
    axes = [call.axis(axis, x.rank) for axis in call.attr("axes", tuple(range(x.rank)))]
    factors = scales or None
    for kind, found in (("sizes", wanted), ("scales", factors)):
        if found is not None and len(found) != len(axes):
            raise call.fail(f"{len(found)} {kind} of {len(axes)} dimensions")
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
    return [like(x, shape=tuple(dims))]


def _whole(factor: float) -> float:
    """A factor without a fraction is a number that expressions take."""
    return int(factor) if float(factor).is_integer() else float(factor)


@shape("GridSample")
def grid_sample(call: Call) -> list[Spec]:
    """Interpolated at the places of a grid."""
    x, grid = call.ranked(0, 3), call.ranked(1, 3)
    return [like(x, shape=(*x.shape[:2], *grid.shape[1:-1]))]


@shape("AffineGrid")
def affine_grid(call: Call) -> list[Spec]:
    """Places of a grid under affine maps."""
    theta, size = call.ranked(0, 3, 3), dims_of(call, 1)
    return [like(theta, shape=(size[0], *size[2:], len(size) - 2))]


@shape("Col2Im")
def columns(call: Call) -> list[Spec]:
    """Blocks added into an image."""
    x, image, block = call.ranked(0, 3, 3), dims_of(call, 1), dims_of(call, 2)
    return [like(x, shape=(x.shape[0], x.shape[1] // max(1, count(block)), *image))]


@shape("NonMaxSuppression")
def suppressed(call: Call) -> list[Spec]:
    """Boxes that are kept: at most so many per class as asked."""
    boxes, scores = call.ranked(0, 3, 3), call.ranked(1, 3, 3)
    most = call.content(2)
    each = boxes.shape[1] if not most or most[0] is None or int(most[0]) > int(boxes.shape[1]) else most[0]
    return [Spec((call.symbol("count", int(scores.shape[0] * scores.shape[1] * each)), 3), "int64")]


@shape("DFT")
def dft(call: Call) -> list[Spec]:
    """A Fourier transform: complex numbers are a last dimension of 2."""
    x = call.ranked(0, 2)
    given = call.content(2) if call.version >= 20 else None
    axis = call.axis(
        given[0] if given and given[0] is not None else call.attr("axis", -2 if call.version >= 20 else 1), x.rank
    )
    length = call.content(1)
    n = length[0] if length and length[0] is not None else x.shape[axis]
    kept = n // 2 + 1 if call.attr("onesided", 0) and not call.attr("inverse", 0) else n
    dims = [kept if i == axis else size for i, size in enumerate(x.shape)]
    dims[-1] = 1 if call.attr("onesided", 0) and call.attr("inverse", 0) else 2
    return [like(x, shape=tuple(dims))]


@shape("STFT")
def stft(call: Call) -> list[Spec]:
    """Fourier transforms of frames."""
    x, step = call.ranked(0, 2), call.content(1)
    window, length = call.given(2), call.content(3)
    n = window.shape[0] if window is not None else length[0] if length else x.shape[1]
    hop = step[0] if step and step[0] else 1
    if n is None or hop is None or int(hop) < 1:
        raise call.fail("its frames depend on data")
    bins = n // 2 + 1 if call.attr("onesided", 1) else n
    return [like(x, shape=(x.shape[0], (x.shape[1] - n) // hop + 1, bins, 2))]


@shape("Det")
def determinant(call: Call) -> list[Spec]:
    """A number for every matrix."""
    x = call.ranked(0, 2)
    return [like(x, shape=x.shape[:-2])]
