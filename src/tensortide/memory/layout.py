"""Bytes and memory order of tensors, as kernels see them."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.graph.model import Tensor


def is_dense(tensor: Tensor, order: Sequence[int] | None = None) -> bool:
    """True if the dimensions lie in memory in ``order``, outermost first and without gaps (default: as numbered)."""
    expected = 1
    for dim in reversed(range(len(tensor.shape)) if order is None else order):
        # a dense dimension may have any size: where sizes are expressions, nothing is relied on then
        if tensor.strides[dim] != expected and tensor.shape[dim] != 1:
            return tensor.numel == 0
        expected *= tensor.shape[dim]
    return True


def is_channels_last(tensor: Tensor) -> bool:
    """True if dimension 1 lies innermost and that is not also the plain order (or it would not matter)."""
    dims = len(tensor.shape)
    if dims not in (4, 5) or is_dense(tensor):
        return False
    return is_dense(tensor, (0, *range(2, dims), 1))


def contiguous_copy(tensor: Tensor) -> int:
    """Bytes of the copy that ``.contiguous()`` makes: none if it is contiguous already."""
    return 0 if is_dense(tensor) else tensor.nbytes
