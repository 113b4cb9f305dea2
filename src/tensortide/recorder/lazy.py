"""Parameters and buffers of lazy modules on fake tensors: their shapes are set by the first forward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor


class _Lazy(FakeTensor):
    """A fake tensor without a shape; PyTorch's ``materialize`` gives it one."""

    cls_to_become = FakeTensor
    shape: Any = torch.Tensor.shape  # an uninitialized parameter's own raises an error

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class; a copy elsewhere or in another type has no shape either."""
        result = super().__torch_function__(func, types, args, kwargs or {})
        if getattr(func, "__name__", "") in _COPIES and type(result) is FakeTensor:
            result.__class__ = type(args[0])
        return result


_COPIES = frozenset(["bfloat16", "cpu", "cuda", "detach", "double", "float", "half", "to"])
"""Methods that copy a tensor without a shape."""


class _LazyParameter(_Lazy, UninitializedParameter):
    """A fake parameter without a shape."""


class _LazyBuffer(_Lazy, UninitializedBuffer):
    """A fake buffer without a shape."""


@contextlib.contextmanager
def lazy_modules() -> Iterator[None]:
    """Let lazy modules be built of fake tensors while active."""
    with (
        replaced(UninitializedParameter, "__new__", staticmethod(_made(UninitializedParameter, trains=True))),
        replaced(UninitializedBuffer, "__new__", staticmethod(_made(UninitializedBuffer, trains=False))),
    ):
        yield


def _made(kind: Any, *, trains: bool) -> Callable[..., Any]:
    """Wrap the making of a parameter (if it ``trains``) or a buffer of ``kind``."""
    real = kind.__new__

    def make(cls: Any, requires_grad: bool = trains, device: Any = None, dtype: Any = None, **rest: Any) -> Any:
        outline = torch.empty(0, device=device, dtype=dtype)
        if not isinstance(outline, FakeTensor):
            return real(cls, requires_grad, device, dtype, **rest)
        made: Any = outline
        if trains:
            made = torch.nn.Parameter(made, requires_grad)
        else:
            made.persistent, made._is_buffer = rest.get("persistent", True), True
        made.__class__ = _LazyParameter if trains else _LazyBuffer
        return made

    return make
