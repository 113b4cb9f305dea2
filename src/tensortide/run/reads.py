"""Reads of tensors, and changes of their storages' sizes, that the dispatcher does not see."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from tensortide.recorder.surroundings import replaced
from tensortide.run.block import ORDINARY
from tensortide.run.evicted import resize
from tensortide.run.runtime import Runtime
from tensortide.run.torch_compat import C
from tensortide.run.writers import Handed

Reading: TypeAlias = Callable[[torch.Tensor, Handed], AbstractContextManager[Callable[[Any], None]]]

_READERS = {
    **dict.fromkeys(("tolist", "__repr__", "__deepcopy__"), Handed.NOT),
    **dict.fromkeys(("untyped_storage", "storage", "_typed_storage", "share_memory_", "__reduce_ex__"), Handed.NOW),
    **dict.fromkeys(("numpy", "__array__"), Handed.ARRAY),
    "data_ptr": Handed.ADDRESS,
    "__dlpack__": Handed.ALWAYS,
}
"""What reads a tensor, and how long it may be written afterwards. All but the first keep the address: the bytes have to
stay where they are."""
_OF_STORAGES = {"data_ptr": Handed.ADDRESS, "byteswap": Handed.NOW, "_set_from_file": Handed.NOW}
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
        for name, how in _OF_STORAGES.items():
            writer = _writer(runtime, getattr(torch.UntypedStorage, name), how)
            stack.enter_context(replaced(torch.UntypedStorage, name, writer))
        stack.enter_context(replaced(torch.UntypedStorage, "resize_", _resizer(runtime)))
        yield


@contextlib.contextmanager
def readers(reading: Reading) -> Iterator[None]:
    """Let functions that read a tensor outside of the dispatcher do so in the context ``reading`` of the tensor, which
    is given what they return."""
    places: list[tuple[Any, str, Handed]] = [(torch.Tensor, name, how) for name, how in _READERS.items()]
    modules = (torch, C, torch.utils.dlpack)
    places += [(m, name, Handed.ALWAYS) for m in modules for name in ("to_dlpack", "_to_dlpack") if hasattr(m, name)]
    with contextlib.ExitStack() as stack:
        for place, name, how in places:
            stack.enter_context(replaced(place, name, _reader(reading, getattr(place, name), how)))
        yield


def _reader(reading: Reading, original: Callable[..., Any], how: Handed) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with reading(tensor, how) as handed_out:
            result = original(tensor, *args, **kwargs)
            handed_out(result)
            return result

    return read


def _writer(runtime: Runtime, original: Callable[..., Any], how: Handed) -> Callable[..., Any]:
    @functools.wraps(original)
    def written(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        with runtime.access.addressing(storage, how):
            return original(storage, *args, **kwargs)

    return written


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
        if isinstance(tensor, torch.nn.Parameter):
            runtime.access.own(tensor)
        if tensor is not None and type(tensor) in ORDINARY and is_leaf(tensor) and tensor.requires_grad:
            until.callback(tensor.register_post_accumulate_grad_hook(runtime.gradient_came).remove)

    for tensor in tensors:
        watch(tensor)
    made = register_module_parameter_registration_hook(lambda _module, _name, parameter: watch(parameter))
    until.callback(made.remove)
