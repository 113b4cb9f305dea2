"""Devices of tensors that wrap others, as distributed and nested ones do, on a pretended GPU.

PyTorch keeps the device of such a tensor in C++, where the autograd engine reads it and looks for streams of the GPU.
While a GPU is pretended each wrapper is made so that its device is asked for in Python, like that of a fake tensor, and
the engine is told that there is no GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced, replaced_in

_ATTRIBUTE = "_device_in_python"
_make: Any = torch.Tensor._make_wrapper_subclass
_BEFORE = ("strides", "storage_offset", "memory_format", "dtype", "layout", "device", "pin_memory", "requires_grad")
_OPTIONS = (*_BEFORE, "dispatch_sizes_strides_policy", "dispatch_device", "dispatch_layout", "_extra_dispatch_keys")
"""Arguments of PyTorch's constructor of wrappers after the class and the size, which some callers give by position."""


def _wrapper(kind: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a tensor of the class ``kind`` whose device is asked for in Python."""
    options = {**dict(zip(_OPTIONS, args, strict=False)), **kwargs, "dispatch_device": True}
    made = _make(kind, size, **options)
    device = options.get("device")
    setattr(made, _ATTRIBUTE, torch.device("cpu" if device is None else device))
    return made


def _distributed(kind: Any, local: torch.Tensor, spec: Any, *, requires_grad: bool) -> Any:
    """Make a distributed tensor, which PyTorch makes in C++ otherwise."""
    meta = spec.tensor_meta
    options = {"dtype": local.dtype, "device": local.device, "layout": local.layout, "requires_grad": requires_grad}
    made = _wrapper(kind, meta.shape, strides=meta.stride, **options)
    made._spec, made._local_tensor = spec, local
    return made


def device_of_wrapper(value: torch.Tensor) -> torch.device | None:
    """The device of a wrapper made while a GPU was pretended; None for any other tensor."""
    return getattr(value, "__dict__", {}).get(_ATTRIBUTE)


@contextlib.contextmanager
def devices_in_python() -> Iterator[None]:
    """Have the devices of new wrappers asked for in Python while active."""
    with (
        replaced(torch.Tensor, "_make_wrapper_subclass", _wrapper),
        replaced_in("torch.distributed.tensor._api", "DTensor.__new__", _distributed),
    ):
        yield
