"""Methods of fake tensors that read memory without an op: they return the constant or the stand-in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor, disable_current_modes


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Make methods that read a tensor's memory return the constant or the stand-in of a fake tensor, while active."""
    methods = {
        "__deepcopy__": _deepcopy,
        "tolist": _tolist,
        "numpy": _numpy,
        "__format__": _format,
        "__array__": _array,
    }
    with contextlib.ExitStack() as stack:
        for name, method in methods.items():
            stack.enter_context(replaced(FakeTensor, name, method))
        yield


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) in memo:
        return memo[id(self)]
    if isinstance(self, torch.nn.Parameter):  # which is copied without its gradient
        memo[id(self)] = copied = self.data.clone(memory_format=torch.preserve_format).requires_grad_(
            self.requires_grad
        )
        copied._is_param = True
        return copied
    constant, self.constant = self.constant, None  # PyTorch would make a fake copy of it
    try:
        if constant is None or self.requires_grad:
            return torch.Tensor.__deepcopy__(self, memo)
        with disable_current_modes():
            value = constant.clone()
        copied = self.fake_mode.fake_tensor_converter.from_real_tensor(self.fake_mode, value, make_constant=True)
        memo[id(self)] = copied
        return copied
    finally:
        self.constant = constant


def _tolist(self: Any) -> Any:
    if self.constant is not None:
        with disable_current_modes():
            return self.constant.tolist()
    values = self.fake_mode.values
    value = values.read(self)
    if values.trying is not None:
        value = values.trying.turnable(value)

    def nested(shape: Sequence[int]) -> Any:
        return [nested(shape[1:]) for _ in range(shape[0])] if shape else value

    return nested(self.shape)


def _numpy(self: Any, *, force: bool = False) -> Any:
    import numpy

    if self.requires_grad and not force:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    self.detach()  # PyTorch does so too, and it is an op
    with disable_current_modes():
        known = (
            torch.empty(0, dtype=self.dtype, device="cpu") if self.constant is None else self.constant.detach().clone()
        )
        array = known.numpy()
    if self.constant is None:
        array = numpy.full(tuple(self.shape), self.fake_mode.values.read(self), dtype=array.dtype)
    return numpy.asarray(_Memory(self, array))


class _Memory:
    """The shared memory of an array and a tensor: whoever holds the array keeps the tensor's storage resident."""

    def __init__(self, tensor: Any, array: Any) -> None:
        self._both = tensor, array
        self.__array_interface__ = array.__array_interface__


def _array(self: Any, dtype: Any = None, copy: Any = None) -> Any:
    del copy
    array = _numpy(self)
    return array if dtype is None else array.astype(dtype, copy=False)


def _format(self: Any, spec: str) -> str:
    return format(self.detach().item(), spec) if self.dim() == 0 else object.__format__(self, spec)
