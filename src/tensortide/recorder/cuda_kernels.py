"""The kernels that PyTorch chooses on a CUDA device, for composite ops whose choice asks the device itself: attention,
batch normalisation, recurrent layers. All other ops choose by the type of their tensors alone.

The rules are those of PyTorch's ``sdp_utils``, ``_select_batch_norm_backend`` and ``cudnn_is_acceptable``.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tensortide.recorder import packed
from tensortide.recorder.pretended import Gpu
from tensortide.recorder.torch_compat import VERSION, DispatchKey, by_op, has_kernel

_aten: Any = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


@contextlib.contextmanager
def chosen_kernels(gpu: Gpu) -> Iterator[None]:
    """Let composite ops on CUDA tensors call the kernels that they would on ``gpu``."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, chosen in _composites(gpu).items():
            for key in ("AutogradCUDA", "CUDA"):
                library.impl(name, chosen, key)
        for name in _WITH_KERNEL:
            if not has_kernel(f"aten::{name}", DispatchKey.CUDA):
                library.impl(name, _unreached, "CUDA")
        yield
    finally:
        library._destroy()


_WITH_KERNEL = ("silu_backward", "mish_backward", "_fused_rms_norm", "_fused_rms_norm_backward")
"""Ops with a kernel of their own on CUDA, which a build without CUDA would decompose."""


def _unreached(*args: Any) -> Any:
    """Stand for a kernel that a fake tensor never runs."""
    raise NotImplementedError(args)


def _composites(gpu: Gpu) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention(gpu)}
    found |= {operator.name().removeprefix("aten::"): run for operator, run in packed.READERS.items()}
    if gpu.nvidia:
        found["batch_norm"] = _batch_norm
        found |= {f"{name}.{given}": _recurrent(mode, given) for mode, name in enumerate(_RNN) for given in _GIVEN}
    return found


# -- attention -------------------------------------------------------------------------------------


class _Attention(NamedTuple):
    """A call of attention, with the facts that several rules need."""

    gpu: Gpu
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    grouped: bool

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    @property
    def trains(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)

    @property
    def fused(self) -> bool:
        """True if the shapes suit fused kernels: four dimensions, no empty sequence, matching batches and heads."""
        query, key, value = self.tensors
        if not query.dim() == key.dim() == value.dim() == 4 or 0 in (query.shape[-2], key.shape[-2]):
            return False
        if not query.shape[0] == key.shape[0] == value.shape[0]:
            return False
        heads = [t.shape[1] for t in self.tensors]
        if self.grouped:
            return heads[1] == heads[2] and heads[0] % heads[1] == 0
        return heads[0] == heads[1] == heads[2]

    def rows_are_dense(self, *, singles: bool) -> bool:
        """True if last dimensions, the mask's too, have stride 1; with ``singles``, one of size 1 may have any."""
        dense = all(t.stride(-1) == 1 for t in self.tensors) or (singles and self.query.shape[-1] == 1)
        return dense and (self.mask is None or self.mask.shape[-1] == 1 or self.mask.stride(-1) == 1)

    def one_dtype(self, *allowed: torch.dtype) -> bool:
        return self.query.dtype == self.key.dtype == self.value.dtype and self.query.dtype in allowed


def _low_precision(call: _Attention) -> bool:
    return call.one_dtype(*(_HALF if call.gpu.capability >= (8, 0) else (torch.float16,)))


def _flash(call: _Attention) -> bool:
    sm, width = call.gpu.capability, call.query.shape[-1]
    if not torch.backends.cuda.flash_sdp_enabled() or not call.fused or call.mask is not None or sm < (8, 0):
        return False
    if not width == call.key.shape[-1] == call.value.shape[-1] or width > 256:
        return False
    narrow = (8, 6) <= sm <= (8, 9) or sm >= (12, 0)
    if call.trains and narrow and not (width <= 192 or (call.dropout == 0 and width > 224)):
        return False
    if call.causal and call.query.shape[-2] != call.key.shape[-2]:
        return False
    return _low_precision(call) and call.rows_are_dense(singles=True)


def _alignment(call: _Attention) -> int:
    """Elements to which the rows of the memory-efficient kernel are aligned."""
    sm, half = call.gpu.capability, call.query.dtype in _HALF
    tensor_cores = sm >= (8, 0) or (sm >= (7, 0) and half)
    return max(4 if sm >= (8, 0) else 1, (8 if half else 4) if tensor_cores else 1)


def _efficient(call: _Attention) -> bool:
    if not torch.backends.cuda.mem_efficient_sdp_enabled() or not call.fused or call.gpu.capability < (5, 0):
        return False
    unit, (query, key, value) = _alignment(call), call.tensors
    if query.shape[1] != key.shape[1]:  # it shares no heads
        return False
    if query.shape[-1] != key.shape[-1] or query.shape[-1] % unit or value.shape[-1] % unit:
        return False
    allowed = (torch.float16, torch.float32, *((torch.bfloat16,) if call.gpu.capability >= (8, 0) else ()))
    return call.one_dtype(*allowed) and call.rows_are_dense(singles=False)


def _cudnn(call: _Attention) -> bool:
    sm = call.gpu.capability
    if not torch.backends.cuda.cudnn_sdp_enabled() or not call.gpu.nvidia or sm < (8, 0) or not call.fused:
        return False
    if torch.are_deterministic_algorithms_enabled() or not _low_precision(call) or (call.dropout * 16) % 1:
        return False
    query, key, value = call.tensors
    width, wide = query.shape[-1], value.shape[-1]
    limit = 192 if sm in ((9, 0), (10, 0), (10, 3)) and (width, wide) == (192, 128) else 128
    if max(width, wide) > limit or width % 8 or wide % 8 or key.shape[-2] == 1:
        return False
    if call.dropout and query.shape[-2] == 1:
        return False
    return _cudnn_mask(call) and call.rows_are_dense(singles=True)


def _cudnn_mask(call: _Attention) -> bool:
    mask, query, key = call.mask, call.query, call.key
    if mask is None:
        return True
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    sizes = (*query.shape[:2], query.shape[2], key.shape[2])[-mask.dim() :]
    return all(have in (1, want) for have, want in zip(mask.shape, sizes, strict=True))


def cudnn_first(gpu: Gpu) -> bool:
    """True if PyTorch prefers cuDNN's attention: from 2.10 on, on Hopper and the first Blackwell."""
    preferred = gpu.nvidia and gpu.capability in ((9, 0), (10, 0), (10, 3)) and VERSION >= (2, 10)
    return preferred and os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") != "1"


def _attention(gpu: Gpu) -> Callable[..., Tensor]:
    kernels = ((_flash, _run_flash), (_efficient, _run_efficient), (_math_enabled, _run_math), (_cudnn, _run_cudnn))
    order = (kernels[3], *kernels[:3]) if cudnn_first(gpu) else kernels

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        call = _Attention(gpu, query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        for accepts, run in order:
            if accepts(call):
                return run(call, scale)
        raise RuntimeError("No available kernel. Aborting execution.")

    return attention


def _math_enabled(call: _Attention) -> bool:
    del call
    return bool(torch.backends.cuda.math_sdp_enabled())


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or mask.dtype is not torch.bool:
        return mask
    hidden = torch.full((), -math.inf, dtype=dtype, device=mask.device)
    return torch.where(mask, torch.zeros((), dtype=dtype, device=mask.device), hidden)


def _run_flash(call: _Attention, scale: float | None) -> Tensor:
    width = call.query.shape[-1]
    padded = [t if width % 8 == 0 else torch.nn.functional.pad(t, (0, 8 - width % 8)) for t in call.tensors]
    given = scale if scale is not None else 1 / math.sqrt(width)
    out = _aten._scaled_dot_product_flash_attention(*padded, call.dropout, call.causal, False, scale=given)[0]
    return out[..., :width] if width % 8 else out  # type: ignore[no-any-return]


def _run_efficient(call: _Attention, scale: float | None) -> Tensor:
    query, key, value = call.tensors
    mask = _additive(call.mask, query.dtype)
    if mask is not None:
        columns, unit = mask.shape[-1], 8 if query.dtype in _HALF else 4
        if mask.stride(-1) != 1 or columns % 8 or any(stride % unit for stride in mask.stride()[:-1]):
            mask = torch.nn.functional.pad(mask, (0, -columns % 8 or 8))[..., :columns]
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    arguments = (query, key, value, mask, call.trains, call.dropout, call.causal)
    return _aten._scaled_dot_product_efficient_attention(*arguments, scale=scale)[0]  # type: ignore[no-any-return]


def _run_cudnn(call: _Attention, scale: float | None) -> Tensor:
    mask = _additive(call.mask, call.query.dtype)
    arguments = (*call.tensors, mask, call.trains, call.dropout, call.causal, False)
    return _aten._scaled_dot_product_cudnn_attention(*arguments, scale=scale)[0]  # type: ignore[no-any-return]


def _run_math(call: _Attention, scale: float | None) -> Tensor:
    mask = _additive(call.mask, call.query.dtype)
    more = {"enable_gqa": True} if call.grouped else {}
    arguments = (*call.tensors, mask, call.dropout, call.causal, None)
    return _aten._scaled_dot_product_attention_math(*arguments, scale=scale, **more)[0]  # type: ignore[no-any-return]


# -- batch normalisation ---------------------------------------------------------------------------


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize a batch, with cuDNN if PyTorch would use it."""
    if weight is not None and bias is not None and cudnn_enabled and _by_cudnn(x, weight, mean, variance, training):
        format = torch.channels_last if _lies_channels_last(x) else torch.contiguous_format
        x = x.contiguous(memory_format=format)
        result = _aten.cudnn_batch_norm(x, weight, bias, mean, variance, training, momentum, eps)
        return result[0]  # type: ignore[no-any-return]
    return _aten.native_batch_norm(x, weight, bias, mean, variance, training, momentum, eps)[0]  # type: ignore[no-any-return]


def _by_cudnn(x: Tensor, weight: Tensor, mean: Tensor | None, variance: Tensor | None, training: bool) -> bool:
    if torch.bfloat16 in (x.dtype, weight.dtype) or (x.dtype == torch.float16 and weight.dtype != torch.float32):
        return False
    if (mean is None) != (variance is None) or (mean is None and not training) or not torch.backends.cudnn.enabled:
        return False
    return x.dim() >= 3 and x.shape[0] <= (880801 if training else 65535) and x.numel() < 2**31 - 1


def _lies_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


# -- recurrent layers ------------------------------------------------------------------------------

_RNN = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""Recurrent layers, in the order of cuDNN's modes."""
_GIVEN = ("input", "data")
"""Overloads: for a padded batch, and for a packed one."""


def _recurrent(mode: int, given: str) -> Callable[..., Any]:
    lstm = _RNN[mode] == "lstm"

    def run(x: Tensor, hidden: Any, weights: Sequence[Tensor], *rest: Any, batch_sizes: Sequence[int] = ()) -> Any:
        layers, dropout, train, both, batch_first = rest
        state, cell = hidden if lstm else (hidden, None)
        width = weights[0].shape[0] // _GATES[mode]
        projected = state.shape[-1] if state.shape[-1] != width else 0
        flat, each = weights[0].new_empty(0), len(weights) // (layers * (2 if both else 1))
        out, last, last_cell, _, _ = _aten._cudnn_rnn(
            *(x, list(weights), each, flat, state, cell, mode, width, projected, layers, batch_first, dropout),
            *(train, both, batch_sizes, None),
        )
        return (out, last, last_cell) if lstm else (out, last)

    if given == "input":
        return lambda x, hidden, weights, biases, *rest: run(x, hidden, weights, *rest)
    return lambda x, sizes, hidden, weights, biases, *rest: run(
        x, hidden, weights, *rest, False, batch_sizes=sizes.tolist()
    )


def _rnn_forward(*args: Any) -> tuple[Any, ...]:
    """The results of cuDNN's recurrent layers, with the space it reserves for backward."""
    x, _, _, flat, state, cell, mode, width, projected, layers, batch_first, _, train, both = args[:14]
    sizes, directions, out_width = args[14], 2 if both else 1, projected or width
    rows = x.shape[:-1]
    out = x.new_empty((*rows, out_width * directions))
    batch = sizes[0] if sizes else x.shape[0 if batch_first else 1]
    last = state.new_empty((layers * directions, batch, out_width))
    last_cell = x.new_empty((0,) if cell is None else (layers * directions, batch, width))
    places = len(sizes) * batch if sizes else math.prod(rows)  # cuDNN reserves for the longest sequence of a batch
    kept = places * layers * directions * (_KEPT[mode] * width + out_width) * x.element_size() if train else 0
    return out, last, last_cell, x.new_empty((kept,), dtype=torch.uint8), flat.new_empty(0)


def _rnn_backward(*args: Any) -> tuple[Any, ...]:
    x, weights, _, _, state, cell = args[:6]
    mask = args[21]
    return (
        torch.empty_like(x) if mask[0] else None,
        torch.empty_like(state) if mask[1] else None,
        torch.empty_like(cell) if mask[2] and cell is not None else None,
        [torch.empty_like(w) for w in weights] if mask[3] else [],
    )


_GATES = (1, 1, 4, 3)
_KEPT = (1, 1, 5, 4)
"""By mode: the number of gates, and the number of values per unit of state and time step that cuDNN is assumed to
reserve for backward: the gates, and the cell state or the candidate's part of the hidden state."""

SHAPES: dict[Any, Callable[..., Any]] = by_op(
    {
        "aten._cudnn_rnn.default": _rnn_forward,
        "aten._cudnn_rnn_backward.default": _rnn_backward,
        "aten._pin_memory.default": lambda x, device=None: torch.empty_like(x),
        "aten.is_pinned.default": lambda x, device=None: False,
    }
)
"""Results of ops without a fake kernel, or whose fake kernel leaves out the space that cuDNN reserves."""

ASSUMED: dict[Any, str] = by_op(
    {"aten._cudnn_rnn.default": "cuDNN's recurrent layers reserve gates, cell states and outputs for backward"}
)
"""Assumptions made by the entries of ``SHAPES``."""
