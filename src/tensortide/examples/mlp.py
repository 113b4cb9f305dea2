"""A perceptron with hidden layers: the smallest workload, for first steps and for tests."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tensortide.examples.training import Step, training_step

__all__ = ["mlp"]


def mlp(
    batch: int = 64,
    inputs: int = 784,
    hidden: int = 1024,
    layers: int = 3,
    classes: int = 10,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Perceptron with ReLU between its layers: the smallest workload."""
    model = nn.Sequential()
    width = inputs
    for _ in range(layers):
        model.extend([nn.Linear(width, hidden), nn.ReLU()])
        width = hidden
    model.append(nn.Linear(width, classes))
    rows = torch.randn(batch, inputs)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [rows], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.01, train=train)
