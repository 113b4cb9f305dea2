"""Corrections where fake tensors would take another path than real ones."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.optim.optimizer as optimizer_module
import torch.utils._foreach_utils as foreach_module
from torch._subclasses.fake_tensor import FakeTensor

Fix = Callable[[Sequence[Any], Any], Any]


@contextlib.contextmanager
def same_paths() -> Iterator[None]:
    """Let libraries do with fake tensors what they do with real ones.

    Optimizers and gradient clipping choose kernels by the type of the tensor; the models of ``transformers`` take
    fake tensors for a sign of tracing and build masks that eager execution does without.
    """
    library: Any = sys.modules.get("transformers.utils.import_utils")
    is_fake = getattr(library, "is_fake_tensor", None)
    lists: list[list[Any]] = [optimizer_module._foreach_supported_types, foreach_module._foreach_supported_types]
    for supported in lists:
        supported.append(FakeTensor)
    if is_fake is not None:
        library.is_fake_tensor = lambda tensor: False
    try:
        yield
    finally:
        if is_fake is not None:
            library.is_fake_tensor = is_fake
        for supported in lists:
            supported.remove(FakeTensor)


def _batch_norm_statistics(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel saves statistics in float32 for a half-precision input with float32 parameters."""
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
    """``result`` on a storage of ``numel`` elements: the kernel shrank its output and kept the memory."""
    whole = torch.empty(max(numel, result.numel()), dtype=result.dtype, device=result.device)
    return whole.as_strided(result.shape, result.stride())


def _reduced_loss(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel computes the elementwise loss in the output's memory, then reduces it there."""
    if result.dim() or args[0].device.type != "cpu":
        return result
    return _keeps(result, torch.broadcast_shapes(args[0].shape, args[1].shape).numel())


def _folded(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel makes its output like its input and resizes it."""
    return result if args[0].device.type != "cpu" else _keeps(result, args[0].numel())


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
    a multiple of 256 elements. Measured on PyTorch 2.13 (oneDNN, float32 and bfloat16), equal for AVX2 and AVX-512.
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
        rows * padded(widest, itemsize) * itemsize,
        rows * hidden * itemsize,
    ]
    gradients = [rows * padded(widest, 4) * 4] * 2 + [rows * hidden * 4]
    return sum(map(pages, values + gradients))


def _rnn_gradients(args: Sequence[Any], result: Any) -> Any:
    """The CPU kernel returns the gradients of the two biases in memory of their own."""
    del args
    return *result[:4], torch.empty_like(result[4]), *result[5:]


_aten = torch.ops.aten
FIXES: dict[Any, Fix] = {
    _aten.native_batch_norm.default: _batch_norm_statistics,
    _aten.native_layer_norm_backward.default: _layer_norm_gradient,
    _aten.mse_loss.default: _reduced_loss,
    _aten.smooth_l1_loss.default: _reduced_loss,
    _aten.binary_cross_entropy.default: _reduced_loss,
    _aten.soft_margin_loss.default: _reduced_loss,
    _aten.col2im.default: _folded,
    _aten.mkldnn_rnn_layer.default: _rnn_workspace,
    _aten.mkldnn_rnn_layer_backward.default: _rnn_gradients,
}
"""Corrections of fake results, by op: a function of the arguments and the result."""
