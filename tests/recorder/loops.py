"""Training loops of a program that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

PASSES = 4


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))


def batches(count: int = 8, size: int = 16) -> DataLoader[Any]:
    data = TensorDataset(torch.randn(count * size, 12), torch.randint(0, 5, (count * size,)))
    return DataLoader(data, batch_size=size)


Loop = Callable[[], Callable[[], Any]]
"""A function that makes a model and data, and returns the body of its training loop."""


def classifier() -> Callable[[], Any]:
    model, loader = net(), batches()
    update = torch.optim.AdamW(model.parameters())
    data = iter(loader)

    def step() -> None:
        x, labels = next(data)
        update.zero_grad()
        loss = cross_entropy(model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()

    return step


def accumulation() -> Callable[[], Any]:
    model, (x, labels) = net(), next(iter(batches()))
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        update.zero_grad()
        for _ in range(PASSES):
            cross_entropy(model(x), labels).backward()
        update.step()

    return step


def gan() -> Callable[[], Any]:
    maker, critic = nn.Linear(4, 12), net()
    ours, theirs = (torch.optim.Adam(m.parameters(), lr=1e-3) for m in (maker, critic))
    real, noise, labels = torch.randn(16, 12), torch.randn(16, 4), torch.zeros(16, dtype=torch.long)

    def step() -> None:
        theirs.zero_grad()
        made = maker(noise)
        (cross_entropy(critic(real), labels) - cross_entropy(critic(made.detach()), labels)).backward()
        theirs.step()
        ours.zero_grad()
        cross_entropy(critic(made), labels).backward()
        ours.step()

    return step


def closure() -> Callable[[], Any]:
    model, x, y = nn.Linear(12, 1), torch.randn(16, 12), torch.randn(16, 1)
    update = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def once() -> Any:
        update.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        return loss

    def step() -> None:
        update.step(once)

    return step


def autocast() -> Callable[[], Any]:
    model, (x, labels) = net(), next(iter(batches()))
    update = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)

    def step() -> None:
        update.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()

    return step
