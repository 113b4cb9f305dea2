"""A model in evaluation mode on a device, and back: training flags, devices and random state as they were."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.errors import MetricError, Unavailable
from tensortide.profile.evaluation.calls import Call, plainly
from tensortide.profile.evaluation.nested import placed, tensors
from tensortide.recorder.surroundings import global_state, rewinder

_UNUSABLE = (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError, TypeError, ValueError)
"""Errors by which PyTorch refuses a device: one that it does not know, was not built for, or that is not here."""


def device_of(text: str) -> torch.device:
    """Find a device by its text. Raises MetricError if there is no such device, or none that computes."""
    try:
        found = torch.empty(0, device=torch.device(text)).device
    except _UNUSABLE as error:
        reason = str(error).strip().partition("\n")[0]
        raise MetricError(f"there is no device {text!r} here: {reason}") from None
    if found.type == "meta":
        raise MetricError("a model computes nothing on the device 'meta': name one that does, such as 'cpu'")
    return found


def tensors_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The parameters and buffers of a model."""
    yield from model.parameters()
    yield from model.buffers()


def home_of(model: torch.nn.Module) -> torch.device | None:
    """The device of a model: that of its first parameter or buffer; None if it has neither."""
    return next((tensor.device for tensor in tensors_of(model)), None)


@contextlib.contextmanager
def evaluating(model: torch.nn.Module, device: str | None) -> Iterator[Callable[[Any], Any]]:
    """Put the model into evaluation mode, without gradients, on a device (None: where it is).

    Yields the function that puts tensors in nested containers beside it. Modes, devices and random state are
    restored on exit. Training flags are set one by one: methods ``train`` and ``eval`` of a class of the user's may
    do more than that, which nothing could undo.

    Raises MetricError for a device that is not here.
    """
    home = home_of(model)
    target = home if device is None else device_of(device)
    if device is None and home is not None and home.type == "meta":
        raise MetricError(
            f"the {type(model).__name__} is on the device 'meta', where nothing is computed: name another"
        )
    with restored(model), torch.no_grad():
        for module in model.modules():
            module.training = False
        if device is not None and any(tensor.device != target for tensor in tensors_of(model)):
            model.to(target)
        yield functools.partial(placed, device=target)


@contextlib.contextmanager
def restored(model: torch.nn.Module) -> Iterator[None]:
    """Put training flags back on exit, and parameters, buffers and gradients to the storages that they had."""
    flags = [(module, module.training) for module in model.modules()]
    tables: list[Any] = [table for module, _ in flags for table in (module._parameters, module._buffers)]
    held = [(table, name, tensor) for table in tables for name, tensor in table.items() if tensor is not None]
    kept = [tensor for _, _, tensor in held]
    kept += [tensor.grad for tensor in kept if tensor.is_leaf and tensor.grad is not None]
    before = [(tensor, tensor.data) for tensor in kept]
    with global_state():
        try:
            yield
        finally:
            for module, flag in flags:
                module.training = flag
            for table, name, tensor in held:
                if name not in table or table[name] is not tensor:
                    table[name] = tensor
            for tensor, data in before:
                if (tensor.device, tensor.dtype) != (data.device, data.dtype):
                    tensor.data = data


@contextlib.contextmanager
def undisturbed(loader: object = None) -> Iterator[None]:
    """Restore the random generators of the process on exit, and those that a loader and its samplers have."""
    by_batch = getattr(loader, "batch_sampler", None)
    owners = (loader, getattr(loader, "sampler", None), by_batch, getattr(by_batch, "sampler", None))
    rewinders = [rewinder(getattr(owner, "generator", None)) for owner in owners]
    with global_state():
        try:
            yield
        finally:
            for rewind in filter(None, rewinders):
                rewind()


def layer_shapes(
    model: torch.nn.Module, arguments: Any, *, call: Call | None = None
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """List the shapes of the tensors that each module returns in its last call, in evaluation mode; sequences and lists
    of modules are none of their own. Raises Unavailable for a model on the device ``meta``."""
    home = home_of(model)
    if home is not None and home.type == "meta":
        raise Unavailable(
            "the model is on the device 'meta', where it is not called: what its layers return is not known"
        )
    found: dict[str, tuple[tuple[int, ...], ...]] = {}

    def hook(name: str) -> Callable[[Any, Any, Any], None]:
        def record(module: Any, inputs: Any, output: Any) -> None:
            del module, inputs
            found[name] = tuple(tuple(tensor.shape) for tensor in tensors(output))

        return record

    with contextlib.ExitStack() as stack:
        place = stack.enter_context(evaluating(model, None))
        for name, module in model.named_modules():
            if not isinstance(module, torch.nn.Sequential | torch.nn.ModuleList):
                stack.callback(module.register_forward_hook(hook(name)).remove)
        (call or plainly)(model, place(arguments))
    return found
