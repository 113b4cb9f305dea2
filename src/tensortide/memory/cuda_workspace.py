"""Memory that PyTorch's CUDA kernels take from its pool beyond what an op returns, as far as sources tell.

Attention's rules come from reading the kernels. What cuDNN takes for a convolution depends on the algorithm that its
heuristics choose, which are not public: the rule is that of its tensor-core kernels, which compute in the layout NHWC
and convert operands in other layouts first.
"""

from __future__ import annotations

from collections.abc import Callable

from tensortide.graph.model import OpView, Tensor
from tensortide.memory.layout import bytes_of, is_channels_last

Rule = Callable[[OpView], int]

_TENSOR_CORES = frozenset({"float32", "float16", "bfloat16"})
"""Types that cuDNN computes with tensor cores, fp32 as TF32, which PyTorch allows for convolutions."""


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _converted(*tensors: Tensor) -> int:
    """Copies of ``tensors`` in NHWC."""
    return sum(map(bytes_of, tensors))


def _by_tensor_cores(op: OpView) -> bool:
    x = op.inputs[1 if "backward" in op.name else 0]
    groups = op.arguments.get("groups", 1)
    return len(x.shape) == 4 and groups == 1 and x.dtype in _TENSOR_CORES and not is_channels_last(x)


def _convolution(op: OpView) -> int:
    """The operands and the result in NHWC."""
    return _converted(*op.inputs[:2], op.outputs[0]) if _by_tensor_cores(op) else 0


def _convolution_backward(op: OpView) -> int:
    """One kernel for each gradient, one after the other: the larger of the two needs all three operands in NHWC."""
    return _converted(*op.inputs[:3]) if _by_tensor_cores(op) else 0


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


CUDA_RULES: dict[str, Rule] = {
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten._scaled_dot_product_flash_attention_backward.default": _flash_backward,
    "aten._scaled_dot_product_efficient_attention_backward.default": _efficient_backward,
}
"""Bytes beside inputs and outputs, by op."""
