"""Tensors of other classes than PyTorch's plain one made of fake tensors: parameters with quantized weights, masks.

PyTorch gives such a class to the memory of a plain tensor, and refuses a tensor that has a class already, as fake ones
do. Theirs becomes a class of both.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import DisableTorchFunctionSubclass, FakeTensor

_make_subclass: Any = torch.Tensor._make_subclass
_new_parameter: Any = torch.nn.Parameter.__new__
_new: Any = torch.Tensor.__new__


@functools.cache
def _fake_class(kind: Any) -> Any:
    """The class of fake tensors that are of the class ``kind``."""
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return kind if issubclass(kind, FakeTensor) else type(kind)(kind.__name__, (kind, FakeTensor), names)


# PyTorch compares the names of the arguments with those of its own version for compiled code.
def _made(cls: Any, data: torch.Tensor, requires_grad: bool = False, **kwargs: Any) -> Any:
    """Make a leaf of the class ``cls`` with the memory of ``data``."""
    if not isinstance(data, FakeTensor) or not issubclass(cls, torch.nn.Parameter):
        return _make_subclass(cls, data, requires_grad, **kwargs)
    made = _detached(data, requires_grad)
    made.__class__ = _fake_class(cls)
    return made


def _detached(data: torch.Tensor, requires_grad: bool) -> Any:
    with DisableTorchFunctionSubclass():
        return data.detach().requires_grad_(requires_grad)


def _parameter(cls: Any, data: torch.Tensor | None = None, requires_grad: bool = True) -> Any:
    """Make a parameter of the class ``cls``, as ``torch.nn.Parameter`` does."""
    if not isinstance(data, FakeTensor):
        return _new_parameter(cls, data, requires_grad)
    if cls is not torch.nn.Parameter:
        return _made(cls, data, requires_grad)
    made = _detached(data, requires_grad)
    made._is_param = True
    return made


def is_object(value: torch.Tensor) -> bool:
    """Return whether ``value`` is of a class of PyTorch's own that decides what functions do with it, as masks are."""
    kind: Any = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter) or not kind.__module__.startswith("torch."):
        return False
    function = getattr(kind.__torch_function__, "__func__", None)
    plain: Any = torch.Tensor.__torch_function__
    same = kind.__torch_dispatch__ == torch.Tensor.__torch_dispatch__
    return same and function not in (None, plain.__func__)


def of_class(fake: FakeTensor, value: torch.Tensor) -> FakeTensor:
    """Give ``fake`` the class and the attributes of ``value``, which it stands for."""
    made: Any = fake
    made.__class__ = _fake_class(type(value))
    made.__dict__.update(vars(value))
    return fake


def _constructed(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make an empty tensor of the class ``cls`` of sizes, as masks that are objects are made."""
    if cls is torch.Tensor or cls.__torch_dispatch__ != torch.Tensor.__torch_dispatch__:
        return _new(cls, *args, **kwargs)
    plain = _new(torch.Tensor, *args, **kwargs)
    if not isinstance(plain, FakeTensor):
        return _make_subclass(cls, plain)
    made: Any = plain
    made.__class__ = _fake_class(cls)
    return made


@contextlib.contextmanager
def fake_subclasses() -> Iterator[None]:
    """Let parameters of any class be made of fake tensors while active."""
    with (
        replaced(torch.Tensor, "_make_subclass", staticmethod(_made)),
        replaced(torch.nn.Parameter, "__new__", _parameter),
        replaced(torch.Tensor, "__new__", _constructed),
    ):
        yield
