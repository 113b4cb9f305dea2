"""Part of written files: what they do to a model, and how it is undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

# -- copied into files --


class Applied:
    """What ``apply`` has done to a model; ``remove()`` undoes it."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()

    def replace(self, module: torch.nn.Module, name: str, function: Callable[..., Any]) -> None:
        """Let ``function`` be the method ``name`` of ``module``."""
        before = vars(module).get(name)
        setattr(module, name, function)
        if before is None:
            self.stack.callback(vars(module).pop, name)
        else:
            self.stack.callback(setattr, module, name, before)

    def follow(self, modules: dict[str, torch.nn.Module], running: list[str]) -> None:
        """Keep the names of ``modules`` whose forward is running in ``running``, the innermost last."""
        for name, module in modules.items():

            def enter(module: torch.nn.Module, args: Any, name: str = name) -> None:
                running.append(name)

            def leave(module: torch.nn.Module, args: Any, result: Any) -> None:
                running.pop()

            self.stack.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
            self.stack.callback(module.register_forward_hook(leave, always_call=True).remove)

    def remove(self) -> None:
        """Leave the model as it was."""
        self.stack.close()
