"""Dtypes of Graphs as PyTorch's."""

from __future__ import annotations

import torch

from tensortide.errors import GraphError


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of PyTorch called ``name``. Raises GraphError for one that this PyTorch does not have."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise GraphError(f"PyTorch {torch.__version__} has no dtype {name}: ops on it can be counted, not executed")
    return found
