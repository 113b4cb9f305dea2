"""A training script's own module: its model, optimizer and step are globals that others use as attributes."""

from __future__ import annotations

import torch
from torch import nn

model = nn.Linear(8, 4)
optimizer = torch.optim.Adam(model.parameters())
unused = nn.Linear(3, 3)
x = torch.randn(4, 8)


def _loss() -> torch.Tensor:
    loss: torch.Tensor = model(x).sum()
    return loss


def step() -> torch.Tensor:
    loss = _loss()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
