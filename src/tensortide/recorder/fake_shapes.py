"""Shape functions of our own for ops of which PyTorch has none for fake tensors, or one that is too strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensortide.recorder import packed, sparse
from tensortide.recorder.torch_compat import by_op, found


def _grouped_mm(
    first: torch.Tensor,
    second: torch.Tensor,
    offsets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of groups of rows: (T,K)(G,K,N), (G,M,K)(G,K,N), (M,T)(T,N) or (G,M,K)(K,T), in any dtype.

    PyTorch's own shape function takes bfloat16 only. On CUDA rows are padded to 16 bytes.
    """
    del bias
    rows, columns = first.shape[-2], second.shape[-1]
    groups = {(2, 2): () if offsets is None else (offsets.shape[0],), (3, 3): (first.shape[0],)}
    shape = (*groups.get((first.dim(), second.dim()), ()), rows, columns)
    dtype = out_dtype or first.dtype
    unit = 16 // dtype.itemsize if first.device.type == "cuda" else 1
    row = -(-columns // unit) * unit
    strides = (rows * row, row, 1)[-len(shape) :]
    return torch.empty_strided(shape, strides, dtype=dtype, device=first.device)


def _ctc_loss(
    scores: torch.Tensor, targets: torch.Tensor, input_lengths: Any, target_lengths: Any, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss per sequence, and the table for backward: two columns per label of the longest target, and one."""
    del targets, input_lengths
    listed = isinstance(target_lengths, (list, tuple))
    longest = max(target_lengths) if listed else int(target_lengths.max().item())
    batch = scores.shape[1:-1]
    return scores.new_empty(batch), scores.new_empty((*(batch or (1,)), scores.shape[0], 2 * longest + 1))


def _lstm_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, state: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The new output and state, and for backward the four gates. PyTorch's own shape function needs biases."""
    del hidden_gates, biases
    made = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (state, state, input_gates)]
    return made[0], made[1], made[2]


def _gru_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, state: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new state, and for backward the three gates, the old state and the hidden part of the new gate."""
    del input_gates, hidden_gates, biases
    rows, hidden = state.shape
    return torch.empty_like(state), state.new_empty((rows, 5 * hidden))


def _gru_cell_backward(
    gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of both products and of the state, and of both biases where there are some."""
    rows, gates = workspace.shape[0], workspace.shape[1] // 5 * 3
    products = [workspace.new_empty((rows, gates)) for _ in range(2)]
    biases = [workspace.new_empty((gates,)) if has_bias else None for _ in range(2)]
    return *products, torch.empty_like(gradient), *biases


def _done(*args: Any, **kwargs: Any) -> Any:
    """The handle of a collective of several tensors, which moves no data."""
    del args, kwargs
    return found("torch._C._distributed_c10d.FakeWork")().boxed()


_COALESCED = ("allreduce", "allgather", "allgather_into_tensor", "reduce_scatter_tensor")

SHAPES: dict[Any, Callable[..., Any]] = by_op(
    {
        "aten._grouped_mm.default": _grouped_mm,
        "aten._ctc_loss.default": _ctc_loss,
        "aten._ctc_loss.Tensor": _ctc_loss,
        "aten._thnn_fused_lstm_cell.default": _lstm_cell,
        "aten._thnn_fused_gru_cell.default": _gru_cell,
        "aten._thnn_fused_gru_cell_backward.default": _gru_cell_backward,
        "aten._pack_padded_sequence.default": packed.pack,
        "aten._coalesce.default": sparse.coalesced,
        "aten.sparse_mask.default": sparse.masked,
        "aten.sparse_compressed_tensor.comp_plain_value_size": lambda *args, **how: sparse.compressed(
            args[:3], args[3], **how
        ),
        "aten._sparse_compressed_tensor_unsafe.default": lambda *args, **how: sparse.compressed(
            args[:3], args[3], **how
        ),
        **{name: sparse.from_dense(name) for name in sparse.FROM_DENSE},
        "aten._fused_sgd_.default": lambda *args, **how: None,
        "aten._fused_sgd_.tensor_lr": lambda *args, **how: None,
        **{f"c10d.{name}_coalesced_.default": _done for name in _COALESCED},
        "aten._sparse_addmm.default": lambda added, one, other, **_: other.new_empty((one.shape[0], other.shape[1])),
    }
)
"""Shape functions of ops whose own fake kernels reject arguments that the real kernels accept, or that have none."""
