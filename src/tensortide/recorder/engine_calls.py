"""Backward passes of programs that call the autograd engine themselves, as pipelines do to release outputs early."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import ENGINE, run_backward


def _run_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    return run_backward(tensors, *args, **kwargs)


class _Engine:
    """The autograd engine, entered through PyTorch's ``run_backward``, whose frame the recorder looks for."""

    @property
    def run_backward(self) -> Callable[..., Any]:
        """The method of the engine for PyTorch's function, and for other callers that function."""
        return ENGINE.run_backward if sys._getframe(1).f_code is run_backward.__code__ else _run_backward

    def __getattr__(self, name: str) -> Any:
        """Return the attribute ``name`` of the engine."""
        return getattr(ENGINE, name)


def engine_called_by_pytorch() -> contextlib.AbstractContextManager[None]:
    """Have every backward pass begin in PyTorch's function while active."""
    return replaced(torch.autograd.Variable, "_execution_engine", _Engine())
