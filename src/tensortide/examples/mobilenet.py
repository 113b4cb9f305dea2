"""MobileNetV2: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, training_step
from tensortide.workload import legal

__all__ = ["mobilenet_v2"]

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


class MobileNetV2(nn.Module):
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

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.head(self.features(images)))
        return logits


@legal("batch * ceil(image / 32) >= 2")
def mobilenet_v2(
    batch: int = 32,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    dropout: float = 0.2,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """MobileNetV2: inverted residuals with depthwise convolutions.

    ``width`` multiplies the channels.
    """
    model = MobileNetV2(width, classes, dropout)
    images = torch.randn(batch, 3, image, image)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [images], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.045, train=train)
