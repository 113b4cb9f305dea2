"""Reads of tensors that the dispatcher does not see."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide.run.runtime import Runtime
from tensortide.run.template import tensors_of

_ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
_LOOKS = ("tolist", "__repr__", "__deepcopy__")
_HOLDS = (
    *("numpy", "data_ptr", "untyped_storage", "storage", "_typed_storage", "share_memory_"),
    *("__array__", "__dlpack__", "__reduce_ex__"),
)
"""These keep the address: the bytes have to stay where they are."""


class Reads:
    """Puts a tensor back into memory before its bytes are looked at.

    Functions of PyTorch that do so are replaced while the budget is open. A mode for functions would be told too, but
    PyTorch leaves out its fused paths when one is on, and the results would not be the same.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Reads:
        for name in (*_LOOKS, *_HOLDS):
            self._replace(torch.Tensor, name, name in _HOLDS)
        for place in (torch, torch._C, torch.utils.dlpack):
            for name in ("to_dlpack", "_to_dlpack"):
                if hasattr(place, name):
                    self._replace(place, name, True)
        return self

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, place: Any, name: str, lasting: bool) -> None:
        inherited = name not in vars(place)
        original = getattr(place, name)

        @functools.wraps(original)
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.runtime.expose(tensor, lasting=lasting)
            return original(tensor, *args, **kwargs)

        setattr(place, name, read)
        self._undo.append(lambda: delattr(place, name) if inherited else setattr(place, name, original))


class _Guard(TorchDispatchMode):
    """Lets the ops of another thread pass unless their tensors are under the budget."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No compiler wrapper around the handler."""
        return False

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_of([*args, *kwargs.values()]):
            if type(tensor) in _ORDINARY and tensor.layout is torch.strided:
                self.runtime.refuse(tensor)
        return func(*args, **kwargs)


class Strangers:
    """Threads that begin while a budget is open are told so if they touch what the budget covers."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def __enter__(self) -> Strangers:
        self._run = threading.Thread.run
        run = self._run

        def guarded(thread: threading.Thread) -> None:
            with _Guard(self.runtime):
                run(thread)

        threading.Thread.run = guarded  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *error: object) -> None:
        threading.Thread.run = self._run  # type: ignore[method-assign]
