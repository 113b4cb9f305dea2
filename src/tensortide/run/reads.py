"""Reads of tensors, and changes of their storages' sizes, that the dispatcher does not see."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from tensortide.recorder.recorder import Mode
from tensortide.recorder.surroundings import replaced
from tensortide.run.block import ORDINARY, resize, tensors_of
from tensortide.run.runtime import Runtime

_LOOKS = ("tolist", "__repr__", "__deepcopy__")
_HOLDS = (
    *("numpy", "data_ptr", "untyped_storage", "storage", "_typed_storage", "share_memory_"),
    *("__array__", "__dlpack__", "__reduce_ex__"),
)
"""These keep the address: the bytes have to stay where they are."""


@contextlib.contextmanager
def reads_seen(runtime: Runtime) -> Iterator[None]:
    """Put a tensor back into memory before its bytes are read.

    Functions of PyTorch that do so are replaced while the budget is open. A mode for functions would see them too, but
    PyTorch leaves out its fused paths when one is on, and the results would not be the same.
    """
    places: list[tuple[Any, str, bool]] = [(torch.Tensor, name, name in _HOLDS) for name in (*_LOOKS, *_HOLDS)]
    modules = (torch, torch._C, torch.utils.dlpack)
    places += [(m, name, True) for m in modules for name in ("to_dlpack", "_to_dlpack") if hasattr(m, name)]
    with contextlib.ExitStack() as stack:
        for place, name, lasting in places:
            stack.enter_context(replaced(place, name, _reader(runtime, getattr(place, name), lasting)))
        stack.enter_context(replaced(torch.UntypedStorage, "resize_", _resizer(runtime)))
        yield


def _reader(runtime: Runtime, original: Callable[..., Any], lasting: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        runtime.expose(tensor, lasting=lasting)
        return original(tensor, *args, **kwargs)

    return read


def _resizer(runtime: Runtime) -> Callable[..., Any]:
    @functools.wraps(resize)
    def resized(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        runtime.resize(storage, size)
        return storage

    return resized


def watch_gradients(runtime: Runtime, tensors: Iterable[torch.Tensor], until: contextlib.ExitStack) -> None:
    """Tell ``runtime`` of every gradient that arrives at one of ``tensors``, or at a parameter made from now on."""

    def watch(tensor: torch.Tensor | None) -> None:
        if tensor is not None and type(tensor) in ORDINARY and tensor.is_leaf and tensor.requires_grad:
            until.callback(tensor.register_post_accumulate_grad_hook(runtime.gradient).remove)

    for tensor in tensors:
        watch(tensor)
    made = register_module_parameter_registration_hook(lambda _module, _name, parameter: watch(parameter))
    until.callback(made.remove)


class _Guard(Mode):
    """Lets the ops of another thread pass unless their tensors are under the budget."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_of([*args, *kwargs.values()]):
            if type(tensor) in ORDINARY and tensor.layout is torch.strided:
                self.runtime.refuse(tensor)
        return func(*args, **kwargs)


@contextlib.contextmanager
def threads_guarded(runtime: Runtime) -> Iterator[None]:
    """Forbid tensors under the budget to threads that start while it is open."""
    run = threading.Thread.run

    def guarded(thread: threading.Thread) -> None:
        with _Guard(runtime):
            run(thread)

    with replaced(threading.Thread, "run", guarded):
        yield
