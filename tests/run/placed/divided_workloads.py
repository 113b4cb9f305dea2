"""Workloads whose steps are divided among processes, and the same steps in one process in the documented order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn

BATCH, WIDTH = 8, 8


def layers(fail_at: int = -1, mean: bool = False) -> Callable[[], torch.Tensor]:
    """A step of four small layers; the step number ``fail_at`` fails; ``mean``: a loss whose mean autograd divides."""
    model, optimizer, x, target = parts()
    count = itertools.count()

    def step() -> torch.Tensor:
        if next(count) == fail_at:
            raise ValueError("the loss is no number")
        loss = loss_of(model, x, target, mean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def reads() -> Callable[[], float]:
    """A step that reads its loss."""
    model, optimizer, x, target = parts()

    def step() -> float:
        loss = loss_of(model, x, target, False)
        value = loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value

    return step


def parts() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    blocks = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH)) for _ in range(4))
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def loss_of(model: nn.Module, x: torch.Tensor, target: torch.Tensor, mean: bool) -> torch.Tensor:
    found: torch.Tensor = (model(x) - target).square().mean() if mean else nn.functional.mse_loss(model(x), target)
    return found


def in_order(steps: int, data: int, micro_batches: int, *, mean: bool = False, seed: int = 0) -> list[list[str]]:
    """For each step after the first the losses of all micro-batches, by replica, in one process: gradients are averaged
    over the micro-batches of a replica, then over replicas, both in ascending order."""
    torch.manual_seed(seed)
    model, optimizer, x, target = parts()
    found = []
    for step in range(steps + 1):
        whole = 1 if step == 0 else data
        pieces = 1 if step == 0 else micro_batches
        losses, gradients = [], list[list[torch.Tensor]]()
        for replica in zip(x.chunk(whole), target.chunk(whole), strict=True):
            sums: list[torch.Tensor] = []
            for own_x, own_target in zip(*(each.chunk(pieces) for each in replica), strict=True):
                loss = loss_of(model, own_x, own_target, mean)
                loss.backward()
                losses.append(float(loss.detach()).hex())
                own = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
                sums = own if not sums else [a + b for a, b in zip(sums, own, strict=True)]
                optimizer.zero_grad()
            gradients.append([each / pieces for each in sums])
        for parameter, *each in zip(model.parameters(), *gradients, strict=True):
            total = each[0]
            for other in each[1:]:
                total = total + other
            parameter.grad = total / whole
        optimizer.step()
        optimizer.zero_grad()
        found.append(losses)
    return found[1:]
