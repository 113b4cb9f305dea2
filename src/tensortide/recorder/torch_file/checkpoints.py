"""Part of written files: modules under ``torch.utils.checkpoint``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tensortide.recorder.torch_file.applied import Applied

CHECKPOINTS: dict[str, tuple[bool, tuple[str, ...]]] = {}

# -- copied into files --


class Aside:
    """Recomputation updates copies of ``buffers``: running statistics are updated once in a step, not twice."""

    def __init__(self, buffers: list[tuple[torch.nn.Module, str]], within: Any) -> None:
        self.buffers, self.within = buffers, within
        self.kept: list[torch.Tensor] = []

    def __enter__(self) -> None:
        for module, name in self.buffers:
            self.kept.append(getattr(module, name))
            module._buffers[name] = self.kept[-1].clone()
        self.within.__enter__()

    def __exit__(self, *error: Any) -> Any:
        for (module, name), buffer in zip(self.buffers, self.kept, strict=True):
            module._buffers[name] = buffer
        self.kept.clear()
        return self.within.__exit__(*error)


def checkpointed(
    forward: Callable[..., Any], random: bool, buffers: list[tuple[torch.nn.Module, str]], contexts: Any
) -> Callable[..., Any]:
    """``forward``, recomputed in the backward pass; ``random``: it draws random numbers."""

    def both() -> tuple[Any, Any]:
        first, again = contexts() if contexts else (contextlib.nullcontext(), contextlib.nullcontext())
        return first, Aside(buffers, again)

    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)

        def call(*given: Any) -> Any:
            return forward(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))

        given = (*args, *kwargs.values())
        return checkpoint(call, *given, use_reentrant=False, preserve_rng_state=random, context_fn=both)

    return run


def checkpoint_modules(model: torch.nn.Module, prefix: str, applied: Applied, policies: dict[str, Any]) -> None:
    """Checkpoint the modules of ``model`` that the table names."""
    for path, (random, updated) in CHECKPOINTS.items():
        if f"{path}.".startswith(prefix) or not prefix:
            module = model.get_submodule(path[len(prefix) :])
            places = [name[len(prefix) :].rpartition(".") for name in updated]
            buffers = [(model.get_submodule(owner), name) for owner, _, name in places]
            applied.replace(module, checkpointed(module.forward, random, buffers, policies.get(path)))
