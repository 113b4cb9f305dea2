"""U-Net: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, training_step
from tensortide.workload import legal

__all__ = ["unet"]


class DoubleConv(nn.Sequential):
    """(B, inputs, H, W) -> (B, outputs, H, W): twice a padded 3x3 convolution, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        for channels in (inputs, outputs):
            self.append(nn.Conv2d(channels, outputs, 3, padding=1, bias=False))
            self.append(nn.BatchNorm2d(outputs))
            self.append(nn.ReLU(inplace=True))


class UNet(nn.Module):
    """(B, channels, H, W) -> (B, classes, H, W); H and W are multiples of ``2 ** levels``."""

    def __init__(self, channels: int, classes: int, filters: int, levels: int) -> None:
        super().__init__()
        widths = [filters << level for level in range(levels + 1)]
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip([channels, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in widths[-2::-1])
        self.merge = nn.ModuleList(DoubleConv(2 * width, width) for width in widths[-2::-1])
        self.head = nn.Conv2d(filters, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        out: Tensor = self.head(x)
        return out


@legal("height % 2**levels == 0", "width % 2**levels == 0", "batch * height * width > 4**levels")
def unet(
    batch: int = 6,
    height: int = 416,
    width: int = 608,
    channels: int = 3,
    classes: int = 2,
    filters: int = 64,
    levels: int = 4,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """U-Net for segmentation, with batch norm and transposed convolutions."""
    if height % (1 << levels) or width % (1 << levels):
        raise ValueError(f"height={height} and width={width} must be multiples of {1 << levels}, 2 to the levels")
    model = UNet(channels, classes, filters, levels)
    images = torch.randn(batch, channels, height, width)
    labels = torch.randint(0, classes, (batch, height, width))
    return training_step(model, [images], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.01, train=train)
