"""Training steps of different kinds: shared modules, two optimizers, what is overwritten in place, mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.run.follow_steps import Build

Step = Callable[[], Any]


def two_players() -> Step:
    """A generator and a discriminator, each with an optimizer."""
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 32))
    judge = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2, inplace=True), nn.Linear(64, 64), nn.Tanh())
    makes, judges = (torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9) for model in (generator, judge))
    real = torch.randn(128, 32)

    def step() -> Any:
        fake = generator(torch.randn(128, 16))
        judges.zero_grad()
        loss = (functional.softplus(-judge(real)) + functional.softplus(judge(fake.detach()))).mean()
        loss.backward()
        judges.step()
        makes.zero_grad()
        functional.softplus(-judge(fake)).mean().backward()
        makes.step()
        return loss.detach()

    return step


def shared_blocks() -> Step:
    """Residual convolutions of one block, used three times, with activations in place."""
    first, block = nn.Conv2d(3, 16, 3, padding=1), nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16))

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = first(x)
        for _ in range(3):
            x = functional.relu(x + block(x), inplace=True)
        return x

    return _trained([first, block], forward, torch.randn(8, 3, 16, 16))


def inverted_bottlenecks() -> Step:
    """Blocks as those of MobileNet, in channels-last layout: ``relu6_`` overwrites what it keeps a copy of."""

    def block(c: int, h: int) -> nn.Module:
        wide = nn.Sequential(nn.Conv2d(c, h, 1), nn.BatchNorm2d(h), nn.ReLU6(inplace=True))
        return nn.Sequential(wide, nn.Conv2d(h, h, 3, padding=1, groups=h), nn.ReLU6(inplace=True), nn.Conv2d(h, c, 1))

    blocks = [block(16, 64).to(memory_format=torch.channels_last) for _ in range(3)]  # type: ignore[call-overload]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            x = x + block(x)
        return x

    return _trained(blocks, forward, torch.randn(4, 16, 16, 16).to(memory_format=torch.channels_last))


def tied_language_model() -> Step:
    """A transformer with dropout whose head is its embedding."""
    embedding = nn.Embedding(100, 32)
    layers = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True) for _ in range(2)])
    ids = torch.randint(0, 100, (4, 16))

    def forward(ids: torch.Tensor) -> torch.Tensor:
        x = embedding(ids)
        for layer in layers:
            x = layer(x)
        return functional.linear(x, embedding.weight)

    return _trained([embedding, layers], forward, ids)


def recurrent() -> Step:
    model = nn.GRU(32, 64, 2, batch_first=True)
    return _trained([model], lambda x: model(x)[0], torch.randn(16, 12, 32))


def experts() -> Step:
    """A mixture of experts, each of which adds to a sum in place."""
    gate, many = nn.Linear(32, 4), nn.ModuleList([nn.Sequential(nn.Linear(32, 64), nn.GELU()) for _ in range(4)])

    def forward(x: torch.Tensor) -> torch.Tensor:
        weights = gate(x).softmax(-1)
        total = torch.zeros(len(x), 64)
        for number, expert in enumerate(many):
            total += expert(x) * weights[:, number : number + 1]
        return total

    return _trained([gate, many], forward, torch.randn(128, 32))


def mixed_accumulated() -> Step:
    """Three backward passes for an update, in bfloat16."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
    model = nn.Sequential(*layers)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found: torch.Tensor = model(x)
        return found.float()

    return _trained([model], forward, torch.randn(128, 64), passes=3)


def checkpointed() -> Step:
    """Two blocks under a checkpoint of the user's own, and two without."""
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(4)])

    def forward(x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(blocks):
            x = x + (checkpoint(block, x, use_reentrant=False) if number < 2 else block(x))
        return x

    return _trained(blocks, forward, torch.randn(256, 64))


KINDS: tuple[Build, ...] = (
    *(two_players, shared_blocks, inverted_bottlenecks, tied_language_model),
    *(recurrent, experts, mixed_accumulated, checkpointed),
)


def _trained(modules: Any, forward: Callable[..., torch.Tensor], x: torch.Tensor, passes: int = 1) -> Step:
    update = torch.optim.AdamW(nn.ModuleList(modules).parameters(), lr=1e-3)

    def step() -> Any:
        losses = []
        for _ in range(passes):
            loss = forward(x).square().mean()
            loss.backward()
            losses.append(loss.detach())
        update.step()
        update.zero_grad()
        return losses

    return step
