"""Launches of Triton kernels (``kernel[grid](...)``) on a pretended GPU: each is recorded as one op and runs nothing.

A kernel reads and writes tensors that the program has allocated, and allocates none. Which of them it writes is not
declared, so all count as written.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced

NOTE = "Triton kernels are not run: each is one op that may write all of its tensors, of unknown cost"
"""The assumption about a step that launches some."""
_KERNELS = (
    ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime.autotuner", "Autotuner"),
    ("triton.runtime.autotuner", "Heuristics"),
)
"""Classes of objects that a program launches: kernels, and their choices of settings."""


_LIBRARY = torch.library.Library("triton", "FRAGMENT")
_LIBRARY.define("launch(Tensor(a!)[] tensors, str kernel) -> ()")
_LIBRARY.impl("launch", lambda tensors, kernel: None, "CompositeExplicitAutograd")


@contextlib.contextmanager
def recorded_launches(note: Callable[[str], None]) -> Iterator[None]:
    """Record the launches of Triton kernels while active, if Triton is installed; ``note`` receives the assumption."""
    with contextlib.ExitStack() as stack:
        for module, kind in _KERNELS:
            with contextlib.suppress(ImportError, AttributeError):
                stack.enter_context(replaced(getattr(importlib.import_module(module), kind), "run", _launch(note)))
        yield


def _launch(note: Callable[[str], None]) -> Callable[..., None]:
    def run(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        del grid
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if warmup or not tensors:
            return
        note(NOTE)
        with torch.no_grad():
            torch.ops.triton.launch(tensors, _name(kernel))

    return run


def _name(kernel: Any) -> str:
    """The name of the function behind a kernel, below all that chooses its settings."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", "kernel"))
