"""FLOPs and tensors of a layer in Paleo's model: forward, gradient of the data, gradient of the weights.

A multiply-accumulate is 2 FLOPs, an element 4 bytes. Zeros that padding and strides insert are counted as Paleo counts
them, which makes the data gradient of VALID and strided convolutions far larger than its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tensortide.timing.paleo.layers import Layer, Timed

BYTES = 4
FIRST = "data"
"""The parent whose gradient is not computed, known by this name."""


class Work(NamedTuple):
    """One part of a layer: its FLOPs, and the bytes of each tensor that it moves."""

    flops: float = 0.0
    tensors: tuple[float, ...] = ()


class Parts(NamedTuple):
    """The three parts of a layer's training."""

    forward: Work = Work()
    data: Work = Work()
    weights: Work = Work()


def parts(layer: Layer) -> Parts:
    """FLOPs and bytes of ``layer``; nothing of a layer that Paleo takes to be free."""
    rule = _RULES.get(layer.timed)
    if rule is None:
        return Parts()
    found = rule(layer)
    reaches_input = FIRST in layer.parents and layer.timed in ("convolution", "product")
    return found._replace(data=Work()) if reaches_input else found


class _Gradient(NamedTuple):
    """One axis of the output's gradient as the data gradient reads it: zeros between rows, and padding around."""

    dilated: int
    pad: int


def _gradient(length: int, size: int, stride: int, pad: int, out: int) -> _Gradient:
    dilated = (out - 1) * stride + 1
    before = size - 1 - pad
    after = length + size - 1 - dilated - before
    if abs(before - after) == 1:
        dilated += 1
    return _Gradient(dilated, min(before, after))


def _convolution(layer: Layer) -> Parts:
    assert layer.window is not None
    (kh, kw), (sh, sw), (ph, pw), (cin, cout), valid = layer.window
    (rows, height, width, _), (_, oh, ow, _) = layer.inputs[0], layer.output
    filter_ = kh * kw * cin * cout * BYTES
    padded = rows * (height + 2 * ph) * (width + 2 * pw) * cin * BYTES
    forward = Work(2.0 * kh * kw * cin * oh * ow * cout * rows, (padded, filter_, rows * oh * ow * cout * BYTES))

    (eh, qh), (ew, qw) = _gradient(height, kh, sh, ph, oh), _gradient(width, kw, sw, pw, ow)
    holes = (eh * ew - oh * ow) / eh / ew
    high, wide = eh + 2 * qh - kh + 1, ew + 2 * qw - kw + 1
    flops = 2.0 * kh * kw * cout * high * wide * cin * rows
    if holes > 0:
        flops += 2.0 * rows * eh * ew * cout * (1 - holes)
    read = rows * (eh + 2 * qh) * (ew + 2 * qw) * cout * BYTES
    data = Work(flops, (read, filter_, rows * high * wide * cin * BYTES))

    if valid:
        qh = qw = 0
    kept = eh * ew * rows * cout * (1 - holes)
    inputs = cin * (height + 2 * qh) * (width + 2 * qw) * rows * BYTES
    weights = Work(2.0 * kh * kw * cin * kept, (inputs, kept * BYTES, filter_))
    return Parts(forward, data, weights)


def _product(layer: Layer) -> Parts:
    rows, columns, outputs = layer.inputs[0][0], math.prod(layer.inputs[0][1:]), layer.output[1]
    work = Work(
        2.0 * rows * columns * outputs, tuple(BYTES * n for n in (rows * columns, columns * outputs, rows * outputs))
    )
    return Parts(work, work, work)


def _pooling(layer: Layer) -> Parts:
    assert layer.window is not None
    (kh, kw), out = layer.window.size, math.prod(layer.output)
    work = Work(2.0 * kh * kw * out, (BYTES * math.prod(layer.inputs[0]), BYTES * out))
    return Parts(work, work)


def _dropout(layer: Layer) -> Parts:
    elements = math.prod(layer.inputs[0])
    work = Work(float(elements), (BYTES * elements, BYTES * math.prod(layer.output)))
    return Parts(work, work)


_RULES: dict[Timed, Callable[[Layer], Parts]] = {
    "convolution": _convolution,
    "product": _product,
    "pooling": _pooling,
    "dropout": _dropout,
}
