"""Revisions of small real models: what a change of code does to a step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tensortide.graph import Graph, unrolled
from tensortide.measures.differences.side import Side
from tensortide.measures.differences.step import StepDifference
from tensortide.recorder import capture


class Mlp(nn.Module):
    """Two linear layers, four times as wide inside."""

    def __init__(self, hidden: int, wide: int = 4) -> None:
        super().__init__()
        self.fc1 = nn.Linear(hidden, wide * hidden)
        self.fc2 = nn.Linear(wide * hidden, hidden)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc2(torch.relu(self.fc1(x)))


class Block(nn.Module):
    """A norm and a feed-forward part, added."""

    def __init__(self, hidden: int, wide: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.mlp = Mlp(hidden, wide)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.mlp(self.mix(self.norm(x)))


class Tower(nn.Module):
    """Blocks between an embedding and a head."""

    def __init__(self, blocks: int, hidden: int, name: str, doubled: Collection[int], checkpointed: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, hidden)
        self.list = name
        self.add_module(name, nn.ModuleList(Block(hidden, 8 if i in doubled else 4) for i in range(blocks)))
        self.head = nn.Linear(hidden, 50)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> Any:
        x = self.embed(x)
        for block in getattr(self, self.list):
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


class Wrapper(nn.Module):
    """A model inside another."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)


def stack(*hidden: int) -> Graph:
    """One training step of two-layer blocks with so many units inside."""
    model = nn.Module()
    model.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(32, n), nn.ReLU(), nn.Linear(n, 32)) for n in hidden))
    return capture(lambda: model.blocks(torch.randn(8, 32)).sum().backward(), name="stack")


def adapted(name: str, layer: nn.Module, x: torch.Tensor) -> Graph:
    """One training step of a layer called ``name`` with Adam, which costs more than the layer."""
    model = nn.Module()
    model.add_module(name, layer)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        getattr(model, name)(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return capture(step, name=name)


def tower(
    blocks: int = 4,
    hidden: int = 32,
    name: str = "blocks",
    doubled: int = -1,
    also: int = -1,
    checkpointed: bool = False,
    wrapped: bool = False,
    dtype: str = "float32",
    batch: int = 8,
) -> Callable[[], torch.Tensor]:
    """One training step of a Tower."""
    inner = Tower(blocks, hidden, name, (doubled, also), checkpointed).to(getattr(torch, dtype))
    model: nn.Module = Wrapper(inner) if wrapped else inner
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    tokens = torch.randint(0, 50, (batch, 16))

    def step() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def side(**settings: Any) -> Side:
    """The Tower as one side of a comparison."""
    return _side(tuple(sorted(settings.items())))


@cache
def _side(settings: tuple[tuple[str, Any], ...]) -> Side:
    graph = unrolled(capture(tower, hyperparameters=dict(settings), name="tower"))
    return Side("tower", graph)


def difference(a: dict[str, Any], b: dict[str, Any]) -> StepDifference:
    """The difference of two Towers."""
    return StepDifference(side(**a), side(**b))
