"""Workloads whose steps are divided among processes, and the same steps in one process in the documented order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn

BATCH, WIDTH, VOCAB = 8, 8, 24


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


def drawn(own_generator: bool = False, dropout: float = 0.0) -> Callable[[], torch.Tensor]:
    """A step that draws the rows of a data set which are its batch, and its targets in place."""
    model, optimizer, _, _ = parts()
    data, generator = torch.randn(3 * BATCH, WIDTH), torch.Generator() if own_generator else None

    def step() -> torch.Tensor:
        x = data[torch.randint(len(data), (BATCH,), generator=generator)]
        target = torch.empty(BATCH, WIDTH).normal_()
        loss = loss_of(model, nn.functional.dropout(x, dropout), target, False)
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


class Tied(nn.Module):
    """A table that the first and the last module use; ``shared`` False: the last has an equal one of its own."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        if shared:
            self.head.weight = self.tokens.weight
        else:
            self.head.weight.data.copy_(self.tokens.weight.data)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def tied_parts(shared: bool = True) -> tuple[Tied, torch.optim.Optimizer, torch.Tensor]:
    """A model with a tied table in float64, its optimizer and its inputs."""
    model = Tied(shared).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randint(0, VOCAB, (BATCH,))


def tied() -> Callable[[], torch.Tensor]:
    """A step of a model with a tied table."""
    model, optimizer, ids = tied_parts()

    def step() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(ids), ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def parts() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    blocks = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH)) for _ in range(4))
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def loss_of(model: nn.Module, x: torch.Tensor, target: torch.Tensor, mean: bool) -> torch.Tensor:
    found: torch.Tensor = (model(x) - target).square().mean() if mean else nn.functional.mse_loss(model(x), target)
    return found


def tied_in_order(steps: int, data: int, micro_batches: int) -> list[list[str]]:
    """As ``in_order`` for the model with a tied table: what the first and what the last module add to its gradient is
    averaged over micro-batches and replicas each, then both are added."""
    torch.manual_seed(0)
    model, optimizer, ids = tied_parts(shared=False)
    found = []
    for step in range(steps + 1):
        whole, pieces = (1, 1) if step == 0 else (data, micro_batches)
        losses, gradients = [], list[list[torch.Tensor]]()
        for replica in ids.chunk(whole):
            sums: list[torch.Tensor] = []
            for part in replica.chunk(pieces):
                loss = nn.functional.cross_entropy(model(part), part)
                own = list(torch.autograd.grad(loss, list(model.parameters())))
                losses.append(float(loss.detach()).hex())
                sums = own if not sums else [a + b for a, b in zip(sums, own, strict=True)]
            gradients.append([each / pieces for each in sums])
        for parameter, *each in zip(model.parameters(), *gradients, strict=True):
            parameter.grad = sum(each[1:], each[0]) / whole
        table, head = model.tokens.weight, model.head.weight
        assert table.grad is not None
        assert head.grad is not None
        both = table.grad + head.grad
        table.grad, head.grad = both, both.clone()
        optimizer.step()
        found.append(losses)
    return found[1:]


def tied_again(steps: int, passes: int, *, apart: bool) -> list[list[str]]:
    """For each step after the first the losses of ``passes`` over the same inputs, with gradients summed up. What the
    first and what the last module add to that of the table is summed ``apart``, or as autograd does."""
    torch.manual_seed(0)
    model, optimizer, ids = tied_parts(shared=not apart)
    found = []
    for step in range(steps + 1):
        losses = []
        for _ in range(passes if step else 1):
            loss = nn.functional.cross_entropy(model(ids), ids)
            loss.backward()
            losses.append(float(loss.detach()).hex())
        if apart:
            both = model.head.weight.grad + model.tokens.weight.grad  # type: ignore[operator]  # both have one
            model.tokens.weight.grad, model.head.weight.grad = both, both.clone()
        optimizer.step()
        optimizer.zero_grad()
        found.append(losses)
    return found[1:]


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
