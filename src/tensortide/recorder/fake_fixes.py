"""Corrections of what PyTorch's fake kernels return where the real ones return something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensortide.recorder.torch_compat import VERSION, by_op

Fix = Callable[[Sequence[Any], Any], Any]


def _mixed_statistics(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernels save statistics in float32 for a half-precision input with float32 parameters."""
    output, mean, inverse = result
    others = [t for t in args[1:5] if isinstance(t, torch.Tensor)]
    mixed = args[0].dtype in (torch.bfloat16, torch.float16) and any(t.dtype == torch.float32 for t in others)
    if not mixed or args[0].device.type != "cpu" or mean.dtype == torch.float32:
        return result
    return output, torch.empty_like(mean, dtype=torch.float32), torch.empty_like(inverse, dtype=torch.float32)


def _layer_norm_gradient(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel writes a contiguous input gradient; the fake one has the strides of the output's gradient."""
    first = result[0]
    if first is None or first.device.type != "cpu" or first.is_contiguous():
        return result
    return torch.empty(args[1].shape, dtype=first.dtype, device=first.device), *result[1:]


def _keeps(result: torch.Tensor, numel: int) -> torch.Tensor:
    """``result`` on a storage of ``numel`` elements: the kernel shrinks its output but keeps the memory."""
    whole = torch.empty(max(numel, result.numel()), dtype=result.dtype, device=result.device)
    return whole.as_strided(result.shape, result.stride())


def _reduced_loss(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel computes the elementwise loss in the output's memory, then reduces it there."""
    if result.dim() or args[0].device.type != "cpu":
        return result
    return _keeps(result, torch.broadcast_shapes(args[0].shape, args[1].shape).numel())


def _folded(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel allocates its output in the size of its input and resizes it."""
    return result if args[0].device.type != "cpu" else _keeps(result, args[0].numel())


def _bag_offsets(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel allocates the bag of each index with one more element and resizes it."""
    output, bags, *rest = result
    if bags.device.type != "cpu" or bags.numel() != args[1].numel():
        return result
    return output, _keeps(bags, bags.numel() + 1), *rest


def _rnn_workspace(args: Sequence[Any], result: Any) -> Any:
    """The CPU LSTM saves a workspace for backward, whose size the fake kernel does not know."""
    batch_sizes, mode, hidden, training = args[8], args[9], args[10], args[15]
    if mode != 2 or not training or batch_sizes:
        return result
    steps, batch, features = args[0].shape
    size = lstm_workspace_bytes(steps, batch, features, hidden, args[0].element_size())
    return *result[:3], torch.empty(size, dtype=torch.uint8, device=args[0].device)


def lstm_workspace_bytes(steps: int, batch: int, features: int, hidden: int, itemsize: int) -> int:
    """Bytes of the workspace that oneDNN's LSTM keeps from forward to backward, for one layer and direction.

    Seven sections, each on its own pages: gates, hidden products, layer states (values and gradients), iteration
    gradients, cell states (values and gradients). Rows are padded to 64 bytes, and once more where a row would be
    a multiple of 256 elements. Measured on PyTorch 2.13 (oneDNN, float32 and bfloat16), equal for AVX2 and AVX-512;
    before 2.12 there are two more sections of layer states.
    """

    def padded(row: int, item: int) -> int:
        unit = 64 // item
        full = -(-row // unit) * unit
        return full + unit if full % 256 == 0 else full

    def pages(nbytes: int) -> int:
        return -(-nbytes // 4096) * 4096

    widest, rows = max(features, hidden), 2 * (steps + 1) * batch
    values = [
        steps * batch * padded(4 * hidden, itemsize) * itemsize,
        steps * batch * padded(hidden, itemsize) * itemsize,
        *[rows * padded(widest, itemsize) * itemsize] * (1 if VERSION >= (2, 12) else 3),
        rows * hidden * itemsize,
    ]
    gradients = [rows * padded(widest, 4) * 4] * 2 + [rows * hidden * 4]
    return sum(map(pages, values + gradients))


def _rnn_gradients(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel returns the gradients of the two biases in memory of their own."""
    del args
    return *result[:4], torch.empty_like(result[4]), *result[5:]


FIXES: dict[Any, Fix] = by_op(
    {
        "aten.native_batch_norm.default": _mixed_statistics,
        "aten.native_layer_norm.default": _mixed_statistics,
        "aten.native_layer_norm_backward.default": _layer_norm_gradient,
        "aten.mse_loss.default": _reduced_loss,
        "aten.smooth_l1_loss.default": _reduced_loss,
        "aten.binary_cross_entropy.default": _reduced_loss,
        "aten.soft_margin_loss.default": _reduced_loss,
        "aten.col2im.default": _folded,
        "aten._embedding_bag.default": _bag_offsets,
        "aten.mkldnn_rnn_layer.default": _rnn_workspace,
        "aten.mkldnn_rnn_layer_backward.default": _rnn_gradients,
    }
)
"""Corrections of fake results by op, as functions of the arguments and the result."""
