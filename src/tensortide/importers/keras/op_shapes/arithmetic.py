"""Operations that compute: element by element, reductions, products, windows."""

from __future__ import annotations

import math

from tensortide.importers.keras.layers.convolution import window_size
from tensortide.importers.keras.layers.layer import Shape
from tensortide.importers.keras.op_shapes.operation import Operation, reduced_shape, shape, shape_of
from tensortide.importers.shapes import (
    PLAIN,
    ShapeError,
    axis_of,
    broadcast,
    diagonal,
    einsum,
    inserted,
    layout,
    product,
    reduced,
    replaced,
)

# --- element by element --------------------------------------------------------------------------------

shape(
    "AffineTransform Argpartition BatchNorm BinaryCrossentropy Cast Cholesky CholeskyInverse ConvertToTensor Copy "
    "Digitize DotProductAttention ElasticTransform EmptyLike Flip Fliplr Flipud FullLike GaussianBlur HSVToRGB Imag "
    "Inv IsIn Normalize OnesLike PerspectiveTransform RGBToHSV Real Roll ScatterUpdate SliceUpdate Sparsemax "
    "StopGradient Tril Triu ZerosLike"
)(lambda call: call.x)  # fmt: skip

shape("Argsort Cumprod Cumsum Nancumprod Nancumsum Sort")(
    lambda call: (math.prod(call.x),) if call.config["axis"] is None else call.x
)
shape("InTopK")(lambda call: call.x)
shape("UnravelIndex")(lambda call: [call.x] * len(call.config["shape"]))
shape("SparseCategoricalCrossentropy")(lambda call: call.shape(1)[:-1])
shape("Vander")(lambda call: (*call.x, call.x[0] if call.config["N"] is None else call.config["N"]))
shape("Slogdet")(lambda call: [call.x[:-2]] * 2)
shape("LuFactor")(lambda call: [call.x, (*call.x[:-2], min(call.x[-2:]))])
shape("SearchSorted Solve SolveTriangular")(lambda call: call.shape(1))
shape("AllClose Ndim PSNR Size Vdot")(lambda call: ())
shape("FFT FFT2 IFFT2")(lambda call: [call.listed[0]] * 2)
shape("RGBToGrayscale")(lambda call: replaced(call.x, axis_of(-3 if _first(call) else -1, len(call.x)), 1))


# --- reductions ----------------------------------------------------------------------------------------

shape("Average Median Nanmedian Trapezoid")(reduced_shape)
shape("Moments")(lambda call: [reduced_shape(call, "axes")] * 2)
shape("CategoricalCrossentropy Logdet Det")(lambda call: call.x[: -1 if call.kind[0] == "C" else -2])
shape("TopK")(lambda call: [(*call.x[:-1], call.config["k"])] * 2)


@shape("Nanpercentile Nanquantile Percentile Quantile")
def quantile(call: Operation) -> Shape:
    """A row of results for each share."""
    return call.shape(1) + reduced_shape(call)


@shape("SegmentMax SegmentMin SegmentProd SegmentReduction SegmentSum")
def segments(call: Operation) -> Shape:
    """A result for each segment."""
    return replaced(call.x, 0, call.config["num_segments"])


@shape("Diagonal Trace")
def diagonals(call: Operation) -> Shape:
    """Diagonals of matrices as the last axis, or their sums."""
    rank, offset = len(call.x), call.config["offset"]
    rows, columns = call.axis(rank, "axis1"), call.axis(rank, "axis2")
    rest = reduced(call.x, (rows, columns))
    return rest if call.kind == "Trace" else (*rest, diagonal(call.x[rows], call.x[columns], offset))


@shape("Diag Diagflat")
def diag(call: Operation) -> Shape:
    """A matrix with a diagonal, or the diagonal of a matrix."""
    offset = call.config["k"]
    if call.kind == "Diag" and len(call.x) == 2:
        return (diagonal(*call.x, offset),)
    return (math.prod(call.x) + abs(offset),) * 2


# --- products ------------------------------------------------------------------------------------------

shape("Matmul")(lambda call: product(PLAIN, call.x, call.shape(1)))
shape("Einsum")(lambda call: einsum(PLAIN, call.config["subscripts"], [*map(shape_of, call.arguments)]))
shape("Outer")(lambda call: (math.prod(call.x), math.prod(call.shape(1))))
shape("CDist")(lambda call: product(PLAIN, call.x, call.shape(1)[:-2] + call.shape(1)[-2:][::-1]))


@shape("Dot Inner Tensordot")
def contracted(call: Operation) -> Shape:
    """The dimensions of both that are not contracted; a number leaves the other as it is."""
    a, b = call.x, call.shape(1)
    axes = call.config.get("axes", 1)
    if call.kind != "Tensordot" and not (a and b):
        return a + b
    if call.kind == "Dot":
        axes = [[-1], [max(-2, -len(b))]]
    elif call.kind == "Inner":
        axes = [[-1], [-1]]
    elif isinstance(axes, int):
        axes = [range(len(a) - axes, len(a)), range(axes)]
    first, second = ([one] if isinstance(one, int) else one for one in axes)
    gone, met = [axis_of(i, len(a)) for i in first], [axis_of(i, len(b)) for i in second]
    for i, j in zip(gone, met, strict=True):
        PLAIN.equal(a[i], b[j])
    return reduced(a, gone) + reduced(b, met)


@shape("Kron")
def kron(call: Operation) -> Shape:
    """All products: sizes multiply."""
    a, b = call.x, call.shape(1)
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple(n * m for n, m in pairs)


@shape("Cross")
def cross(call: Operation) -> Shape:
    """Vectors of three elements; a number where both have two."""
    names = ["axis"] * 3 if call.config["axis"] is not None else ["axisa", "axisb", "axisc"]
    a, b = call.x, call.shape(1)
    first, second = call.axis(len(a), names[0]), call.axis(len(b), names[1])
    dims = broadcast(PLAIN, reduced(a, [first]), reduced(b, [second]))
    if a[first] == b[second] == 2:
        return dims
    return inserted(dims, call.axis(len(dims) + 1, names[2]), 3)


@shape("Qr")
def factors(call: Operation) -> list[Shape]:
    """Both factors of matrices."""
    *rest, rows, columns = call.x
    inner = rows if call.config["mode"] == "complete" else min(rows, columns)
    return [(*rest, rows, inner), (*rest, inner, columns)]


# --- windows -------------------------------------------------------------------------------------------


def _first(call: Operation) -> bool:
    return call.config.get("data_format") == "channels_first"


def _spaced(call: Operation, name: str, count: int) -> list[int]:
    value = call.config[name]
    found = [value] * count if isinstance(value, int) else [*value]
    if len(found) != count:
        raise ShapeError(f"its {name} is {value!r}")
    return found


@shape("AveragePool Conv DepthwiseConv MaxPool SeparableConv")
def windows(call: Operation) -> Shape:
    """A place for each window; kernels are windows, channels seen, channels made of all or of each."""
    channel, space = layout(len(call.x), _first(call))
    count, dims, conv = len(space), [*call.x], "Conv" in call.kind
    sizes = call.shape(1)[:count] if conv else _spaced(call, "pool_size", count)
    strides = sizes if call.config["strides"] is None else _spaced(call, "strides", count)
    dilations = _spaced(call, "dilation_rate", count) if conv else [1] * count
    for i, axis in enumerate(space):
        dims[axis] = window_size(dims[axis], sizes[i], strides[i], call.config["padding"], dilations[i])
    if conv:
        made = call.shape(2 if call.kind == "SeparableConv" else 1)
        dims[channel] = dims[channel] * made[-1] if call.kind == "DepthwiseConv" else made[-1]
    return tuple(dims)


@shape("AdaptiveAveragePool AdaptiveMaxPool Resize")
def sized(call: Operation) -> Shape:
    """Space of given sizes; images may come without a batch."""
    rank, resize = len(call.x), call.kind == "Resize"
    _, space = layout(4 if resize else rank, _first(call))
    dims = [*call.x]
    for axis, size in zip(space, _spaced(call, "size" if resize else "output_size", len(space)), strict=True):
        dims[axis - 4 if resize else axis] = size
    return tuple(dims)
