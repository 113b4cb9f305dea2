"""Part of written files: modules under ``torch.utils.checkpoint``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tensortide.recorder.torch_file.applied import Applied

CHECKPOINTS: dict[str, tuple[bool, tuple[str, ...], tuple[str, ...]]] = {}

# -- copied into files --

CALL = "_compiled_call_impl"
"""What runs instead of the call of a module once it is compiled."""


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


class Checkpointed:
    """``forward``, recomputed in the backward pass; ``random``: it draws random numbers.

    An object, as is ``Row``: a deep copy of the model has its own, which runs the modules of the copy.
    """

    def __init__(
        self, forward: Callable[..., Any], random: bool, buffers: list[tuple[torch.nn.Module, str]], contexts: Any
    ) -> None:
        self.forward, self.random, self.buffers, self.contexts = forward, random, buffers, contexts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        count, names = len(args), tuple(kwargs)  # inside another checkpoint nothing but numbers and names may stay

        def call(*given: Any) -> Any:
            return self.forward(*given[:count], **dict(zip(names, given[count:], strict=True)))

        given = (*args, *kwargs.values())
        how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": self.random}
        buffers, contexts = self.buffers, self.contexts

        def both() -> tuple[Any, Any]:  # no method: torch.compile takes functions alone
            first, again = contexts() if contexts else (contextlib.nullcontext(), contextlib.nullcontext())
            return first, Aside(buffers, again)

        if buffers or contexts:
            how["context_fn"] = both
        return checkpoint(call, *given, **how)


class Row:
    """Modules of which each runs on the result of the one before: the call of the first runs all by ``run``, those of
    the others give back what they are given."""

    def __init__(self, modules: list[torch.nn.Module]) -> None:
        self.modules = modules
        self.calls: list[Callable[..., Any]] = [vars(module).get(CALL) or module._call_impl for module in modules]
        self.run: Callable[..., Any] = self.plain
        self.waiting: list[torch.nn.Module] = []
        self.result: Any = None

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        """Run all of them."""
        value = self.calls[0](*args, **kwargs)
        for call in self.calls[1:]:
            value = call(value)
        return value

    def first(self, *args: Any, **kwargs: Any) -> Any:
        """Run all of them, where gradients are wanted."""
        if not torch.is_grad_enabled():
            return self.calls[0](*args, **kwargs)
        self.check(not self.waiting)
        self.result = self.run(*args, **kwargs)
        self.waiting = self.modules[1:]
        return self.result

    def later(self, module: torch.nn.Module, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``module`` by its ``own`` call, unless it has run."""
        if not self.waiting or self.waiting[0] is not module:
            return own(*args, **kwargs)
        self.check(len(args) == 1 and not kwargs and args[0] is self.result)
        del self.waiting[0]
        self.result = args[0] if self.waiting else None
        return args[0]

    def check(self, follows: bool) -> None:
        """Raise TypeError unless the modules are called as they were."""
        if not follows:
            self.waiting, self.result = [], None
            names = ", ".join(type(module).__name__ for module in self.modules)
            raise TypeError(f"{names} do not run one after the other, as they did when this file was written")


def checkpoint_modules(model: torch.nn.Module, prefix: str, applied: Applied, policies: dict[str, Any]) -> None:
    """Checkpoint the modules of ``model`` that the table names, those inside others first."""
    for path, (random, updated, row) in CHECKPOINTS.items():
        if f"{path}.".startswith(prefix) or not prefix:
            places = [name[len(prefix) :].rpartition(".") for name in updated]
            buffers = [(model.get_submodule(owner), name) for owner, _, name in places]
            modules = [model.get_submodule(name[len(prefix) :]) for name in row or (path,)]
            if not row:
                forward = Checkpointed(modules[0].forward, random, buffers, policies.get(path))
                applied.replace(modules[0], "forward", forward)
                continue
            one = Row(modules)
            one.run = Checkpointed(one.plain, random, buffers, policies.get(path))
            calls: dict[torch.nn.Module, Callable[..., Any]] = {modules[0]: one.first}
            for module, own in zip(modules, one.calls, strict=True):
                calls.setdefault(module, functools.partial(one.later, module, own))
            for module, call in calls.items():
                applied.replace(module, CALL if vars(module).get(CALL) else "_call_impl", call)
