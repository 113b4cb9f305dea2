"""Convolutions: kernels are (window, channels seen, channels made); transposed ones (window, made, seen)."""

from __future__ import annotations

from tensortide.graph.handles import Handle
from tensortide.importers.keras.layers.layer import Layer, LayerError, Shape, layer


def window_size(n: int, window: int, stride: int, padding: str, dilation: int = 1) -> int:
    """Count the positions of a window along an axis."""
    if stride < 1:
        raise LayerError(f"its stride is {stride}")
    if padding in ("same", "causal"):
        return -(-n // stride)
    size = (n - (window - 1) * dilation - 1) // stride + 1
    if size < 0:
        raise LayerError(f"a window of {window} does not fit a size of {n}")
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
        raise LayerError(f"its input has {len(x.shape)} axes")
    return call.numbers("kernel_size", len(space)), x.shape[channel]


def _with_bias(call: Layer, inputs: dict[str, Handle], channels: int) -> dict[str, Handle]:
    return {**inputs, "bias": call.weight("bias", channels)} if call.is_true("use_bias", True) else inputs


@layer("Conv1D Conv2D Conv3D")
def convolution(call: Layer) -> Handle:
    """A convolution, in groups or not."""
    window, seen = _kernel(call, call.x)
    filters, groups = call.number("filters"), call.number("groups", 1)
    if groups < 1 or seen % groups:
        raise LayerError(f"{seen} channels cannot be {groups} groups")
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
    out = list(shape)
    out[call.layout(call.x)[0]] = filters
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
        extent = (window[i] - 1) * dilations[i] + 1
        n, stride = x.shape[axis], strides[i]
        if more is None:
            dims[axis] = n * stride if same else n * stride + max(extent - stride, 0)
        else:
            edge = extent // 2 if same else 0
            dims[axis] = (n - 1) * stride + extent - 2 * edge + more[i]
    dims[channel] = filters
    inputs = {"x": x, "kernel": call.weight("kernel", *window, filters, seen)}
    return call.activated(call.op(call.kind, _with_bias(call, inputs, filters), dims))
