"""Convolutional networks without skips: Krizhevsky (one column), 2014; Simonyan and Zisserman, 2014."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, training_step
from tensortide.workload import legal

__all__ = ["alexnet", "vgg"]

_VGG_STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class Classifier(nn.Module):
    """(B, 3, H, W) -> (B, classes): features, pooled to (channels, side, side), then three linear layers."""

    def __init__(self, features: nn.Sequential, channels: int, side: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(side)
        self.head = nn.Sequential(nn.Flatten())
        width = channels * side * side
        for _ in range(2):
            self.head.extend([nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5)])
            width = hidden
        self.head.append(nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pool(self.features(images)))
        return logits


def _step(model: nn.Module, batch: int, image: int, classes: int, optimizer: str, train: bool) -> Step:
    images = torch.randn(batch, 3, image, image)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [images], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.01, train=train)


@legal("image >= 63")
def alexnet(
    batch: int = 128,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    hidden: int = 4096,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """AlexNet in one column: five convolutions, three linear layers; 61 M parameters."""
    features = nn.Sequential()
    channels, pooled = 3, (0, 1, 4)
    shapes = ((1, 11, 4, 2), (3, 5, 1, 2), (6, 3, 1, 1), (4, 3, 1, 1), (4, 3, 1, 1))
    for index, (factor, kernel, stride, padding) in enumerate(shapes):
        features.append(nn.Conv2d(channels, factor * width, kernel, stride, padding))
        features.append(nn.ReLU(inplace=True))
        channels = factor * width
        if index in pooled:
            features.append(nn.MaxPool2d(3, stride=2))
    return _step(Classifier(features, channels, 6, hidden, classes), batch, image, classes, optimizer, train)


@legal("image >= 32", depth=tuple(_VGG_STAGES))
def vgg(
    batch: int = 32,
    depth: int = 16,
    norm: bool = False,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    hidden: int = 4096,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """VGG-11, 13, 16 or 19: stacks of 3x3 convolutions; 138 M parameters by default."""
    if depth not in _VGG_STAGES:
        raise ValueError(f"no VGG of depth {depth}; choose one of: {', '.join(map(str, _VGG_STAGES))}")
    features = nn.Sequential()
    channels = 3
    for stage, convs in enumerate(_VGG_STAGES[depth]):
        for _ in range(convs):
            outputs = width << min(stage, 3)
            features.append(nn.Conv2d(channels, outputs, 3, padding=1))
            if norm:
                features.append(nn.BatchNorm2d(outputs))
            features.append(nn.ReLU(inplace=True))
            channels = outputs
        features.append(nn.MaxPool2d(2))
    return _step(Classifier(features, channels, 7, hidden, classes), batch, image, classes, optimizer, train)
