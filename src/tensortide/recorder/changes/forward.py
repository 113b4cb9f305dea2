"""Changes of the forward pass: mixed precision, recomputation, and saved tensors on the host."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tensortide.recorder.changes import Autocast, Checkpointed, NotApplicable, SavedOnHost
from tensortide.recorder.found import Found
from tensortide.recorder.surroundings import replaced

Step = Callable[[], Any]


def modules_named(found: Found, paths: Iterable[str]) -> list[torch.nn.Module]:
    """The modules at ``paths``. Raises NotApplicable if there is none at one of them."""
    known = {
        path: module for prefix, root in found.roots().items() for path, module in root.named_modules(prefix=prefix)
    }
    if missing := [path for path in paths if path not in known]:
        raise NotApplicable(f"the step has no module {missing[0]}")
    return [known[path] for path in paths]


def _parameters(found: Found) -> Iterator[torch.nn.Parameter]:
    for root in found.roots().values():
        yield from root.parameters()


class _Region:
    """Autocast that ends when a backward pass begins, and begins again after it."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self._make = functools.partial(torch.autocast, device, dtype=dtype)
        self._open: contextlib.ExitStack | None = None

    def run(self, step: Step) -> Any:
        """Run ``step`` in it."""
        self._enter()
        try:
            return step()
        finally:
            self._leave()

    def outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which is not to run in it."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            was_open = self._open is not None
            self._leave()
            try:
                return function(*args, **kwargs)
            finally:
                if was_open:
                    self._enter()

        return run

    def _enter(self) -> None:
        self._open = contextlib.ExitStack()
        self._open.enter_context(self._make())

    def _leave(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _turned_on(device: str, dtype: torch.dtype) -> contextlib.AbstractContextManager[None]:
    """The step's own autocast for ``device``, where it is off, is on while active: it is the switch of the step. One
    that the forward of a module enters stays off: it keeps a part in float32."""
    enter = torch.autocast.__enter__

    def entered(own: Any) -> Any:
        if own.device != device or own._enabled or _in_module(sys._getframe(1)):
            return enter(own)
        before = own._enabled, own.fast_dtype
        own._enabled, own.fast_dtype = True, dtype
        try:
            return enter(own)
        finally:
            own._enabled, own.fast_dtype = before

    return replaced(torch.autocast, "__enter__", entered)


def _in_module(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != torch.nn.modules.module.__file__:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def autocast(change: Autocast, step: Step, found: Found) -> Iterator[Step]:
    """Run what is outside of backward passes under autocast. Raises NotApplicable for a model that is not in fp32."""
    dtypes = {parameter.dtype for parameter in _parameters(found)}
    if torch.float32 not in dtypes:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)) or "no"
        raise NotApplicable(f"the model has {names} parameters, none in float32")
    device = next(parameter.device.type for parameter in _parameters(found))
    dtype = getattr(torch, change.dtype)
    region = _Region(device, dtype)
    with (
        _turned_on(device, dtype),
        replaced(torch.autograd, "backward", region.outside(torch.autograd.backward)),
        replaced(torch.autograd, "grad", region.outside(torch.autograd.grad)),
    ):
        yield functools.partial(region.run, step)


@contextlib.contextmanager
def _wrapped(
    modules: Iterable[torch.nn.Module], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace the forward of each of ``modules`` by what ``wrap`` makes of it, while active."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(replaced(module, "forward", wrap(module.forward)))
        yield


@contextlib.contextmanager
def checkpointed(change: Checkpointed, step: Step, found: Found) -> Iterator[Step]:
    """Recompute modules in the backward pass."""
    with _wrapped(
        modules_named(found, change.modules),
        lambda forward: functools.partial(checkpoint, forward, use_reentrant=False),
    ):
        yield step


def _saving(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return forward(*args, **kwargs)

    return run


@contextlib.contextmanager
def saved_on_host(change: SavedOnHost, step: Step, found: Found) -> Iterator[Step]:
    """Keep what modules save on the host. Raises NotApplicable for a step that runs there."""
    if all(parameter.device.type == "cpu" for parameter in _parameters(found)):
        raise NotApplicable("the step runs on the CPU, whose memory is the host's")
    with _wrapped(modules_named(found, change.modules), _saving):
        yield step
