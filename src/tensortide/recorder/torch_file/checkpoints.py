"""Part of written files: modules under ``torch.utils.checkpoint``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tensortide.recorder.torch_file.applied import Applied

CHECKPOINTS: dict[str, tuple[bool, tuple[str, ...], tuple[str, ...]]] = {}

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


class Rows:
    """The forward of an ``nn.Sequential`` of which some rows of modules run as one."""

    def __init__(self, model: torch.nn.Module, path: str) -> None:
        self.modules = model.get_submodule(path)._modules
        self.runs: dict[str, tuple[str, Callable[..., Any]]] = {}
        if type(model.get_submodule(path)).forward is not torch.nn.Sequential.forward:
            raise TypeError(f"{path or 'the model'} is not the torch.nn.Sequential for which this file was written")

    def row(self, first: str, last: str) -> Callable[..., Any]:
        """The forward pass of the modules from ``first`` to ``last``."""
        names = [*self.modules]
        row = names[names.index(first) : names.index(last) + 1]

        def run(value: Any) -> Any:
            for name in row:
                value = self.modules[name](value)  # type: ignore[misc]
            return value

        return run

    def forward(self, value: Any) -> Any:
        """Run the rows, and the modules that are in none."""
        names = iter(self.modules)
        for name in names:
            last, run = self.runs.get(name, (name, self.modules[name]))
            value = run(value)  # type: ignore[misc]
            within = name
            while within != last:
                within = next(names)
        return value


def checkpoint_modules(model: torch.nn.Module, prefix: str, applied: Applied, policies: dict[str, Any]) -> None:
    """Checkpoint the modules of ``model`` that the table names."""
    sequential: dict[str, Rows] = {}
    for path, (random, updated, ends) in CHECKPOINTS.items():
        if f"{path}.".startswith(prefix) or not prefix:
            places = [name[len(prefix) :].rpartition(".") for name in updated]
            buffers = [(model.get_submodule(owner), name) for owner, _, name in places]
            if ends:
                owner, _, first = ends[0][len(prefix) :].rpartition(".")
                last = ends[1].rpartition(".")[2]
                rows = sequential.setdefault(owner, Rows(model, owner))
                rows.runs[first] = last, checkpointed(rows.row(first, last), random, buffers, policies.get(path))
            else:
                module = model.get_submodule(path[len(prefix) :])
                applied.replace(module, checkpointed(module.forward, random, buffers, policies.get(path)))
    for owner, rows in sequential.items():
        applied.replace(model.get_submodule(owner), rows.forward)
