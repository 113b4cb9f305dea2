"""Steps that checks are tried on: small, of many kinds, each captured once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensortide
from tensortide.graph import Graph
from tests.examples.tiny import TINY


@functools.cache
def tiny(name: str) -> Graph:
    """A built-in workload at settings that make it tiny."""
    return tensortide.capture(name, hyperparameters=TINY[name])


def blocks(width: int = 8, depth: int = 3, batch: int = 2, second: int = 8) -> Callable[[], Any]:
    """A stack of two-layer blocks whose hidden layer has ``width`` units, in the block 1 ``second``."""
    hidden = [second if index == 1 else width for index in range(depth)]
    model = nn.Sequential()
    model.add_module("blocks", nn.Sequential(*(nn.Sequential(nn.Linear(8, h), nn.Linear(h, 8)) for h in hidden)))
    model.add_module("head", nn.Linear(8, 3))

    def step() -> None:
        model(torch.randn(batch, 8)).sum().backward()

    return step


def checkpointed() -> Callable[[], Any]:
    """Two layers, of which the first recomputes its forward."""
    first, second = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2)
    model = nn.ModuleDict({"first": first, "second": second})

    def step() -> None:
        hidden = checkpoint(model["first"], torch.randn(2, 8, requires_grad=True), use_reentrant=False)
        model["second"](hidden).sum().backward()

    return step


@torch.library.custom_op("checks::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    """An op that no rule prices."""
    return x.sin()


@mix.register_fake
def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def unpriced() -> Callable[[], Any]:
    """A step with an op that no rule prices, in a model of one layer."""
    model = torch.nn.Linear(8, 8)
    return lambda: mix(model(torch.randn(2, 8)))


@functools.cache
def captured(workload: Callable[..., Any], **settings: int) -> Graph:
    """Capture a workload of this file."""
    return tensortide.capture(workload, hyperparameters=settings)
