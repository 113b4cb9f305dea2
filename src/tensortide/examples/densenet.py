"""Densely connected networks: Huang et al., "Densely Connected Convolutional Networks", 2016."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, training_step
from tensortide.workload import legal

__all__ = ["densenet"]

_BLOCKS = {121: (6, 12, 24, 16), 161: (6, 12, 36, 24), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


def _norm_relu_conv(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight)
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv)


class DenseLayer(nn.Module):
    """(B, inputs, H, W) -> (B, growth, H, W): a 1x1 bottleneck of four times the growth, then 3x3."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.reduce = _norm_relu_conv(inputs, 4 * growth, 1)
        self.grow = _norm_relu_conv(4 * growth, growth, 3)

    def forward(self, features: list[Tensor]) -> Tensor:
        new: Tensor = self.grow(self.reduce(torch.cat(features, 1)))
        return new


class DenseBlock(nn.ModuleList):
    """(B, inputs, H, W) -> (B, inputs + layers * growth, H, W): each layer reads all features before it."""

    def __init__(self, inputs: int, layers: int, growth: int) -> None:
        super().__init__(DenseLayer(inputs + index * growth, growth) for index in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    """(B, 3, H, W) -> (B, classes)."""

    def __init__(self, blocks: tuple[int, ...], growth: int, stem: int, classes: int) -> None:
        super().__init__()
        conv = nn.Conv2d(3, stem, 7, stride=2, padding=3, bias=False)
        self.stem = nn.Sequential(conv, nn.BatchNorm2d(stem), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential()
        width = stem
        for index, layers in enumerate(blocks):
            if index:
                transition = _norm_relu_conv(width, width // 2, 1).append(nn.AvgPool2d(2))
                self.blocks.append(transition)
                width //= 2
            self.blocks.append(DenseBlock(width, layers, growth))
            width += layers * growth
        self.head = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.head(self.blocks(self.stem(images))))
        return logits


@legal("batch * floor((image + 3) / 32) >= 2", depth=tuple(_BLOCKS))
def densenet(
    batch: int = 32,
    depth: int = 121,
    growth: int = 32,
    stem: int = 64,
    image: int = 224,
    classes: int = 1000,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """DenseNet: every layer of a block reads all layers before it.

    Depths 121, 169 and 201, and 161 with ``growth=48 stem=96``.
    """
    if depth not in _BLOCKS:
        raise ValueError(f"no DenseNet of depth {depth}; choose one of: {', '.join(map(str, _BLOCKS))}")
    model = DenseNet(_BLOCKS[depth], growth, stem, classes)
    images = torch.randn(batch, 3, image, image)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [images], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.1, train=train)
