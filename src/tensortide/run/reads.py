"""Reads of tensors, and changes of their storages' sizes, that the dispatcher does not see."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from tensortide.recorder.surroundings import replaced
from tensortide.run.block import ORDINARY
from tensortide.run.evicted import resize
from tensortide.run.runtime import Runtime
from tensortide.run.torch_compat import C

_LOOKS = ("tolist", "__repr__", "__deepcopy__")
_HOLDS = (
    *("numpy", "data_ptr", "untyped_storage", "storage", "_typed_storage", "share_memory_"),
    *("__array__", "__dlpack__", "__reduce_ex__"),
)
"""These keep the address: the bytes have to stay where they are."""
_MOVES = ("_share_fd_cpu_", "_share_filename_cpu_", "share_memory_")
"""These move a storage into memory that processes share."""


@contextlib.contextmanager
def reads_seen(runtime: Runtime) -> Iterator[None]:
    """Put a tensor back into memory before its bytes are read, and see what moves or resizes storages.

    Functions of PyTorch that do so are replaced while the budget is open. A mode for functions would see them too, but
    PyTorch leaves out its fused paths when one is on, and the results would not be the same.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(readers(runtime.access.reading))
        for name in _MOVES:
            mover = _mover(runtime, getattr(torch.UntypedStorage, name))
            stack.enter_context(replaced(torch.UntypedStorage, name, mover))
        stack.enter_context(replaced(torch.UntypedStorage, "resize_", _resizer(runtime)))
        yield


@contextlib.contextmanager
def readers(reading: Callable[[torch.Tensor, bool], AbstractContextManager[None]]) -> Iterator[None]:
    """Let functions that read a tensor outside of the dispatcher do so in the context ``reading`` of the tensor; the
    second argument is true if they keep the address."""
    places: list[tuple[Any, str, bool]] = [(torch.Tensor, name, name in _HOLDS) for name in (*_LOOKS, *_HOLDS)]
    modules = (torch, C, torch.utils.dlpack)
    places += [(m, name, True) for m in modules for name in ("to_dlpack", "_to_dlpack") if hasattr(m, name)]
    with contextlib.ExitStack() as stack:
        for place, name, lasting in places:
            stack.enter_context(replaced(place, name, _reader(reading, getattr(place, name), lasting)))
        yield


def _reader(
    reading: Callable[[torch.Tensor, bool], AbstractContextManager[None]], original: Callable[..., Any], lasting: bool
) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with reading(tensor, lasting):
            return original(tensor, *args, **kwargs)

    return read


def _mover(runtime: Runtime, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def moved(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        with runtime.lock:  # no op reads the old address
            return original(storage, *args, **kwargs)

    return moved


def _resizer(runtime: Runtime) -> Callable[..., Any]:
    @functools.wraps(resize)
    def resized(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        runtime.access.resize(storage, size)
        return storage

    return resized


def is_leaf(tensor: torch.Tensor) -> bool:
    """True if ``tensor`` is a leaf of autograd."""
    try:
        return tensor.is_leaf
    except RuntimeError:  # a view that autograd has given up
        return False


def watch_gradients(runtime: Runtime, tensors: Iterable[torch.Tensor], until: contextlib.ExitStack) -> None:
    """Tell ``runtime`` of every gradient that arrives at one of ``tensors``, or at a parameter made from now on."""

    def watch(tensor: torch.Tensor | None) -> None:
        if tensor is not None and type(tensor) in ORDINARY and is_leaf(tensor) and tensor.requires_grad:
            until.callback(tensor.register_post_accumulate_grad_hook(runtime.gradient_came).remove)

    for tensor in tensors:
        watch(tensor)
    made = register_module_parameter_registration_hook(lambda _module, _name, parameter: watch(parameter))
    until.callback(made.remove)
