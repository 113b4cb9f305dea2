"""Stand-ins for the user's tensors: fake ones that hold no data, or clones for a capture on real tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_CONSTANT_NUMEL = 1
"""Real tensors up to this size keep their value under fake mode (optimizer step counters are read in Python)."""


def fakes(mode: FakeTensorMode) -> Any:
    """A function from a real tensor to a fake one of ``mode``; aliases and ties stay aliases and ties."""

    def replace(value: torch.Tensor) -> torch.Tensor:
        if isinstance(value, FakeTensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return value
        if _is_constant(value):
            return mode.fake_tensor_converter.from_real_tensor(mode, value.detach().clone(), make_constant=True)
        return mode.from_tensor(value)

    return replace


def _is_constant(value: torch.Tensor) -> bool:
    small = value.numel() <= _CONSTANT_NUMEL and value.device.type == "cpu"
    return small and not value.requires_grad and value.layout == torch.strided and value._base is None


def clones() -> Any:
    """A function from a real tensor to a copy of it; tensors that share a storage share the copy."""
    storages: dict[int, torch.UntypedStorage] = {}
    keep: list[torch.UntypedStorage] = []

    def replace(value: torch.Tensor) -> torch.Tensor:
        if value.layout != torch.strided or isinstance(value, FakeTensor):
            return value
        storage = value.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone()
            keep.append(storage)
        copy = torch.empty(0, dtype=value.dtype, device=value.device)
        copy.set_(storages[storage._cdata], value.storage_offset(), value.shape, value.stride())
        if isinstance(value, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=value.requires_grad)
        elif value.requires_grad:
            copy.requires_grad_()
        if value.is_leaf and value.grad is not None:
            copy.grad = replace(value.grad)
        return copy

    return replace
