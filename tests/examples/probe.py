"""Looking into a step: its models and parameters, and the ops that it dispatches."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Dispatched = tuple[str, tuple[tuple[int, ...], ...]]
"""An op and the shapes of its tensor arguments."""


def models(step: Callable[[], Tensor]) -> list[nn.Module]:
    """The modules that a step closes over."""
    inner = inspect.getclosurevars(inspect.unwrap(step)).nonlocals
    direct = [value for value in inner.values() if isinstance(value, nn.Module)]
    nested = [module for value in inner.values() if inspect.isfunction(value) for module in models(value)]
    return direct + nested


def parameters(step: Callable[[], Tensor]) -> dict[str, nn.Parameter]:
    """Each parameter of a step once, by name."""
    return dict(nn.ModuleList(models(step)).named_parameters())


def parameter_count(step: Callable[[], Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters(step).values())


class Recorder(TorchDispatchMode):
    """Writes down the ops that are dispatched, without those that fake tensors add for themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Dispatched] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "prim":
            self.ops.append((str(func), tuple(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor))))
        return func(*args, **(kwargs or {}))
