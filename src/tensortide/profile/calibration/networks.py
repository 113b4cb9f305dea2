"""Training steps that a calibration measures: stacks of one kind of layer each, at sizes that models have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW

Step = Callable[[], Any]


def trained(model: nn.Module, inputs: Tensor, *, adam: bool = False, classes: int = 0) -> Step:
    """A training step of ``model``: on the mean of its output, or on the cross entropy of so many ``classes``."""
    parameters = list(model.parameters())
    optimizer = AdamW(parameters, lr=1e-4) if adam else SGD(parameters, lr=1e-4, momentum=0.9)
    with torch.no_grad():
        rows = model(inputs).shape[:-1] if classes else ()
    labels = torch.randint(classes, rows).flatten() if classes else None

    def step() -> None:
        found = model(inputs)
        loss = found.mean() if labels is None else F.cross_entropy(found.flatten(0, -2), labels)
        loss.backward()
        if adam:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def linear(batch: int, widths: Sequence[int], *, adam: bool = False) -> Step:
    """Linear layers with ReLU between them, and a classifier at the end."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return trained(nn.Sequential(*layers[:-1]), torch.randn(batch, widths[0]), adam=adam, classes=widths[-1])


def convolutions(
    batch: int, image: int, channels: Sequence[int], *, kernel: int = 3, stride: int = 1, pool: int = 0
) -> Step:
    """Convolutions with batch normalization and ReLU; ``pool``: each followed by max pooling of so many rows."""
    layers: list[nn.Module] = []
    for a, b in pairwise(channels):
        layers += [nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(pool, 2, (pool - 1) // 2)] if pool else []
    return trained(nn.Sequential(*layers), torch.randn(batch, channels[0], image, image))


def depthwise(batch: int, image: int, channels: int, *, layers: int, stride: int = 1) -> Step:
    """Depthwise convolutions between pointwise ones, the first of which has a ``stride``, with clipped activations."""
    model = nn.Sequential()
    for number in range(layers):
        by = stride if number == 0 else 1
        model.append(nn.Conv2d(channels, channels, 3, by, 1, groups=channels, bias=False))
        model.extend([nn.BatchNorm2d(channels), nn.Hardtanh(0.0, 6.0)])
        model.extend([nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)])
    return trained(model, torch.randn(batch, channels, image, image))


def transposed(batch: int, image: int, channels: Sequence[int]) -> Step:
    """Transposed convolutions that double the image, on features that are joined with others."""
    joins = nn.ModuleList(nn.ConvTranspose2d(2 * a, b, 2, 2) for a, b in pairwise(channels))

    class Upwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.joins = joins

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.joins:
                x = F.silu(layer(torch.cat([x, x], 1)))
            return x

    return trained(Upwards(), torch.randn(batch, channels[0], image, image))


class Block(nn.Module):
    """A transformer's block: attention by the fused kernel, or (``plain``) by two batched products and a softmax."""

    def __init__(self, width: int, heads: int, *, causal: bool, plain: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.plain = heads, causal, plain
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attend, then mix; both added to ``x``."""
        batch, length, width = x.shape
        q, k, v = self.mixed(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.plain:
            scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            found = scores.masked_fill(hidden, -1e9).softmax(-1) @ v
        else:
            found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(found.transpose(1, 2).reshape(batch, length, width)))
        mixed: Tensor = self.dropout(self.narrow(F.gelu(self.wide(self.after(x)))))
        return x + mixed


def transformer(
    batch: int, length: int, width: int, heads: int, *, causal: bool = False, plain: bool = False, dropout: float = 0.0
) -> Step:
    """Two transformer blocks, trained by AdamW."""
    blocks = [Block(width, heads, causal=causal, plain=plain, dropout=dropout) for _ in range(2)]
    return trained(nn.Sequential(*blocks), torch.randn(batch, length, width), adam=True)


def vocabulary(tokens: int, words: int, width: int, *, adam: bool = False) -> Step:
    """An embedding of ``words``, and the prediction of the next ones: a wide product, a softmax, sparse rows."""
    model = nn.Sequential(nn.Embedding(words, width), nn.LayerNorm(width), nn.Linear(width, words, bias=False))
    return trained(model, torch.randint(words, (1, tokens)), adam=adam, classes=words)


class Recurrent(nn.Module):
    """The outputs of recurrent layers of one ``kind``."""

    def __init__(self, kind: Callable[[int, int, int], nn.Module], inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.cells = kind(inputs, width, layers)

    def forward(self, x: Tensor) -> Tensor:
        """Run over the sequence."""
        found: Tensor = self.cells(x)[0]
        return found


def recurrent(kind: Callable[[int, int, int], nn.Module], batch: int, length: int, width: int, layers: int = 1) -> Step:
    """Recurrent layers over sequences."""
    return trained(Recurrent(kind, width, width, layers), torch.randn(length, batch, width))


def normalized(batch: int, image: int, channels: int) -> Step:
    """Normalizations by group, instance, root mean square and layer."""
    model = nn.Sequential(
        nn.GroupNorm(8, channels),
        nn.SiLU(),
        nn.InstanceNorm2d(channels, affine=True),
        nn.RMSNorm(image),
        nn.LayerNorm(image),
        nn.LayerNorm((image, image)),
    )
    return trained(model, torch.randn(batch, channels, image, image))


def pooled(batch: int, image: int, channels: int) -> Step:
    """Pooling and resizing of images."""
    model = nn.Sequential(
        nn.BatchNorm2d(channels),
        nn.MaxPool2d(3, 2, 1),
        nn.AvgPool2d(2),
        nn.Upsample(scale_factor=4, mode="bilinear"),
        nn.MaxPool2d(2),
        nn.Upsample(scale_factor=2, mode="nearest"),
        nn.AdaptiveAvgPool2d(7),
    )
    return trained(model, torch.randn(batch, channels, image, image))
