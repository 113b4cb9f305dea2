"""Reads of tensor sizes by the user's code, handed to whoever wants to know what becomes of them.

``x.shape``, ``x.size()``, ``x.size(0)`` and ``x.numel()`` give plain integers. While ``shape_reads`` is open they give
what its function makes of these where the user's code reads, and what they always give to PyTorch itself. ``len(x)``
is an integer whatever is done.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_OWN, _EXAMPLES = ("torch", "tensortide"), "tensortide.examples"


@contextlib.contextmanager
def shape_reads(size: Callable[[int], int]) -> Iterator[None]:
    """Let every size that the user's code reads be ``size`` of it, an integer of the same value."""
    import torch

    def read(method: Callable[..., Any]) -> Callable[..., Any]:
        def reading(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            found = method(tensor, *args, **kwargs)
            if not _of_user(sys._getframe(1)):
                return found
            if type(found) is torch.Size:
                return torch.Size(map(size, found))
            return size(found) if type(found) is int else found

        return reading

    plain: Any = torch.Tensor.__base__
    replaced: dict[str, Any] = {name: read(getattr(plain, name)) for name in ("size", "numel", "nelement")}
    replaced["shape"] = property(read(plain.shape.__get__))
    for name, method in replaced.items():
        setattr(torch.Tensor, name, method)
    try:
        yield
    finally:
        for name in replaced:
            delattr(torch.Tensor, name)


def _of_user(frame: FrameType) -> bool:
    return _is_users(frame.f_globals.get("__name__", ""))


@functools.cache
def _is_users(module: str) -> bool:
    """Return whether a module is neither PyTorch's nor of this package; its examples are workloads like any other."""
    return module.partition(".")[0] not in _OWN or module.startswith(_EXAMPLES)
