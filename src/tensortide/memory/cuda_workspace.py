"""Memory that PyTorch's CUDA kernels take from its pool beyond what an op returns, as far as sources tell.

Rules of attention and indices come from reading the kernels. Those of cuDNN's convolutions are inferred, since its
heuristics and sizes are not public (PyTorch takes the first plan that they offer, whatever its workspace). Tensor-core
kernels, which they choose for convolutions of fp16, bf16 and, as TF32, fp32 on Ampere and later, compute in NHWC;
operands in NCHW are converted in the workspace. A published profile of AlexNet's training on an A100 with default
settings counts the conversions: three 3x3 convolutions convert input and weight (6), in backward gradient and weight
(6) and gradient and input (6); and of results, both gradients of each (6) and two of the three outputs. How many bytes
lie in the workspace of a gradient of the weight is not visible there: twice the operands is the whole number with which
published totals of ten nets at three batches (``benchmarks/cuda_memory.py``) differ from the prediction by one
constant, that of the context. The same totals leave no room for copies at 1x1 convolutions, products as they lie in
NCHW, and grouped ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tensortide.graph.model import OpView, Tensor
from tensortide.memory.layout import is_channels_last

Rule = Callable[[OpView], int]

_ALIGNED = {"float32": 4, "float16": 8, "bfloat16": 8}
"""Types that cuDNN computes with tensor cores, and the multiple of channels that those take."""


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


class _Convolution(NamedTuple):
    """The tensors of a convolution; ``y`` is its output, or the gradient of that."""

    x: Tensor
    weight: Tensor
    y: Tensor
    groups: object

    @property
    def converts(self) -> bool:
        """True if tensor cores compute it in NHWC from operands that lie otherwise."""
        spatial = self.weight.shape[2:]
        known = len(spatial) == 2 and self.groups == 1 and self.x.dtype in _ALIGNED
        return known and math.prod(spatial) > 1 and not is_channels_last(self.x)

    @property
    def aligned(self) -> bool:
        multiple = _ALIGNED[self.x.dtype]
        return not (self.x.shape[1] % multiple or self.y.shape[1] % multiple)

    @property
    def copies(self) -> int:
        """Bytes of all three in NHWC."""
        return sum(tensor.nbytes for tensor in self[:3])


def _convolution(op: OpView) -> int:
    """The operands and the result in NHWC; few channels, such as an image's, are computed as they lie."""
    given = _Convolution(op.inputs[0], op.inputs[1], op.outputs[0], op.arguments.get("groups", 1))
    return given.copies if given.converts and given.aligned else 0


def _convolution_backward(op: OpView) -> int:
    """One kernel for each gradient, one after the other; that of the weight takes more."""
    gradient, x, weight = op.inputs[:3]
    given = _Convolution(x, weight, gradient, op.arguments.get("groups", 1))
    if not given.converts:
        return 0
    mask = op.arguments.get("output_mask", (True, True, True))
    of_input, of_weight = mask[:2] if isinstance(mask, tuple) else (True, True)
    if not given.aligned:
        return given.copies if of_weight else 0
    return given.copies * (2 if of_weight else int(of_input))


def _flash_backward(op: OpView) -> int:
    """The gradient of the query in fp32, rows padded to 128 and widths to 32; a number per row; and where heads share
    keys, gradients of the keys and the values per head."""
    _, query, key, _ = op.inputs[:4]
    batch, heads, rows, width = query.shape
    padded, wide = _up(rows, 128), _up(width, 32) if width <= 192 else 256
    extra = 4 * batch * heads * padded * (wide + 1)
    return extra + (2 * key.itemsize * batch * heads * key.shape[2] * width if key.shape[1] != heads else 0)


def _efficient_backward(op: OpView) -> int:
    """A number per row in fp32, and the gradient of the query in fp32 where it is kept in half precision."""
    query = op.inputs[1]
    batch, heads, rows = query.shape[:3]
    return 4 * batch * heads * _up(rows, 32) + (4 * query.numel if query.itemsize == 2 else 0)


def _mask_rows(op: OpView, whole: Tensor, picked: Tensor) -> int:
    """Elements that a boolean mask, the only index of ``whole``, selects, by the shape of those ``picked``; 0 if there
    are other indices. Each has 8 bytes per dimension of the mask, from ``nonzero``."""
    indices = op.arguments.get("indices", ())
    given = [i for i, index in enumerate(indices) if index is not None] if isinstance(indices, tuple) else []
    mask = op.inputs[1]
    if len(given) != 1 or mask.dtype != "bool" or len(picked.shape) != len(whole.shape) - len(mask.shape) + 1:
        return 0
    return picked.shape[given[0]]


def _index(op: OpView) -> int:
    """The places of the elements that a boolean mask selects."""
    return 8 * len(op.inputs[1].shape) * _mask_rows(op, op.inputs[0], op.outputs[0])


def _index_put(op: OpView) -> int:
    """Places of a mask's elements. Where values are added, indices are sorted: four numbers of 8 bytes for each (the
    linear index, the sorted one, a range, its order), and two of the sort."""
    index = op.inputs[1]
    masked = _mask_rows(op, op.inputs[0], op.inputs[-1])
    of_mask = 8 * len(index.shape) * masked
    if not op.arguments.get("accumulate", False):
        return of_mask
    count = masked if index.dtype == "bool" else max(t.numel for t in op.inputs[1:-1])
    return of_mask + 6 * 8 * count


CUDA_RULES: dict[str, Rule] = {
    "aten.index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten.index_put_.default": _index_put,
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten._scaled_dot_product_flash_attention_backward.default": _flash_backward,
    "aten._scaled_dot_product_efficient_attention_backward.default": _efficient_backward,
}
"""Bytes beside inputs and outputs, by op."""
