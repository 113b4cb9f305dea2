"""Paleo's kinds of layers: the output shape of each, one row per kind. Shapes are NHWC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from tensortide.errors import TensortideError

Shape = tuple[int, ...]
Timed = Literal["convolution", "deconvolution", "pooling", "product", "dropout", ""]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One layer as a file describes it. ``splits`` divides the output channels of a convolution. Paleo's predictions
    ignore ``device`` (the number of a device, or of several that share the layer) and what follows the products:
    ``normalizer_fn`` and ``activation_fn``, whatever their values are."""

    type: str
    parents: tuple[str, ...] = ()
    tensor: Shape = ()
    filter: Shape = ()
    ksize: Shape = ()
    strides: Shape = (1, 1, 1, 1)
    padding: str | Shape = "SAME"
    num_outputs: int = 0
    num_classes: int = 0
    output_shape: Shape = ()
    dim: int = 3
    splits: int = 1
    device: int | Shape | None = None
    normalizer_fn: object = None
    activation_fn: object = None


class Window(NamedTuple):
    """The window of a convolution or pooling: heights before widths; ``channels`` are those of input and output."""

    size: tuple[int, int]
    strides: tuple[int, int]
    pad: tuple[int, int]
    channels: tuple[int, int]
    valid: bool = False
    """Whether the description says VALID."""


class Layer(NamedTuple):
    """One layer with its shapes. ``inputs`` are those of its parents, in their order; ``params`` counts weights."""

    name: str
    kind: str
    parents: tuple[str, ...]
    inputs: tuple[Shape, ...]
    output: Shape
    window: Window | None = None
    params: int = 0

    @property
    def timed(self) -> Timed:
        """The rule of its time; ``""`` for a layer that is free."""
        return LAYER_TYPES.get(self.kind, FREE).timed


class Shaped(NamedTuple):
    """The part of a layer that its kind derives from its inputs."""

    output: Shape
    window: Window | None = None
    params: int = 0


class Kind(NamedTuple):
    """A kind of layer: its output from its description and inputs, and the rule of its time."""

    shape: Callable[[Entry, Sequence[Shape]], Shaped]
    timed: Timed = ""
    keys: tuple[str, ...] = ()
    """The keys that a description must have."""


class Wrong(TensortideError):
    """A description contradicts itself; the message has no name of the layer yet."""


def layer(name: str, entry: Entry, inputs: Sequence[Shape]) -> Layer:
    """The layer that ``entry`` describes, on inputs of the shapes ``inputs``; one of an unknown type is free.

    Raises:
        Wrong: a key is missing, or a shape does not fit.
    """
    kind = LAYER_TYPES.get(entry.type, FREE)
    missing = [key for key in kind.keys if not getattr(entry, key)]
    if missing:
        raise Wrong(f"{entry.type} needs {' and '.join(map(repr, missing))}")
    if entry.type != "Input" and not inputs:
        raise Wrong(f"{entry.type} needs a parent")
    shaped = kind.shape(entry, inputs)
    if not shaped.output or min(shaped.output) < 1:
        raise Wrong(f"{entry.type} of {list(map(list, inputs))} has no output: {list(shaped.output)}")
    return Layer(name, entry.type, entry.parents, tuple(inputs), *shaped)


def _input(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    return Shaped(entry.tensor)


def _first(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    return Shaped(inputs[0])


def _windowed(entry: Entry, size: Shape, x: Shape, channels: tuple[int, int]) -> tuple[Shape, Window]:
    """Output shape and window of sliding ``size`` over ``x``."""
    if len(x) != 4 or len(entry.strides) != 4 or min(entry.strides) < 1 or min(size) < 1:
        raise Wrong(f"{entry.type} needs an input, a window and strides of 4 positive numbers, not {list(x)}")
    strides = entry.strides[1], entry.strides[2]
    if isinstance(entry.padding, str) and entry.padding not in ("SAME", "VALID"):
        raise Wrong(f"padding is {entry.padding!r}: 'SAME', 'VALID' or two numbers")
    if not isinstance(entry.padding, str) and len(entry.padding) != 2:
        raise Wrong(f"padding is {list(entry.padding)}: 'SAME', 'VALID' or two numbers")
    sides = [_side(x[i + 1], size[i], strides[i], entry.padding, i) for i in (0, 1)]
    (oh, ph), (ow, pw) = sides
    return (x[0], oh, ow, channels[1]), Window(
        (size[0], size[1]), strides, (ph, pw), channels, entry.padding == "VALID"
    )


def _side(length: int, size: int, stride: int, padding: str | Shape, axis: int) -> tuple[int, int]:
    """Output length and padding along one axis."""
    if padding == "VALID":
        return -(-(length - size + 1) // stride), 0
    if padding == "SAME":
        out = -(-length // stride)
        return out, ((out - 1) * stride + size - length) // 2
    pad = int(padding[axis])
    return (length - size + 2 * pad) // stride + 1, pad


def _convolution(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    if len(entry.filter) != 4:
        raise Wrong(f"filter is {list(entry.filter)}: height, width, channels in, channels out")
    kh, kw, given, out = entry.filter
    channels = inputs[0][-1] if given == -1 else given
    if channels != inputs[0][-1]:
        raise Wrong(f"filter takes {channels} channels, the input {list(inputs[0])} has {inputs[0][-1]}")
    out //= max(1, entry.splits)
    output, window = _windowed(entry, (kh, kw), inputs[0], (channels, out))
    return Shaped(output, window, kh * kw * channels * out + out)


def _pooling(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    if len(entry.ksize) != 4:
        raise Wrong(f"ksize is {list(entry.ksize)}: four numbers")
    channels = inputs[0][-1]
    return Shaped(*_windowed(entry, entry.ksize[1:3], inputs[0], (channels, channels)))


def _deconvolution(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    if len(entry.filter) != 4 or len(entry.output_shape) != 4 or len(inputs[0]) != 4:
        raise Wrong("Deconvolution needs an input, a filter and an output_shape of four numbers")
    kh, kw, given, out = entry.filter
    channels = inputs[0][-1] if given == -1 else given
    if channels != inputs[0][-1] or out != entry.output_shape[-1]:
        raise Wrong(f"filter {list(entry.filter)} does not lead from {list(inputs[0])} to {list(entry.output_shape)}")
    output = tuple(inputs[0][0] if size == -1 else size for size in entry.output_shape)
    window = Window((kh, kw), (entry.strides[1], entry.strides[2]), (0, 0), (channels, out))
    return Shaped(output, window, kh * kw * channels * out + out)


def _product(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    rows, columns, outputs = inputs[0][0], math.prod(inputs[0][1:]), entry.num_outputs
    return Shaped((rows, outputs), None, columns * outputs + outputs)


def _concatenate(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    dim = entry.dim
    rests = {shape[:dim] + shape[dim + 1 :] for shape in inputs}
    if len(rests) > 1 or not 0 <= dim < len(inputs[0]):
        raise Wrong(f"cannot concatenate {list(map(list, inputs))} along {dim}")
    return Shaped((*inputs[0][:dim], sum(shape[dim] for shape in inputs), *inputs[0][dim + 1 :]))


def _elementwise(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    if len(set(inputs)) > 1:
        raise Wrong(f"Elementwise needs inputs of equal shape, not {list(map(list, inputs))}")
    return Shaped(inputs[0])


def _softmax(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    return Shaped((inputs[0][0], entry.num_classes or inputs[0][-1]))


def _sigmoid(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    return Shaped((inputs[0][0], 1))


def _reshape(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    shape, total = entry.output_shape, math.prod(inputs[0])
    if -1 not in shape:  # the batch may be another than the one it was written for
        shape = (-1, *shape[1:])
    known = math.prod(size for size in shape if size != -1)
    if shape.count(-1) > 1 or known < 1 or total % known:
        raise Wrong(f"cannot reshape {list(inputs[0])} to {list(entry.output_shape)}")
    return Shaped(tuple(total // known if size == -1 else size for size in shape))


def _upsampling(entry: Entry, inputs: Sequence[Shape]) -> Shaped:
    if len(inputs[0]) != 4 or len(entry.ksize) != 4:
        raise Wrong(f"UpSampling2D needs an input and a ksize of four numbers, not {list(inputs[0])}")
    rows, height, width, channels = inputs[0]
    return Shaped((rows, height * entry.ksize[1], width * entry.ksize[2], channels))


LAYER_TYPES = {
    "Input": Kind(_input, keys=("tensor",)),
    "Convolution": Kind(_convolution, "convolution", ("filter",)),
    "Deconvolution": Kind(_deconvolution, "deconvolution", ("filter", "output_shape")),
    "Pooling": Kind(_pooling, "pooling", ("ksize",)),
    "AvgPool": Kind(_pooling, "pooling", ("ksize",)),
    "InnerProduct": Kind(_product, "product", ("num_outputs",)),
    "Dropout": Kind(_first, "dropout"),
    "Concatenate": Kind(_concatenate),
    "Elementwise": Kind(_elementwise),
    "Softmax": Kind(_softmax),
    "Sigmoid": Kind(_sigmoid),
    "Reshape": Kind(_reshape, keys=("output_shape",)),
    "UpSampling2D": Kind(_upsampling, keys=("ksize",)),
}
"""Every kind of layer that can be read, but for those that hold layers: see ``nets.HOLDERS``."""

FREE = Kind(_first)
"""The kind of a layer of unknown type, where such are accepted: its first input passes through in no time."""
