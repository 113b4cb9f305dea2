# mypy: disable-error-code="no-any-return, arg-type"
"""Losses, logging and control flow of ordinary training loops."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.recorder.steps import Step, mlp, trained


def clipped_gradients() -> Step:
    model, x = mlp(16, 32, 4), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> float:
        model(x).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        optimizer.zero_grad()
        return float(norm)

    return step


def scaled_gradients() -> Step:
    model, x = mlp(16, 32, 4), torch.randn(8, 16)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu")

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return scaler.get_scale()

    return step


def best_so_far() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    best: dict[str, Any] = {"loss": float("inf")}
    step = trained(model, lambda: model(x).pow(2).mean())

    def watched() -> None:
        loss = step().item()
        if loss < best["loss"]:
            best.update(loss=loss, state=copy.deepcopy(model.state_dict()))

    return watched


def plateau_scheduler() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    step = trained(model, lambda: model(x).pow(2).mean(), optimizer)
    return lambda: scheduler.step(step().item())


def accuracy_in_numpy() -> Step:
    model, x, y = mlp(16, 4), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def loss() -> torch.Tensor:
        scores = model(x)
        predicted = scores.argmax(-1).cpu().numpy()
        sys.stderr.write(f"{(predicted == y.numpy()).mean():.2f}"[:0])
        return F.cross_entropy(scores, y)

    return trained(model, loss)


def stochastic_depth() -> Step:
    layers, x = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)]), torch.randn(8, 16)

    def loss() -> torch.Tensor:
        h = x
        for layer in layers:
            if torch.rand(1).item() > 0.2:
                h = h + layer(h)
        return h.sum()

    return trained(layers, loss)


def ignored_labels() -> Step:
    model, x, y = mlp(16, 4), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(x), y, ignore_index=-100, reduction="sum") / (y != -100).sum().item()

    return trained(model, loss)


def averaged_weights() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    step = trained(model, lambda: model(x).sum())

    def both() -> None:
        step()
        averaged.update_parameters(model)

    return both


def gradient_penalty() -> Step:
    model, x = mlp(16, 1), torch.randn(8, 16, requires_grad=True)

    def loss() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (gradient.norm(dim=1) - 1).pow(2).mean()

    return trained(model, loss)


def per_sample_gradients() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    parameters = dict(model.named_parameters())

    def one(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    return lambda: torch.func.vmap(torch.func.grad(one), (None, 0))(parameters, x)


def triplets() -> Step:
    model, x, y = mlp(16, 8), torch.randn(12, 16), torch.arange(12) % 3

    def loss() -> torch.Tensor:
        e = F.normalize(model(x))
        same = y[:, None] == y[None]
        distance = torch.cdist(e, e)
        hardest = distance.masked_fill(~same, 0).max(1).values - distance.masked_fill(same, 9).min(1).values
        return F.relu(hardest + 0.2).mean()

    return trained(model, loss)


def hard_negatives() -> Step:
    model, x = mlp(16, 1), torch.randn(64, 16)

    def loss() -> torch.Tensor:
        losses = model(x)[:, 0].pow(2)
        return losses.topk(max(1, int(0.25 * losses.numel()))).values.mean()

    return trained(model, loss)


def shuffled_batches() -> Step:
    model, data = mlp(16, 4), torch.randn(64, 16)

    def step() -> None:
        for rows in torch.randperm(64).split(32):
            model(data[rows]).sum().backward()

    return step


def mixup() -> Step:
    model, x, y = mlp(16, 4), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def loss() -> torch.Tensor:
        share = torch.distributions.Beta(0.2, 0.2).sample().item()
        order = torch.randperm(8)
        out = model(share * x + (1 - share) * x[order])
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])

    return trained(model, loss)
