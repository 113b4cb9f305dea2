"""Convolutional networks: Krizhevsky (AlexNet in one column), 2014; Simonyan and Zisserman (VGG), 2014; Huang et al.,
"Densely Connected Convolutional Networks", 2016; Sandler et al., "MobileNetV2: Inverted Residuals and Linear
Bottlenecks", 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tensortide.examples.training import Parts, classifier, trained
from tensortide.workload import legal

__all__ = ["alexnet", "densenet", "mobilenet_v2", "vgg"]

_VGG_STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class Classifier(nn.Sequential):
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


@legal("image >= 63")
@trained(lr=0.01)
def alexnet(
    batch: int = 128,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    hidden: int = 4096,
) -> Parts:
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
    model = Classifier(features, channels, 6, hidden, classes)
    return classifier(model, torch.randn(batch, 3, image, image), classes)


@legal("image >= 32", depth=tuple(_VGG_STAGES))
@trained(lr=0.01)
def vgg(
    batch: int = 32,
    depth: int = 16,
    norm: bool = False,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    hidden: int = 4096,
) -> Parts:
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
    model = Classifier(features, channels, 7, hidden, classes)
    return classifier(model, torch.randn(batch, 3, image, image), classes)


_BLOCKS = {
    100: (16, 16, 16),
    121: (6, 12, 24, 16),
    161: (6, 12, 36, 24),
    169: (6, 12, 32, 32),
    201: (6, 12, 48, 32),
}


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
        return self.grow(self.reduce(torch.cat(features, 1)))


class DenseBlock(nn.ModuleList):
    """(B, inputs, H, W) -> (B, inputs + layers * growth, H, W): each layer reads all features before it."""

    def __init__(self, inputs: int, layers: int, growth: int) -> None:
        super().__init__(DenseLayer(inputs + index * growth, growth) for index in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Sequential):
    """(B, 3, H, W) -> (B, classes)."""

    def __init__(self, blocks: tuple[int, ...], growth: int, stem: int, classes: int) -> None:
        super().__init__()
        if len(blocks) == 3:
            self.stem: nn.Module = nn.Conv2d(3, stem, 3, padding=1, bias=False)
        else:
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


@legal("batch * floor((image + 3) / 32) >= 2", depth=(121, 161, 169, 201))
@trained(lr=0.1)
def densenet(
    batch: int = 32,
    depth: int = 121,
    growth: int = 32,
    stem: int = 64,
    image: int = 224,
    classes: int = 1000,
) -> Parts:
    """DenseNet: every layer of a block reads all layers before it.

    Depths 121, 169 and 201, and 161 with ``growth=48 stem=96``; for CIFAR 100 with ``growth=12 stem=24 image=32``.
    """
    if depth not in _BLOCKS:
        raise ValueError(f"no DenseNet of depth {depth}; choose one of: {', '.join(map(str, _BLOCKS))}")
    model = DenseNet(_BLOCKS[depth], growth, stem, classes)
    return classifier(model, torch.randn(batch, 3, image, image), classes)


_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Per stage: expansion, output channels, blocks, stride of the first."""


def _scaled(channels: int, width: float) -> int:
    """The multiple of 8 nearest to ``channels * width``, at least 8 and not more than 10 % below."""
    nearest = max(8, int(channels * width + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels * width else nearest + 8


class Conv(nn.Sequential):
    """Convolution without bias, batch norm, ReLU6."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out")
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride): expand 1x1, depthwise 3x3, project 1x1."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.expand = Conv(inputs, inner, 1) if expansion > 1 else nn.Identity()
        self.depthwise = Conv(inner, inner, 3, stride, groups=inner)
        self.project = nn.Sequential(nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + out if self.residual else out


class MobileNetV2(nn.Sequential):
    """(B, 3, H, W) -> (B, classes)."""

    def __init__(self, width: float, classes: int, dropout: float) -> None:
        super().__init__()
        inputs = _scaled(32, width)
        last = _scaled(1280, max(1.0, width))
        self.features = nn.Sequential(Conv(3, inputs, 3, stride=2))
        for expansion, channels, blocks, first_stride in _STAGES:
            outputs = _scaled(channels, width)
            for index in range(blocks):
                self.features.append(InvertedResidual(inputs, outputs, 1 if index else first_stride, expansion))
                inputs = outputs
        self.features.append(Conv(inputs, last, 1))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout))
        self.classifier = nn.Linear(last, classes)


@legal("batch * ceil(image / 32) >= 2")
@trained(lr=0.045)
def mobilenet_v2(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    dropout: float = 0.2,
) -> Parts:
    """MobileNetV2: inverted residuals with depthwise convolutions.

    ``width`` multiplies the channels.
    """
    model = MobileNetV2(width, classes, dropout)
    return classifier(model, torch.randn(batch, 3, image, image), classes)
