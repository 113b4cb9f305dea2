"""Graphs of a live model: its forward in evaluation mode, and a forward and backward in training mode."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from tensortide.errors import Unavailable
from tensortide.graph.model import Graph
from tensortide.profile.evaluation.calls import Call, plainly
from tensortide.profile.evaluation.modes import home_of, restored
from tensortide.profile.evaluation.nested import placed, tensors
from tensortide.recorder.building import Named, captured
from tensortide.recorder.cuda_mode import pretended_gpu


def forward_graph(model: torch.nn.Module, arguments: Any, *, device: str | None, call: Call | None) -> Graph:
    """Capture the forward in evaluation mode, without gradients."""
    arguments, calling = placed(arguments, home_of(model)), call or plainly

    def step() -> Any:
        with torch.no_grad():
            return calling(model, arguments)

    with restored(model):
        for module in model.modules():
            module.training = False
        return _captured(model, step, device)


def training_graph(model: torch.nn.Module, arguments: Any, *, device: str | None, call: Call | None) -> Graph:
    """Capture a forward in training mode and the backward of the sum of its floating-point outputs. A model in
    training mode keeps the modes of its modules, some of which may be frozen."""
    arguments, calling = placed(arguments, home_of(model)), call or plainly

    def step() -> Any:
        if not model.training:
            model.train()
        with torch.enable_grad():
            total = summed(calling(model, arguments))  # outputs are released before the backward
            total.backward()
        model.zero_grad()
        return total

    with restored(model):
        return _captured(model, step, device)


def summed(output: Any) -> torch.Tensor:
    """Add up the floating-point tensors in an output that a gradient flows from. Raises Unavailable for none."""
    sums = [tensor.sum() for tensor in tensors(output) if tensor.is_floating_point() and tensor.requires_grad]
    if not sums:
        raise Unavailable("no real floating-point output of the model takes gradients: there is no backward")
    return functools.reduce(operator.add, sums)


def _captured(model: torch.nn.Module, step: Callable[[], Any], device: str | None) -> Graph:
    named, gpu = Named(step, type(model).__name__, is_step=True), pretended_gpu(device, None)
    return captured(named, {}, None, None, gpu=gpu, first_step=False, progress=lambda message: None)
