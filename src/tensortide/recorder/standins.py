"""Stand-ins for the user's tensors: fake ones that hold no data, or clones for a capture on real tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedFakeTensorException

from tensortide.errors import CaptureError

_CONSTANT_NUMEL = 1
"""Real tensors up to this size keep their value under fake mode (optimizer step counters are read in Python)."""


def fakes(mode: FakeTensorMode) -> Any:
    """A function from a real tensor to a fake one of ``mode``; aliases and ties stay aliases and ties."""

    def replace(value: torch.Tensor) -> torch.Tensor:
        _refuse_lazy(value)
        if isinstance(value, FakeTensor):
            return value
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            if type(value).__torch_dispatch__ != torch.Tensor.__torch_dispatch__:
                return value
            value = _plain(value)  # a subclass of no other ops: a fake tensor is of one class only
        if _is_constant(value):
            return mode.fake_tensor_converter.from_real_tensor(mode, value.detach().clone(), make_constant=True)
        try:
            fake = mode.from_tensor(value)
        except UnsupportedFakeTensorException as error:
            kind = f"{str(value.dtype)[6:]}{list(value.shape)}"
            raise CaptureError(f"a tensor {kind} of the step has no fake form: {error}") from error
        if value.layout == torch.strided and fake.untyped_storage().nbytes() < value.untyped_storage().nbytes():
            fake.untyped_storage().resize_(value.untyped_storage().nbytes())  # a view keeps all of its base alive
        return fake

    return replace


def _plain(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().as_subclass(torch.Tensor)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=value.requires_grad)
    return plain.requires_grad_(value.requires_grad)


def _refuse_lazy(value: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(value):
        raise CaptureError("a lazy module has no shapes yet: run it once on real data before capturing the step")


def _is_constant(value: torch.Tensor) -> bool:
    small = value.numel() <= _CONSTANT_NUMEL and value.device.type == "cpu"
    return small and not value.requires_grad and value.layout == torch.strided and value._base is None


def clones() -> Any:
    """A function from a real tensor to a copy of it; tensors that share a storage share the copy."""
    storages: dict[int, torch.UntypedStorage] = {}
    keep: list[torch.UntypedStorage] = []
    made: set[int] = set()

    def replace(value: torch.Tensor) -> torch.Tensor:
        _refuse_lazy(value)
        if value.layout != torch.strided or isinstance(value, FakeTensor):
            return value
        if value.is_quantized:  # its scales are no part of the storage
            return value.clone()
        storage = value.untyped_storage()
        if storage._cdata in made:  # a copy already
            return value
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone()
            made.add(storages[storage._cdata]._cdata)
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


def hooks_of(tensor: torch.Tensor) -> list[dict[int, Any]]:
    """The tables of gradient hooks that ``tensor`` has."""
    return [hooks for hooks in (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)) if hooks]


def copy_hooks(source: torch.Tensor, target: torch.Tensor) -> None:
    """Give the stand-in the attributes and gradient hooks of the tensor it stands for."""
    for name, item in getattr(source, "__dict__", {}).items():
        if name not in target.__dict__:
            target.__dict__[name] = item
    if not target.requires_grad:
        return
    for hook in list((source._backward_hooks or {}).values()):
        target.register_hook(hook)
    if target.is_leaf:
        for hook in list((getattr(source, "_post_accumulate_grad_hooks", None) or {}).values()):
            target.register_post_accumulate_grad_hook(hook)
