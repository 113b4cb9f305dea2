"""Files of tensors that a program saves while it runs on fake ones: none are written, and none are spoilt."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.values import reader, shortened

_WRITERS = (
    *(("torch", "save"), ("torch.serialization", "save"), ("torch.distributed.checkpoint", "save")),
    *(("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"), ("numpy", "save"), ("numpy", "savez")),
)
"""Functions that write tensors, or arrays of stand-ins, to files: module and name."""
_LAZY = ("safetensors.torch",)
"""Modules imported for it: others take the function from them by name."""


@contextlib.contextmanager
def nothing_saved(note: Callable[[str], None]) -> Iterator[None]:
    """Let functions that save tensors write nothing while active. ``note`` is told where they were called."""
    for module in _LAZY:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    with contextlib.ExitStack() as stack:
        for module, name in _WRITERS:
            owner = sys.modules.get(module)
            if hasattr(owner, name):
                stack.enter_context(replaced(owner, name, _writing_nothing(getattr(owner, name), module, note)))
        yield


def _writing_nothing(function: Callable[..., Any], module: str, note: Callable[[str], None]) -> Callable[..., None]:
    @functools.wraps(function)
    def saved(*args: Any, **kwargs: Any) -> None:
        del args, kwargs
        frame, _ = reader(sys._getframe(1))
        place = "" if frame is None else f" at {shortened(frame.f_code.co_filename)}:{frame.f_lineno}"
        note(f"{module}.{function.__name__} wrote no file{place}: fake tensors have no values")

    return saved
