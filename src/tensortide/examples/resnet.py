"""Residual networks: He et al., "Deep Residual Learning for Image Recognition", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, choose, training_step
from tensortide.workload import legal

__all__ = ["resnet", "resnet18", "resnet18_cifar", "resnet32_cifar", "resnet34", "resnet50", "resnet101", "resnet152"]

_GROUPS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

_NORMED = "batch * ceil(image / 32) >= 2"
"""Batch norm wants more than one value of each channel, also after the last group."""


class ConvNorm(nn.Sequential):
    """Convolution without bias, then batch norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        super().__init__(conv, nn.BatchNorm2d(outputs))


class PaddedShortcut(nn.Module):
    """A shortcut without parameters: subsampled, with zeros for the new channels (option A of the paper)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """(B, inputs, H, W) -> (B, width, H / stride, W / stride): two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        self.conv1 = ConvNorm(inputs, width, 3, stride)
        self.conv2 = ConvNorm(width, width, 3)
        self.shortcut = _shortcut(inputs, width, stride, project)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        body = self.conv2(self.relu(self.conv1(x)))
        out: Tensor = self.relu(body + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """(B, inputs, H, W) -> (B, 4 width, H / stride, W / stride): 1x1, 3x3 (strided), 1x1."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        self.conv1 = ConvNorm(inputs, width, 1)
        self.conv2 = ConvNorm(width, width, 3, stride)
        self.conv3 = ConvNorm(width, 4 * width, 1)
        self.shortcut = _shortcut(inputs, 4 * width, stride, project)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        body = self.conv3(self.relu(self.conv2(self.relu(self.conv1(x)))))
        out: Tensor = self.relu(body + self.shortcut(x))
        return out


def _shortcut(inputs: int, outputs: int, stride: int, project: bool) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return ConvNorm(inputs, outputs, 1, stride) if project else PaddedShortcut(inputs, outputs, stride)


class ResNet(nn.Module):
    """(B, channels, H, W) -> (B, classes)."""

    def __init__(self, groups: tuple[int, ...], bottleneck: bool, stem: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        block: type[BasicBlock | Bottleneck] = Bottleneck if bottleneck else BasicBlock
        self.stem = stem
        self.groups = nn.Sequential()
        inputs = width
        for index, count in enumerate(groups):
            group = nn.Sequential()
            for position in range(count):
                stride = 2 if index and not position else 1
                group.append(block(inputs, width << index, stride, project=len(groups) == 4))
                inputs = block.expansion * (width << index)
            self.groups.append(group)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.pool(self.groups(self.stem(images)))
        logits: Tensor = self.classifier(features.flatten(1))
        return logits


def _groups(depth: int, variant: str) -> tuple[int, ...]:
    if depth in _GROUPS:
        return _GROUPS[depth]
    if variant == "cifar" and depth > 2 and depth % 6 == 2:
        return (depth // 6,) * 3
    more = ", or 6n + 2 (20, 32, 44, 56, 110, 1202)" if variant == "cifar" else ""
    raise ValueError(f"no {variant} ResNet of depth {depth}; choose one of: {', '.join(map(str, _GROUPS))}{more}")


@legal(_NORMED, depth=tuple(_GROUPS))
def resnet(
    batch: int = 32,
    depth: int = 50,
    variant: str = "imagenet",
    image: int = 224,
    channels: int = 3,
    classes: int = 1000,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet of any published depth, for ImageNet or for CIFAR images.

    Depths 18, 34, 50, 101 and 152 have four groups of blocks and projection shortcuts in both variants. The CIFAR
    depths 6n + 2 have three groups, shortcuts without parameters, and are published with ``width=16``.
    """
    choose("variant", variant, ("imagenet", "cifar"))
    groups = _groups(depth, variant)
    if variant == "imagenet":
        conv = ConvNorm(channels, width, 7, stride=2)
        stem = nn.Sequential(conv, nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1))
    else:
        stem = nn.Sequential(ConvNorm(channels, width, 3), nn.ReLU(inplace=True))
    model = ResNet(groups, len(groups) == 4 and depth >= 50, stem, width, classes)
    images = torch.randn(batch, channels, image, image)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [images], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.1, train=train)


@legal(_NORMED)
def resnet18(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-18 for ImageNet: basic blocks, 11.7 M parameters."""
    return resnet(batch, 18, image=image, classes=classes, width=width, optimizer=optimizer, train=train)


@legal(_NORMED)
def resnet34(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-34 for ImageNet: basic blocks, 21.8 M parameters."""
    return resnet(batch, 34, image=image, classes=classes, width=width, optimizer=optimizer, train=train)


@legal(_NORMED)
def resnet50(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-50 for ImageNet: bottleneck blocks, 25.6 M parameters."""
    return resnet(batch, 50, image=image, classes=classes, width=width, optimizer=optimizer, train=train)


@legal(_NORMED)
def resnet101(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-101 for ImageNet: bottleneck blocks, 44.5 M parameters."""
    return resnet(batch, 101, image=image, classes=classes, width=width, optimizer=optimizer, train=train)


@legal(_NORMED)
def resnet152(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-152 for ImageNet: bottleneck blocks, 60.2 M parameters."""
    return resnet(batch, 152, image=image, classes=classes, width=width, optimizer=optimizer, train=train)


@legal("batch * ceil(image / 8) >= 2")
def resnet18_cifar(
    batch: int = 128,
    image: int = 32,
    classes: int = 100,
    width: int = 64,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-18 for 32x32 images: 3x3 stem, no max pool, 11.2 M parameters."""
    return resnet(batch, 18, "cifar", image, classes=classes, width=width, optimizer=optimizer, train=train)


@legal("batch * ceil(image / 4) >= 2")
def resnet32_cifar(
    batch: int = 56,
    image: int = 32,
    classes: int = 10,
    width: int = 16,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """ResNet-32 for 32x32 images: three groups of five blocks, 0.5 M parameters."""
    return resnet(batch, 32, "cifar", image, classes=classes, width=width, optimizer=optimizer, train=train)
