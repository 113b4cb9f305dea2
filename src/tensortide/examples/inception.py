"""Inception v3: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015; v4: Szegedy et al.,
"Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning", 2016.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Parts, classifier, trained
from tensortide.workload import legal

__all__ = ["inception_v3", "inception_v4"]

Kernel: TypeAlias = int | tuple[int, int]


class Conv(nn.Sequential):
    """Convolution without bias, batch norm, ReLU; the size is kept unless ``stride`` or ``same`` says otherwise."""

    def __init__(self, inputs: int, outputs: int, kernel: Kernel, stride: int = 1, same: bool = True) -> None:
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if same and stride == 1 else (0, 0)
        conv = nn.Conv2d(inputs, outputs, sides, stride, padding, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs, eps=0.001), nn.ReLU(inplace=True))


class Branches(nn.ModuleList):
    """(B, C, H, W) -> the branches' outputs, concatenated over channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], 1)


def _chain(inputs: int, *convs: tuple[int, Kernel], stride: int = 1) -> nn.Sequential:
    """Convolutions (outputs, kernel) one after another; ``stride`` is the last one's."""
    chain = nn.Sequential()
    for index, (outputs, kernel) in enumerate(convs):
        chain.append(Conv(inputs, outputs, kernel, stride if index == len(convs) - 1 else 1))
        inputs = outputs
    return chain


def _pooled(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), Conv(inputs, outputs, 1))


def _split(inputs: int, outputs: int) -> Branches:
    return Branches(Conv(inputs, outputs, (1, 3)), Conv(inputs, outputs, (3, 1)))


class InceptionV3(nn.Module):
    """(B, 3, H, W) -> (B, classes); in training with ``aux`` a pair of them, main and auxiliary."""

    def __init__(self, classes: int, aux: bool, width: int, dropout: float) -> None:
        super().__init__()

        def c(channels: int) -> int:
            return channels * width // 32

        self.stem = nn.Sequential(
            Conv(3, c(32), 3, stride=2),
            Conv(c(32), c(32), 3, same=False),
            Conv(c(32), c(64), 3),
            nn.MaxPool2d(3, 2),
            Conv(c(64), c(80), 1),
            Conv(c(80), c(192), 3, same=False),
            nn.MaxPool2d(3, 2),
        )
        self.blocks = nn.Sequential()
        for inputs, pool in ((192, 32), (256, 64), (288, 64)):
            self.blocks.append(_block_35(c(inputs), c(64), c(48), c(96), c(pool)))
        self.blocks.append(
            Branches(
                Conv(c(288), c(384), 3, stride=2),
                _chain(c(288), (c(64), 1), (c(96), 3), (c(96), 3), stride=2),
                nn.MaxPool2d(3, 2),
            )
        )
        for inner in (128, 160, 160, 192):
            self.blocks.append(_block_17(c(768), c(inner), c(192)))
        self.last = nn.Sequential(
            Branches(
                _chain(c(768), (c(192), 1), (c(320), 3), stride=2),
                _chain(c(768), (c(192), 1), (c(192), (1, 7)), (c(192), (7, 1)), (c(192), 3), stride=2),
                nn.MaxPool2d(3, 2),
            ),
            _block_8(c(1280), c(320), c(384), c(448), c(192)),
            _block_8(c(2048), c(320), c(384), c(448), c(192)),
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Dropout(dropout), nn.Flatten())
        self.classifier = nn.Linear(c(2048), classes)
        self.aux = _aux_head(c(768), c(128), c(768), classes) if aux else None

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = self.blocks(self.stem(images))
        logits: Tensor = self.classifier(self.head(self.last(features)))
        if self.aux is None or not self.training:
            return logits
        return logits, self.aux(features)


def _block_35(inputs: int, direct: int, reduced: int, double: int, pool: int) -> Branches:
    """The block on the 35 x 35 grid: 1x1, 5x5, double 3x3, pool."""
    return Branches(
        Conv(inputs, direct, 1),
        _chain(inputs, (reduced, 1), (direct, 5)),
        _chain(inputs, (direct, 1), (double, 3), (double, 3)),
        _pooled(inputs, pool),
    )


def _block_17(inputs: int, inner: int, outer: int) -> Branches:
    """The block on the 17 x 17 grid: 7x7 convolutions factored into 1x7 and 7x1."""
    wide, tall = (1, 7), (7, 1)
    return Branches(
        Conv(inputs, outer, 1),
        _chain(inputs, (inner, 1), (inner, wide), (outer, tall)),
        _chain(inputs, (inner, 1), (inner, tall), (inner, wide), (inner, tall), (outer, wide)),
        _pooled(inputs, outer),
    )


def _block_8(inputs: int, direct: int, spread: int, double: int, pool: int) -> Branches:
    """The block on the 8 x 8 grid: 3x3 convolutions spread into 1x3 and 3x1 side by side."""
    return Branches(
        Conv(inputs, direct, 1),
        nn.Sequential(Conv(inputs, spread, 1), _split(spread, spread)),
        nn.Sequential(Conv(inputs, double, 1), Conv(double, spread, 3), _split(spread, spread)),
        _pooled(inputs, pool),
    )


def _aux_head(inputs: int, inner: int, outer: int, classes: int) -> nn.Sequential:
    convs = (Conv(inputs, inner, 1), Conv(inner, outer, 5, same=False))
    return nn.Sequential(nn.AvgPool2d(5, 3), *convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(outer, classes))


@legal("image >= 75", "batch * floor((image - 43) / 32) >= 2")
@trained(lr=0.045)
def inception_v3(
    batch: int = 32,
    image: int = 299,
    classes: int = 1000,
    width: int = 32,
    dropout: float = 0.5,
    aux: bool = False,
) -> Parts:
    """Inception v3: factored convolutions in parallel branches.

    ``aux=True`` adds the auxiliary classifier and 0.4 of its loss.
    ``width`` is the stem's; all other channels scale with it. Images of at least 75 pixels (299 with ``aux``).
    """
    model = InceptionV3(classes, aux, width, dropout)
    images = torch.randn(batch, 3, image, image)
    labels = torch.randint(0, classes, (batch,))

    def loss_fn(output: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        if isinstance(output, Tensor):
            return F.cross_entropy(output, labels)
        return F.cross_entropy(output[0], labels) + 0.4 * F.cross_entropy(output[1], labels)

    return model, [images], loss_fn


class InceptionV4(nn.Sequential):
    """(B, 3, H, W) -> (B, classes)."""

    def __init__(self, classes: int, width: int, dropout: float) -> None:
        super().__init__()

        def c(channels: int) -> int:
            return channels * width // 32

        stem = (Conv(3, c(32), 3, stride=2), Conv(c(32), c(32), 3, same=False), Conv(c(32), c(64), 3))
        seven = _chain(c(160), (c(64), 1), (c(64), (1, 7)), (c(64), (7, 1)))
        self.stem = nn.Sequential(
            *stem,
            Branches(nn.MaxPool2d(3, 2), Conv(c(64), c(96), 3, stride=2)),
            Branches(
                nn.Sequential(Conv(c(160), c(64), 1), Conv(c(64), c(96), 3, same=False)),
                seven.append(Conv(c(64), c(96), 3, same=False)),
            ),
            Branches(Conv(c(192), c(192), 3, stride=2), nn.MaxPool2d(3, 2)),
        )
        self.blocks = nn.Sequential(*(_wide_block_35(c(384), c(64), c(96)) for _ in range(4)))
        self.blocks.append(
            Branches(
                Conv(c(384), c(384), 3, stride=2),
                _chain(c(384), (c(192), 1), (c(224), 3), (c(256), 3), stride=2),
                nn.MaxPool2d(3, 2),
            )
        )
        self.blocks.extend(_wide_block_17(c(1024), [c(part) for part in (128, 192, 224, 256, 384)]) for _ in range(7))
        self.blocks.append(
            Branches(
                _chain(c(1024), (c(192), 1), (c(192), 3), stride=2),
                _chain(c(1024), (c(256), 1), (c(256), (1, 7)), (c(320), (7, 1)), (c(320), 3), stride=2),
                nn.MaxPool2d(3, 2),
            )
        )
        self.blocks.extend(_wide_block_8(c(1536), [c(part) for part in (256, 384, 448, 512)]) for _ in range(3))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Dropout(dropout), nn.Flatten())
        self.classifier = nn.Linear(c(1536), classes)


def _wide_block_35(inputs: int, narrow: int, wide: int) -> Branches:
    """The block of v4 on the 35 x 35 grid."""
    return Branches(
        Conv(inputs, wide, 1),
        _chain(inputs, (narrow, 1), (wide, 3)),
        _chain(inputs, (narrow, 1), (wide, 3), (wide, 3)),
        _pooled(inputs, wide),
    )


def _wide_block_17(inputs: int, widths: list[int]) -> Branches:
    """The block of v4 on the 17 x 17 grid; ``widths`` from the narrowest convolution to the widest."""
    wide, tall = (1, 7), (7, 1)
    a, b, c, d, e = widths
    return Branches(
        Conv(inputs, e, 1),
        _chain(inputs, (b, 1), (c, wide), (d, tall)),
        _chain(inputs, (b, 1), (b, tall), (c, wide), (c, tall), (d, wide)),
        _pooled(inputs, a),
    )


def _wide_block_8(inputs: int, widths: list[int]) -> Branches:
    """The block of v4 on the 8 x 8 grid; ``widths`` from the narrowest convolution to the widest."""
    a, b, c, d = widths
    return Branches(
        Conv(inputs, a, 1),
        nn.Sequential(Conv(inputs, b, 1), _split(b, a)),
        nn.Sequential(_chain(inputs, (b, 1), (c, (3, 1)), (d, (1, 3))), _split(d, a)),
        _pooled(inputs, a),
    )


@legal("image >= 75", "batch * floor((image - 43) / 32) >= 2")
@trained(lr=0.045)
def inception_v4(
    batch: int = 32,
    image: int = 299,
    classes: int = 1000,
    width: int = 32,
    dropout: float = 0.2,
) -> Parts:
    """Inception v4: a branched stem and 14 blocks in parallel branches; 42.7 M parameters.

    ``width`` is that of the first convolution; all others are in proportion.
    """
    return classifier(InceptionV4(classes, width, dropout), torch.randn(batch, 3, image, image), classes)
