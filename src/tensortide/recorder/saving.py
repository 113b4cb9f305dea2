"""Suppression of files that a program saves while it runs on fake tensors; existing ones are kept."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensortide.recorder.reading import reader, shortened
from tensortide.recorder.surroundings import replaced

_WRITERS = (
    *(("torch", "save"), ("torch.serialization", "save"), ("torch.distributed.checkpoint", "save")),
    *(("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"), ("numpy", "save"), ("numpy", "savez")),
    ("numpy", "savez_compressed"),
)
"""Functions that write tensors or arrays to files, by module and name."""
_MOVERS = ((os, "replace"), (os, "rename"), (shutil, "move"))
_LAZY = ("safetensors.torch",)
"""Modules to import first, as other modules import these functions by name."""


@contextlib.contextmanager
def nothing_saved(note: Callable[[str], None]) -> Iterator[None]:
    """Make functions that save tensors write nothing while active. ``note`` receives the place of each call."""
    for module in _LAZY:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    unwritten: set[str] = set()
    with contextlib.ExitStack() as stack:
        for module, name in _WRITERS:
            owner = sys.modules.get(module)
            if hasattr(owner, name):
                writer = _writing_nothing(getattr(owner, name), module, note, unwritten)
                stack.enter_context(replaced(owner, name, writer))
        for owner, name in _MOVERS:
            stack.enter_context(replaced(owner, name, _moving_what_is_there(getattr(owner, name), unwritten)))
        yield


def _moving_what_is_there(function: Callable[..., Any], unwritten: set[str]) -> Callable[..., Any]:
    """``function``, which gives a file another name, without effect on one that was not written: programs write a
    checkpoint beside the one that it then replaces."""

    @functools.wraps(function)
    def moved(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(source, (str, os.PathLike)) and os.fspath(source) in unwritten and not Path(source).exists():
            return target
        return function(source, target, *args, **kwargs)

    return moved


def _writing_nothing(
    function: Callable[..., Any], module: str, note: Callable[[str], None], unwritten: set[str]
) -> Callable[..., None]:
    @functools.wraps(function)
    def saved(*args: Any, **kwargs: Any) -> None:
        unwritten.update(os.fspath(arg) for arg in (*args, *kwargs.values()) if isinstance(arg, (str, os.PathLike)))
        frame, _ = reader(sys._getframe(1))
        place = "" if frame is None else f" at {shortened(frame.f_code.co_filename)}:{frame.f_lineno}"
        note(f"{module}.{function.__name__} wrote no file{place}: fake tensors have no values")

    return saved
