"""Residual networks: He et al., "Deep Residual Learning for Image Recognition", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Parts, choose, classifier, trained
from tensortide.workload import legal

__all__ = ["resnet"]

_GROUPS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


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
        return self.relu(body + self.shortcut(x))


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
        return self.relu(body + self.shortcut(x))


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
        return self.classifier(features.flatten(1))


def _groups(depth: int, variant: str) -> tuple[int, ...]:
    if depth in _GROUPS:
        return _GROUPS[depth]
    if variant == "cifar" and depth > 2 and depth % 6 == 2:
        return (depth // 6,) * 3
    more = "or" if variant == "cifar" else "or, with variant=cifar,"
    known = f"{', '.join(map(str, _GROUPS))}, {more} 6n + 2 (20, 32, 44, 56, 110, 1202)"
    raise ValueError(f"no {variant} ResNet of depth {depth}; choose one of: {known}")


@legal("batch * ceil(image / 32) >= 2", depth=tuple(_GROUPS))
@trained(lr=0.1)
def resnet(
    batch: int = 32,
    depth: int = 50,
    variant: str = "imagenet",
    image: int = 224,
    channels: int = 3,
    classes: int = 1000,
    width: int = 64,
) -> Parts:
    """ResNet of any published depth, for ImageNet or for CIFAR images.

    Depths 18, 34, 50, 101 and 152 have four groups of blocks and projection shortcuts in both variants. The CIFAR
    depths 6n + 2 have three groups, shortcuts without parameters, and are published with ``width=16``. A channel keeps
    more than one value after the last group (batch norm).
    """
    choose("variant", variant, ("imagenet", "cifar"))
    groups = _groups(depth, variant)
    if variant == "imagenet":
        conv = ConvNorm(channels, width, 7, stride=2)
        stem = nn.Sequential(conv, nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1))
    else:
        stem = nn.Sequential(ConvNorm(channels, width, 3), nn.ReLU(inplace=True))
    model = ResNet(groups, len(groups) == 4 and depth >= 50, stem, width, classes)
    return classifier(model, torch.randn(batch, channels, image, image), classes)
