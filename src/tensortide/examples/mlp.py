"""A perceptron with hidden layers: the smallest workload, for first steps and for tests."""

from __future__ import annotations

import torch
from torch import nn

from tensortide.examples.training import Parts, classifier, trained

__all__ = ["mlp"]


@trained(lr=0.01)
def mlp(
    batch: int = 64,
    inputs: int = 784,
    hidden: int = 1024,
    layers: int = 3,
    classes: int = 10,
) -> Parts:
    """Perceptron with ReLU between its layers: the smallest workload."""
    model = nn.Sequential()
    width = inputs
    for _ in range(layers):
        model.extend([nn.Linear(width, hidden), nn.ReLU()])
        width = hidden
    model.append(nn.Linear(width, classes))
    return classifier(model, torch.randn(batch, inputs), classes)
