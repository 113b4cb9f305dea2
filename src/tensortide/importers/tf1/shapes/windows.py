"""Ops with windows or channels: convolutions, pooling, batch normalization, bias."""

from __future__ import annotations

from tensortide.expr import Expr, ceil_ratio, constant
from tensortide.importers.tf1.program import Shape
from tensortide.importers.tf1.shapes.table import Op, Result, Tensor, Unknown, shape_of
from tensortide.importers.tf1.sizes.unify import Contradiction, Origin

__all__ = ["layout", "window_size"]


def layout(op: Op, rank: int) -> tuple[int, list[int]]:
    """Return the axes of channels and of space; axis 0 is the batch."""
    first = op.text("data_format", "NHWC").startswith("NC") and rank > 2
    return (1, list(range(2, rank))) if first else (rank - 1, list(range(1, rank - 1)))


def window_size(op: Op, size: Expr, kernel: Expr, stride: int, dilation: int = 1) -> Expr:
    """Count the positions of a window: ``ceil(n/s)`` under SAME, ``floor((n - k)/s) + 1`` under VALID padding; inexact:
    ``floor(n/s)`` always."""
    if not op.exact:
        return size // stride
    if op.text("padding") == "SAME":
        return ceil_ratio(size, stride)
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def _per_axis(op: Op, name: str, rank: int) -> tuple[int, ...]:
    given = op.integers(name)
    return given if len(given) == rank else (1,) * rank


def _padded(op: Op, shape: Shape, axis: int) -> Expr:
    pads = op.integers("explicit_paddings")
    return shape[axis] + (pads[2 * axis] + pads[2 * axis + 1] if len(pads) == 2 * len(shape) else 0)


def _pinned(op: Op, size: Expr) -> Expr:
    """Make a kernel's extent a number, unless the caller has named it."""
    if any(op.sizes.origins[name] is Origin.USER for name in size.symbols) or not op.sizes.stored(size):
        return size
    return op.equal(size, constant(op.int_of(size)))


def _spread(op: Op, image: Shape, kernel: Shape) -> tuple[int, list[int], list[Expr]]:
    """Channel axis, space axes, and the output's extents in space."""
    if len(image) != len(kernel) or len(image) < 3:
        raise Contradiction(f"an image of {len(image)} and a kernel of {len(kernel)} dimensions")
    channel, space = layout(op, len(image))
    strides, dilations = _per_axis(op, "strides", len(image)), _per_axis(op, "dilations", len(image))
    extents = [
        window_size(op, _padded(op, image, axis), _pinned(op, kernel[i]), strides[axis], dilations[axis])
        for i, axis in enumerate(space)
    ]
    return channel, space, extents


def _placed(image: Shape, channel: int, space: list[int], channels: Expr, extents: list[Expr]) -> Shape:
    dims = [image[0]] * len(image)
    dims[channel] = channels
    for axis, extent in zip(space, extents, strict=True):
        dims[axis] = extent
    return tuple(dims)


def _join_channels(op: Op, inside: Expr, kernel: Expr) -> None:
    """Unify the channels that a kernel sees with all channels, or with those of one group."""
    have, seen = op.sizes.number(inside), op.sizes.number(kernel)
    groups = have / seen if op.sizes.stored(inside) and op.sizes.stored(kernel) else 1
    op.equal(inside, kernel * int(groups) if groups == int(groups) else kernel)


def _convolved(op: Op, image: Shape, kernel: Shape) -> Shape:
    channel, space, extents = _spread(op, image, kernel)
    _join_channels(op, image[channel], kernel[-2])
    out = kernel[-2] * kernel[-1] if op.type.startswith("Depthwise") else kernel[-1]
    return _placed(image, channel, space, op.sizes.now(out), extents)


@shape_of("Conv2D Conv3D DepthwiseConv2dNative")
def convolution(op: Op) -> Result:
    return [Tensor(_convolved(op, op.shape(0), op.shape(1)))]


@shape_of(
    "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput "
    "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter"
)
def convolution_gradient(op: Op) -> Result:
    """The shape of the image or of the kernel, whichever it is the gradient of: an input says it, as values."""
    own, other = (1, 0) if "Filter" in op.type else (0, 1)
    known, gradient = op.shape(other), op.shape(2)
    shape = op.stored(0) if op.inputs[own].values is None else op.values(own)
    if shape is None:
        raise Unknown
    image, kernel = (known, shape) if own else (shape, known)
    op.same(_convolved(op, image, kernel), gradient)
    return [Tensor(tuple(map(op.sizes.now, shape)))]


@shape_of("MaxPool AvgPool MaxPool3D AvgPool3D MaxPoolWithArgmax")
def pooling(op: Op) -> Result:
    image = op.shape(0)
    kernel, strides = op.integers("ksize"), op.integers("strides")
    if len(kernel) != len(image) or len(strides) != len(image):
        raise Contradiction(f"an image of {len(image)} and windows of {len(kernel)} dimensions")
    out = tuple(
        dim if k == s == 1 else window_size(op, dim, constant(k), s)
        for dim, k, s in zip(image, kernel, strides, strict=True)
    )
    return [Tensor(out)] * op.outputs


@shape_of("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def batch_norm(op: Op) -> Result:
    image = op.shape(0)
    channel = layout(op, len(image))[0]
    for i in (1, 2):
        op.same((image[channel],), op.shape(i))
    per_channel = Tensor((op.sizes.now(image[channel]),))
    return [Tensor(op.shape(0)), *[per_channel] * 4, Tensor((constant(0),))][: max(op.outputs, 5)]


@shape_of("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def batch_norm_gradient(op: Op) -> Result:
    image = op.same(op.shape(1), op.shape(0)) if op.known(0) else op.shape(1)
    channel = image[layout(op, len(image))[0]]
    op.same((channel,), op.shape(2))
    return [Tensor(image), Tensor((channel,)), Tensor((channel,)), Tensor((constant(0),)), Tensor((constant(0),))]


@shape_of("BiasAdd BiasAddV1")
def bias_add(op: Op) -> Result:
    shape = op.shape(0)
    op.same((shape[layout(op, len(shape))[0]],), op.shape(1))
    return [Tensor(op.shape(0))]


@shape_of("BiasAddGrad")
def bias_add_gradient(op: Op) -> Result:
    shape = op.shape(0)
    return [Tensor((shape[layout(op, len(shape))[0]],))]


@shape_of("ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea")
def resize(op: Op) -> Result:
    image = op.shape(0)
    return [Tensor((image[0], *op.values(1), image[-1]))]


@shape_of("SpaceToDepth DepthToSpace")
def move_space(op: Op) -> Result:
    image, block = op.shape(0), op.integer("block_size", 1)
    channel, space = layout(op, len(image))
    grows = op.type == "DepthToSpace"
    extents = [image[axis] * block if grows else image[axis] // block for axis in space]
    channels = image[channel] // block ** len(space) if grows else image[channel] * block ** len(space)
    return [Tensor(_placed(image, channel, space, channels, extents))]
