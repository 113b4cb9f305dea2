"""Products and windows: matrices, einsum, convolutions, pooling; and what has channels: batch norm, bias, images."""

from __future__ import annotations

import math

from tensortide.expr import Expr, constant
from tensortide.importers.shapes import ShapeError, blocks_moved, einsum, layout, positions, product
from tensortide.importers.tensorflow.program import Shape
from tensortide.importers.tensorflow.shapes.op import Op, Result, Tensor, Unknown, shape_of
from tensortide.importers.tensorflow.sizes.unify import Origin

__all__: list[str] = []


@shape_of("MatMul SparseMatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedMatMul")
def matrix_product(op: Op) -> Result:
    batched = op.type.startswith("Batch")
    operands = []
    for i, name in enumerate(("adj_x", "adj_y") if batched else ("transpose_a", "transpose_b")):
        shape = op.shape(i)
        if len(shape) < 2:
            raise ShapeError(f"a matrix of {len(shape)} dimensions")
        operands.append((*shape[:-2], shape[-1], shape[-2]) if op.attribute(name, False) else shape)
    a, b = operands
    if not batched and (len(a) != 2 or len(b) != 2):
        raise ShapeError(f"matrices of {len(a)} and {len(b)} dimensions")
    made = product(op.sizes, a, b)
    if op.type[-2:] not in ("V2", "V3"):
        op.same(a[:-2], b[:-2])
    return tuple(map(op.sizes.now, made))


@shape_of("Einsum XlaEinsum")
def summed(op: Op) -> Result:
    shapes = [op.shape(i) for i in range(len(op.inputs))]
    return einsum(op.sizes, op.attribute("equation", ""), shapes, op.equal)


def axes_of(op: Op, rank: int) -> tuple[int, range]:
    """Return the axes of channels and of space; axis 0 is the batch."""
    return layout(rank, op.attribute("data_format", "").startswith("NC") and rank > 2)


def _channels(op: Op, shape: Shape) -> Shape:
    return (shape[axes_of(op, len(shape))[0]],)


def window_size(op: Op, size: Expr, kernel: Expr, stride: int, dilation: int = 1) -> Expr:
    """Count the positions of a window: ``ceil(n/s)`` under SAME, ``floor((n - k)/s) + 1`` under VALID padding; inexact:
    ``floor(n/s)`` always."""
    if not op.exact:
        return size // stride
    return positions(size, kernel, stride, dilation, same=op.attribute("padding", "") == "SAME")


def _per_axis(op: Op, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    given = op.attribute(name, ())
    return given if len(given) == rank else (default,) * rank


def _pinned(op: Op, size: Expr) -> Expr:
    """Make a kernel's extent a number, unless the caller has named it."""
    if any(op.sizes.origins[name] is Origin.USER for name in size.symbols) or not op.sizes.stored(size):
        return size
    return op.equal(size, constant(op.int_of(size)))


def _convolved(op: Op, image: Shape, kernel: Shape) -> Shape:
    rank = len(image)
    if rank != len(kernel) or rank < 3:
        raise ShapeError(f"an image of {rank} and a kernel of {len(kernel)} dimensions")
    channel, space = axes_of(op, rank)
    strides, dilations = _per_axis(op, "strides", rank), _per_axis(op, "dilations", rank)
    pads = _per_axis(op, "explicit_paddings", 2 * rank, 0)
    dims = list(image)
    for extent, axis in zip(kernel, space, strict=False):
        size = image[axis] + (pads[2 * axis] + pads[2 * axis + 1])
        dims[axis] = window_size(op, size, _pinned(op, extent), strides[axis], dilations[axis])
    _join_channels(op, image[channel], kernel[-2])
    dims[channel] = op.sizes.now(kernel[-2] * kernel[-1] if "Depthwise" in op.type else kernel[-1])
    return tuple(dims)


def _join_channels(op: Op, inside: Expr, kernel: Expr) -> None:
    """Unify the channels that a kernel sees with all channels, or with those of one group."""
    have, seen = op.sizes.number(inside), op.sizes.number(kernel)
    groups = have / seen if op.sizes.stored(inside) and op.sizes.stored(kernel) else 1
    op.equal(inside, kernel * int(groups) if groups == int(groups) else kernel)


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
    return tuple(map(op.sizes.now, shape))


@shape_of("MaxPool AvgPool MaxPool3D AvgPool3D MaxPoolWithArgmax")
def pooling(op: Op) -> Result:
    image = op.shape(0)
    kernel, strides = op.attribute("ksize", ()), op.attribute("strides", ())
    if len(kernel) != len(image) or len(strides) != len(image):
        raise ShapeError(f"an image of {len(image)} and windows of {len(kernel)} dimensions")
    out = tuple(
        dim if k == s == 1 else window_size(op, dim, constant(k), s)
        for dim, k, s in zip(image, kernel, strides, strict=True)
    )
    return [Tensor(out)] * op.outputs


@shape_of("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def batch_norm(op: Op) -> Result:
    image = op.shape(0)
    channels = _channels(op, image)
    for i in (1, 2):
        op.same(channels, op.shape(i))
    return [Tensor(image), *[Tensor(channels)] * 4, Tensor((constant(0),))][: max(op.outputs, 5)]


@shape_of("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def batch_norm_gradient(op: Op) -> Result:
    image = op.same(op.shape(1), op.shape(0)) if op.known(0) else op.shape(1)
    channels = _channels(op, image)
    op.same(channels, op.shape(2))
    return [Tensor(image), Tensor(channels), Tensor(channels), Tensor((constant(0),)), Tensor((constant(0),))]


@shape_of("BiasAdd BiasAddV1")
def bias_add(op: Op) -> Result:
    shape = op.shape(0)
    op.same(_channels(op, shape), op.shape(1))
    return shape


@shape_of("SpaceToDepth DepthToSpace")
def move_space(op: Op) -> Result:
    image, block = op.shape(0), op.attribute("block_size", 1)
    channel, space = axes_of(op, len(image))
    return blocks_moved(image, block, channel, space, into=op.type == "SpaceToDepth")


@shape_of("SpaceToBatchND BatchToSpaceND")
def move_to_batch(op: Op) -> Result:
    """Blocks of space that become images of their own, or the way back: how a dilated convolution is said. What is
    padded, or cropped, stands in the third input: two numbers for each axis of the block."""
    image, block, around = op.shape(0), op.numbers(1), op.values(2)
    if len(around) != 2 * len(block) or len(block) >= len(image) or 0 in block:
        raise ShapeError(f"a block of {len(block)} axes and {len(around)} paddings")
    to_batch = op.type == "SpaceToBatchND"
    dims = list(image)
    for i, n in enumerate(block):
        edge = around[2 * i] + around[2 * i + 1]
        dims[1 + i] = (image[1 + i] + edge) // n if to_batch else image[1 + i] * n - edge
    count = math.prod(block)
    dims[0] = image[0] * count if to_batch else image[0] // count
    return tuple(dims)


shape_of("BiasAddGrad")(lambda op: _channels(op, op.shape(0)))
shape_of("Conv2D Conv3D DepthwiseConv2dNative _FusedConv2D _FusedDepthwiseConv2dNative")(
    lambda op: _convolved(op, op.shape(0), op.shape(1))
)
shape_of("ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea")(
    lambda op: (
        op.shape(0)[0],
        *op.values(1),
        op.shape(0)[-1],
    )
)
