"""U-Nets: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015; Ho et al.,
"Denoising Diffusion Probabilistic Models", 2020.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import attend, sinusoids
from tensortide.examples.training import Parts, classifier, trained
from tensortide.workload import legal

__all__ = ["diffusion", "unet"]


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
        return self.head(x)


@legal("height % 2**levels == 0", "width % 2**levels == 0", "batch * height * width > 4**levels")
@trained(lr=0.01)
def unet(
    batch: int = 6,
    height: int = 416,
    width: int = 608,
    channels: int = 3,
    classes: int = 2,
    filters: int = 64,
    levels: int = 4,
) -> Parts:
    """U-Net for segmentation, with batch norm and transposed convolutions."""
    if height % (1 << levels) or width % (1 << levels):
        raise ValueError(f"height={height} and width={width} must be multiples of {1 << levels}, 2 to the levels")
    model = UNet(channels, classes, filters, levels)
    return classifier(model, torch.randn(batch, channels, height, width), classes, height, width)


_WIDTHS = (1, 2, 2, 2)
"""Channels per level, in units of the first; each level halves the side, the second has attention."""


class ResidualBlock(nn.Module):
    """(B, inputs, H, W) and a time embedding (B, T) -> (B, outputs, H, W)."""

    def __init__(self, inputs: int, outputs: int, time: int, groups: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(self.dropout(F.silu(self.norm2(y))))


class PixelAttention(nn.Module):
    """(B, C, H, W) -> (B, C, H, W): every pixel attends to all, in one head."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.query, self.key, self.value, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = (
            conv(y).flatten(2).transpose(1, 2).unsqueeze(1) for conv in (self.query, self.key, self.value)
        )
        mixed = attend(query, key, value).squeeze(1).transpose(1, 2).reshape_as(x)
        return x + self.out(mixed)


class Level(nn.Module):
    """Residual blocks of one size, each followed by attention where asked for.

    On the way down every block leaves its output in ``skips``; on the way up every block takes one of them.
    """

    def __init__(
        self, inputs: list[int], outputs: int, time: int, groups: int, dropout: float, mixers: int, way: str
    ) -> None:
        super().__init__()
        self.way = way
        self.blocks = nn.ModuleList(ResidualBlock(width, outputs, time, groups, dropout) for width in inputs)
        self.mixers = nn.ModuleList(PixelAttention(outputs, groups) for _ in range(mixers))

    def forward(self, x: Tensor, time: Tensor, skips: list[Tensor]) -> Tensor:
        for index, block in enumerate(self.blocks):
            if self.way == "up":
                x = torch.cat([x, skips.pop()], 1)
            x = block(x, time)
            if index < len(self.mixers):
                x = self.mixers[index](x)
            if self.way == "down":
                skips.append(x)
        return x


class DiffusionUNet(nn.Module):
    """Noisy images (B, C, H, W) and their times (B,) -> the noise (B, C, H, W)."""

    def __init__(self, channels: int, width: int, blocks: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        shape = (4 * width, width // 4, dropout)
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.down, self.shrink, self.up, self.grow = (nn.ModuleList() for _ in range(4))
        skips, before = [width], width
        for level, outputs in enumerate(width * factor for factor in _WIDTHS):
            if level:
                self.shrink.append(nn.Conv2d(before, before, 3, stride=2, padding=1))
                skips.append(before)
            inputs = [before, *[outputs] * (blocks - 1)]
            self.down.append(Level(inputs, outputs, *shape, mixers=blocks * (level == 1), way="down"))
            skips += [outputs] * blocks
            before = outputs
        self.middle = Level([before, before], before, *shape, mixers=1, way="across")
        for level, outputs in reversed(list(enumerate(width * factor for factor in _WIDTHS))):
            inputs = [main + skips.pop() for main in (before, *[outputs] * blocks)]
            self.up.append(Level(inputs, outputs, *shape, mixers=(blocks + 1) * (level == 1), way="up"))
            if level:
                self.grow.append(nn.Conv2d(outputs, outputs, 3, padding=1))
            before = outputs
        last = nn.Conv2d(width, channels, 3, padding=1)
        self.head = nn.Sequential(nn.GroupNorm(width // 4, width), nn.SiLU(), last)

    def forward(self, images: Tensor, times: Tensor) -> Tensor:
        time = self.time(sinusoids(times, self.width))
        x: Tensor = self.stem(images)
        skips = [x]
        for level, down in enumerate(self.down):
            if level:
                x = self.shrink[level - 1](x)
                skips.append(x)
            x = down(x, time, skips)
        x = self.middle(x, time, skips)
        for level, up in enumerate(self.up):
            x = up(x, time, skips)
            if level < len(self.grow):
                x = self.grow[level](F.interpolate(x, scale_factor=2))
        return self.head(x)


class Denoiser(nn.Module):
    """Images (B, C, H, W) -> the noise that was predicted and the noise that was added, at random times."""

    signal: Tensor

    def __init__(self, unet: DiffusionUNet, times: int) -> None:
        super().__init__()
        self.unet = unet
        self.times = times
        self.register_buffer("signal", torch.cumprod(1 - torch.linspace(1e-4, 0.02, times), 0), persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        times = torch.randint(0, self.times, (images.shape[0],), device=images.device)
        signal = self.signal[times][:, None, None, None]
        noise = torch.randn_like(images)
        return self.unet(signal.sqrt() * images + (1 - signal).sqrt() * noise, times), noise


@legal("image % 8 == 0", "width % 4 == 0")
@trained(lr=2e-4, clip=1.0, optimizer="adam")
def diffusion(
    batch: int = 64,
    image: int = 32,
    channels: int = 3,
    width: int = 128,
    blocks: int = 2,
    times: int = 1000,
    dropout: float = 0.1,
) -> Parts:
    """Denoising diffusion U-Net: predicts the noise in an image; 35.7 M parameters."""
    if image % 8 or width % 4:
        raise ValueError(f"image={image} must be a multiple of 8 and width={width} of 4")
    model = Denoiser(DiffusionUNet(channels, width, blocks, dropout), times)
    images = torch.rand(batch, channels, image, image) * 2 - 1
    return model, [images], lambda output: F.mse_loss(*output)
