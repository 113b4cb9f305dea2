"""Convolutions: kernels are (window, channels seen, channels made); transposed ones (window, made, seen)."""

from __future__ import annotations

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, Shape, layer
from tensortide.importers.shapes import ShapeError, positions, replaced, spread


def window_size(n: int, window: int, stride: int, padding: str, dilation: int = 1) -> int:
    """Count the positions of a window along an axis."""
    if stride < 1:
        raise ShapeError(f"its stride is {stride}")
    size = positions(n, window, stride, dilation, same=padding in ("same", "causal"))
    if size < 0:
        raise ShapeError(f"a window of {window} does not fit a size of {n}")
    return size


def _convolved(call: Layer, x: Handle, kernel: Shape, channels: int) -> Shape:
    channel, space = call.layout(x)
    count = len(space)
    strides, dilations = call.numbers("strides", count), call.numbers("dilation_rate", count)
    dims, padding = list(x.shape), str(call.config.get("padding", "valid"))
    for axis, window, stride, dilation in zip(space, kernel, strides, dilations, strict=True):
        dims[axis] = window_size(x.shape[axis], window, stride, padding, dilation)
    dims[channel] = channels
    return tuple(dims)


def _kernel(call: Layer, x: Handle) -> tuple[Shape, int]:
    channel, space = call.layout(x)
    if len(x.shape) < 3:
        raise ShapeError(f"its input has {len(x.shape)} axes")
    return call.numbers("kernel_size", len(space)), x.shape[channel]


def _with_bias(call: Layer, inputs: dict[str, Handle], channels: int) -> dict[str, Handle]:
    return {**inputs, "bias": call.weight("bias", channels)} if call.is_true("use_bias", True) else inputs


@layer("Conv1D Conv2D Conv3D")
def convolution(call: Layer) -> Handle:
    """A convolution, in groups or not."""
    window, seen = _kernel(call, call.x)
    filters, groups = call.number("filters"), call.number("groups", 1)
    if groups < 1 or seen % groups:
        raise ShapeError(f"{seen} channels cannot be {groups} groups")
    inputs = {"x": call.x, "kernel": call.weight("kernel", *window, seen // groups, filters)}
    out = _convolved(call, call.x, window, filters)
    return call.activated(call.op(call.kind, _with_bias(call, inputs, filters), out))


@layer("DepthwiseConv1D DepthwiseConv2D")
def depthwise(call: Layer) -> Handle:
    """A convolution of each channel by itself."""
    window, seen = _kernel(call, call.x)
    made = seen * call.number("depth_multiplier", 1)
    inputs = {"x": call.x, "kernel": call.weight("kernel", *window, seen, call.number("depth_multiplier", 1))}
    return call.activated(call.op(call.kind, _with_bias(call, inputs, made), _convolved(call, call.x, window, made)))


@layer("SeparableConv1D SeparableConv2D")
def separable(call: Layer) -> Handle:
    """A depthwise convolution and one of a single site."""
    window, seen = _kernel(call, call.x)
    multiplier, filters, rank = call.number("depth_multiplier", 1), call.number("filters"), call.kind[-2:]
    kernel = call.weight("depthwise_kernel", *window, seen, multiplier)
    shape = _convolved(call, call.x, window, seen * multiplier)
    middle = call.op(f"DepthwiseConv{rank}", {"x": call.x, "kernel": kernel}, shape)
    point = call.weight("pointwise_kernel", *(1 for _ in window), seen * multiplier, filters)
    out = replaced(shape, call.layout(call.x)[0], filters)
    return call.activated(call.op(f"Conv{rank}", _with_bias(call, {"x": middle, "kernel": point}, filters), out))


@layer("Conv1DTranspose Conv2DTranspose Conv3DTranspose")
def transposed(call: Layer) -> Handle:
    """A transposed convolution: every input site meets the whole kernel."""
    x = call.x
    window, seen = _kernel(call, x)
    channel, space = call.layout(x)
    filters, count = call.number("filters"), len(space)
    strides, dilations = call.numbers("strides", count), call.numbers("dilation_rate", count)
    more = call.numbers("output_padding", count) if call.config.get("output_padding") is not None else None
    dims, same = list(x.shape), call.config.get("padding", "valid") == "same"
    for i, axis in enumerate(space):
        extent, n, stride = (window[i] - 1) * dilations[i] + 1, x.shape[axis], strides[i]
        if more is None:
            dims[axis] = n * stride if same else n * stride + max(extent - stride, 0)
        else:
            dims[axis] = spread(n, window[i], stride, dilations[i]) - 2 * (extent // 2 if same else 0) + more[i]
    dims[channel] = filters
    inputs = {"x": x, "kernel": call.weight("kernel", *window, filters, seen)}
    return call.activated(call.op(call.kind, _with_bias(call, inputs, filters), dims))


@layer("ConvLSTM1D ConvLSTM2D ConvLSTM3D")
def recurrent(call: Layer) -> list[Handle]:
    """An LSTM whose products are convolutions of images; that of the state keeps their size."""
    x, rank = call.x, int(call.kind[-2])
    if len(x.shape) != rank + 3:
        raise ShapeError(f"its input has {len(x.shape)} axes; it takes samples, steps, {rank} of space and channels")
    first = call.config.get("data_format") == "channels_first"
    space, seen = (x.shape[3:], x.shape[2]) if first else (x.shape[2:-1], x.shape[-1])
    window, filters = call.numbers("kernel_size", rank), call.number("filters")
    strides, dilations = call.numbers("strides", rank), call.numbers("dilation_rate", rank)
    padding = str(call.config.get("padding", "valid"))
    sizes = tuple(
        window_size(n, k, stride, padding, dilation)
        for n, k, stride, dilation in zip(space, window, strides, dilations, strict=True)
    )
    inputs = {
        "x": x,
        "kernel": call.weight("kernel", *window, seen, 4 * filters),
        "recurrent_kernel": call.weight("recurrent_kernel", *window, filters, 4 * filters),
    }
    state = (x.shape[0], filters, *sizes) if first else (x.shape[0], *sizes, filters)
    every = (x.shape[0], x.shape[1], *state[1:]) if call.is_true("return_sequences") else state
    made = call.op("ConvLSTM", _with_bias(call, inputs, 4 * filters), every, sites=sizes)
    states = [call.op("state", {"x": made}, state) for _ in range(2 * call.is_true("return_state"))]
    return [made, *states]
