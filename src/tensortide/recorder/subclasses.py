"""Parameters of a program's own classes made of fake tensors, as those with quantized weights are.

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


@functools.cache
def _fake_class(kind: Any) -> Any:
    """The class of fake tensors that are parameters of the class ``kind``."""
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


@contextlib.contextmanager
def fake_subclasses() -> Iterator[None]:
    """Let parameters of any class be made of fake tensors while active."""
    with (
        replaced(torch.Tensor, "_make_subclass", staticmethod(_made)),
        replaced(torch.nn.Parameter, "__new__", _parameter),
    ):
        yield
