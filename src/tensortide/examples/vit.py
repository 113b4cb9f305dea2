"""Vision transformer: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, divide, training_step
from tensortide.workload import legal

__all__ = ["vit"]


class EncoderBlock(nn.Module):
    """(B, N, hidden) -> (B, N, hidden): attention and feed-forward, each normalized first and added."""

    def __init__(self, hidden: int, heads: int, intermediate: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, eps=1e-6)
        self.attention = nn.MultiheadAttention(hidden, heads, dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-6)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden, intermediate), nn.GELU(), nn.Dropout(dropout), nn.Linear(intermediate, hidden)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        out: Tensor = x + self.dropout(self.feed_forward(self.norm2(x)))
        return out


class ViT(nn.Module):
    """(B, 3, image, image) -> (B, classes), read from the class token in front of the patches."""

    def __init__(
        self,
        image: int,
        patch: int,
        hidden: int,
        layers: int,
        heads: int,
        intermediate: int,
        classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        side = divide("image", image, "patch", patch)
        self.patches = nn.Conv2d(3, hidden, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.randn(1, side * side + 1, hidden) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(EncoderBlock(hidden, heads, intermediate, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        x = self.norm(self.blocks(self.dropout(x + self.positions)))
        logits: Tensor = self.head(x[:, 0])
        return logits


@legal("hidden % heads == 0", "image % patch == 0")
def vit(
    batch: int = 32,
    image: int = 224,
    patch: int = 16,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    intermediate: int = 3072,
    classes: int = 1000,
    dropout: float = 0.0,
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """Vision transformer on image patches; B/16 by default, 86.6 M parameters."""
    divide("hidden", hidden, "heads", heads)
    model = ViT(image, patch, hidden, layers, heads, intermediate, classes, dropout)
    images = torch.randn(batch, 3, image, image)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [images], lambda y: F.cross_entropy(y, labels), optimizer, lr=1e-3, train=train)
