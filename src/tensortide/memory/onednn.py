"""Allocations of PyTorch's oneDNN kernels (convolutions and LSTM layers on CPU) from PyTorch's allocator.

oneDNN computes plain-layout convolutions in a blocked layout: every operand is first reordered, channels padded to
blocks of 16 (AVX-512; 8 before it, which changes the padding of odd channel counts only), and the result is reordered
back. The sizes of the LSTM's workspace and scratchpad follow oneDNN's ``rnn_utils``.
"""

from __future__ import annotations

import math

from tensortide.graph.model import OpView, Tensor
from tensortide.memory.layout import contiguous_copy, is_channels_last

BLOCK = 16
"""Channels of a block of the blocked layout; also floats of a 64-byte line."""

SMALL = 20480
"""Batches of one with up to this many elements take PyTorch's own convolution."""

_DTYPES = frozenset({"float32", "bfloat16", "float16"})


class _Convolution:
    """The operands of a convolution: ``x`` the input, ``w`` the weight, ``y`` the output."""

    def __init__(self, op: OpView, x: Tensor, w: Tensor, y: Tensor) -> None:
        arguments = op.arguments
        self.x, self.w, self.y = x, w, y
        self.groups = arguments.get("groups", 1)
        self.transposed = bool(arguments.get("transposed"))
        stride, dilation, padding = (arguments.get(name) for name in ("stride", "dilation", "padding"))
        self.strided = _any(stride, 1)
        self.dilated = _any(dilation, 1)
        self.pointwise = math.prod(w.shape[2:]) == 1 and not self.strided and not _any(padding, 0)

    @property
    def by_onednn(self) -> bool:
        """True if PyTorch gives it to oneDNN and not to its own kernels, given more than one thread (with a single
        one it keeps pointwise convolutions of batches below 16)."""
        if self.x.dtype != "float32":
            return self.x.dtype in _DTYPES
        large_kernel = len(self.w.shape) > 3 and min(self.w.shape[-2:]) > 3
        size = math.prod(self.x.shape[:4])
        return self.groups != 1 or large_kernel or self.x.shape[0] > 1 or size > SMALL

    @property
    def channels_last(self) -> bool:
        return is_channels_last(self.x) or is_channels_last(self.w)

    @property
    def columns(self) -> int:
        """Bytes of the unrolled input of PyTorch's own convolution (0 where it unrolls nothing, or sample-wise)."""
        if self.groups != 1 or self.transposed or self.dilated or self.pointwise:
            return 0
        return self.y.shape[0] * math.prod((*self.w.shape[1:], *self.y.shape[2:])) * self.x.itemsize

    def blocked(self, tensor: Tensor, few: bool = False) -> int:
        """Bytes of an activation in the blocked layout; ``few`` channels (less than a block) may stay as they are."""
        channels = tensor.shape[1]
        if channels < BLOCK and few:
            return 0 if contiguous_copy(tensor) == 0 else tensor.nbytes
        return tensor.nbytes // channels * _up(channels) if channels else 0

    def weight(self, few: bool = False) -> int:
        """Bytes of the weight in the blocked layout."""
        outputs, inputs = self.w.shape[:2]
        rest = math.prod(self.w.shape[2:]) * self.w.itemsize
        if self.groups != 1:
            return (_up(outputs) if inputs == 1 else outputs) * inputs * rest
        return _up(outputs) * (inputs if few and inputs < BLOCK else _up(inputs)) * rest


def convolution(op: OpView) -> int:
    """Workspace of a forward convolution: blocked operands, then the blocked result beside the plain one.

    A strided transposed convolution is computed channels-last, copied out, and copied again to be contiguous.
    """
    c = _Convolution(op, op.inputs[0], op.inputs[1], op.outputs[0])
    if not c.by_onednn:
        return c.columns
    if c.channels_last:
        return c.weight() + c.w.nbytes
    result = c.y.nbytes
    blocked = c.blocked(c.y)
    computing = c.blocked(c.x, few=True) + c.weight(few=True) + blocked
    copies = 2 if c.transposed and c.strided and c.groups == 1 else 1
    return contiguous_copy(c.x) + max(computing, blocked + copies * result) - result


def convolution_backward(op: OpView) -> int:
    """Workspace of a convolution's backward: first the gradient of the input, then that of the weight.

    The input's gradient of a strided convolution is computed channels-last, copied out, and copied again.
    """
    gradient, x, w = op.inputs[:3]
    c = _Convolution(op, x, w, gradient)
    mask = op.arguments.get("output_mask")
    wants_input, wants_weight = (bool(m) for m in mask[:2]) if isinstance(mask, tuple) else (True, True)
    if not c.by_onednn:
        return c.columns
    if c.channels_last:
        return c.weight() + 2 * w.nbytes
    dx, dw = x.nbytes * wants_input, w.nbytes * wants_weight
    peak = dx + dw
    if wants_input:
        copies = 2 if c.strided and not c.transposed and c.groups == 1 else 1
        peak = max(peak, c.blocked(gradient) + c.weight() + c.blocked(x), c.blocked(x) + copies * dx)
    if wants_weight:
        computing = c.blocked(gradient) + c.blocked(x, few=True) + c.weight(few=True)
        peak = max(peak, dx + max(computing, c.weight(few=True) + dw))
    return contiguous_copy(gradient) + contiguous_copy(x) + peak - dx - dw


def _any(values: object, ordinary: int) -> bool:
    return isinstance(values, tuple) and any(value != ordinary for value in values)


def _up(count: int, multiple: int = BLOCK) -> int:
    return -(-count // multiple) * multiple


# -- LSTM -----------------------------------------------------------------------------------------


class _Layer:
    """One LSTM layer in one direction. Sizes in bytes: packed weights as the forward and as the backward reads them, a
    bias, a state, and the scratchpad: gates of all steps, and one state each way."""

    def __init__(self, op: OpView) -> None:
        steps, batch, width = op.inputs[0].shape
        hidden = op.inputs[1].shape[0] // 4
        row = batch * 4 * _line(hidden)
        self.weights = (width + hidden) * _line(4 * hidden) * 4
        self.weights_backward = 4 * hidden * (_line(width) + _line(hidden)) * 4
        self.bias = 4 * hidden * 4
        self.state = batch * hidden * 4
        self.scratch = _pages(steps * batch * 4 * _line(4 * hidden), row, row)


def lstm(op: OpView) -> int:
    """Workspace of an LSTM layer: packed weights, the sum of both biases, and the scratchpad."""
    layer = _Layer(op)
    return contiguous_copy(op.inputs[0]) + layer.weights + layer.bias + layer.scratch


def lstm_backward(op: OpView) -> int:
    """Workspace of an LSTM layer's backward: packed weights, their gradients, biases, gradients of absent states."""
    layer, arguments = _Layer(op), op.arguments
    states = layer.state * sum(arguments.get(name) is None for name in ("grad_hy", "grad_cy"))
    given = arguments.get("grad_output")
    copies = contiguous_copy(given) if isinstance(given, Tensor) else 0
    return layer.weights + layer.weights_backward + 2 * layer.bias + layer.scratch + states + copies


def _line(count: int) -> int:
    """Floats of a row that starts on a 64-byte line and avoids multiples of 1 KiB, which alias in caches."""
    padded = _up(count)
    return padded + BLOCK if padded % 256 == 0 else padded


def _pages(*parts: int) -> int:
    """Bytes of consecutive parts that each start on a 4 KiB page."""
    end = 0
    for part in parts:
        end = _up(end, 4096) + part
    return _up(end, 4096)
