"""Training steps as in a tutorial, and what of their graphs is compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tensortide import timeline
from tensortide.graph import Graph

Step = Callable[[], Any]
Workload = Callable[..., Step]


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def trained(
    model: nn.Module,
    loss: Callable[[], torch.Tensor],
    optimizer: Any = None,
    after: Callable[[torch.Tensor], Any] = lambda loss: None,
) -> Step:
    """A training step of ``model``, which does ``after`` between backward and the optimizer."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        after(value)
        optimizer.step()
        return value.detach()

    return step


def ops(graph: Graph) -> list[object]:
    """Name and shapes of every op."""
    return [(op.name, [t.shape for t in op.inputs], [t.shape for t in op.outputs]) for op in graph]


def storages(graph: Graph) -> list[tuple[str, str, int, str]]:
    """Birth, death, bytes and role of every storage, in any order."""
    return sorted((repr(s.birth), repr(s.death), s.nbytes, s.role.value) for s in graph.storages)


def assert_same_but_views(fake: Graph, real: Graph) -> None:
    """Writing through views of what needs a gradient dispatches other view ops on fake tensors: all else is equal."""

    def shown(graph: Graph) -> list[Any]:
        others = (op for op in graph if "view" not in op.call.tags and "strided" not in op.name)
        return [(op.name, op.phase, [t.shape for t in op.inputs], [t.shape for t in op.outputs]) for op in others]

    assert shown(fake) == shown(real)
    stored = [sorted((s.nbytes, s.role.value, s.device) for s in graph.storages) for graph in (fake, real)]
    assert stored[0] == stored[1]
    assert timeline(fake).peak_bytes == timeline(real).peak_bytes
