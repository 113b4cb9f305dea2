"""Encoders: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018; Dosovitskiy et al., "An Image
is Worth 16x16 Words", 2020.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import attend, check_attention, check_lengths, merge_heads, sinusoids, split_heads
from tensortide.examples.training import (
    Parts,
    choose,
    classifier,
    default_dtype,
    divide,
    draw_weights,
    language_model,
    next_token_loss,
    tokens,
    trained,
)
from tensortide.workload import legal

__all__ = ["bert", "encoder_lm", "vit"]


class Embeddings(nn.Module):
    """Token and segment ids (B, S) -> (B, S, hidden): three embeddings summed, normalized, dropped out."""

    def __init__(self, vocab: int, positions: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        where = torch.arange(ids.shape[1], device=ids.device)
        return self.dropout(self.norm(self.tokens(ids) + self.segments(segments) + self.positions(where)))


class EncoderLayer(nn.Module):
    """(B, S, hidden) -> (B, S, hidden): attention and feed-forward, each added and normalized after."""

    def __init__(self, hidden: int, heads: int, intermediate: int, dropout: float, attention: str) -> None:
        super().__init__()
        self.heads = heads
        self.attention = attention
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out = nn.Linear(hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden, eps=1e-12)
        self.up = nn.Linear(hidden, intermediate)
        self.activation = nn.GELU()
        self.down = nn.Linear(intermediate, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (split_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        dropout = self.dropout.p if self.training else 0.0
        mixed = merge_heads(attend(query, key, value, attention=self.attention, dropout=dropout))
        x = self.norm1(x + self.dropout(self.out(mixed)))
        x = self.norm2(x + self.dropout(self.down(self.activation(self.up(x)))))
        return x


class Bert(nn.Module):
    """Token and segment ids (B, S) -> pooled (B, hidden) and all positions (B, S, hidden)."""

    def __init__(self, embeddings: Embeddings, layers: list[EncoderLayer], hidden: int) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.Sequential(*layers)
        self.pooler = nn.Linear(hidden, hidden)
        draw_weights(self)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        encoded: Tensor = self.layers(self.embeddings(ids, segments))
        return torch.tanh(self.pooler(encoded[:, 0])), encoded


@legal("hidden % heads == 0", "seq <= positions")
@trained(lr=1e-4, clip=1.0, optimizer="adamw")
def bert(
    batch: int = 32,
    seq: int = 128,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    intermediate: int = 3072,
    vocab: int = 30522,
    positions: int = 512,
    dropout: float = 0.1,
    objective: str = "pooled",
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """BERT encoder with pooler; base by default, 109 M parameters.

    The loss needs no parameters beyond the encoder's own: ``objective="pooled"`` regresses the pooled vector to a
    random one; ``"masked"`` predicts every token by a product with the token embedding.
    """
    check_lengths(hidden, heads, seq, positions)
    choose("objective", objective, ("pooled", "masked"))
    check_attention(attention)
    with default_dtype(dtype):
        embeddings = Embeddings(vocab, positions, hidden, dropout)
        shape = (hidden, heads, intermediate, dropout, attention)
        model = Bert(embeddings, [EncoderLayer(*shape) for _ in range(layers)], hidden)
        wanted = torch.randn(batch, hidden)
    ids, segments, labels = tokens(vocab, batch, seq), tokens(2, batch, seq), tokens(vocab, batch, seq)

    def loss_fn(output: tuple[Tensor, Tensor]) -> Tensor:
        pooled, encoded = output
        if objective == "pooled":
            return F.mse_loss(pooled, wanted)
        return next_token_loss(F.linear(encoded, model.embeddings.tokens.weight), labels)

    return model, [ids, segments], loss_fn


class EncoderLM(nn.Module):
    """Token ids (B, S) -> logits (B, S, vocab): PyTorch's encoder layers, in which no token sees a later one."""

    positions: Tensor
    later: Tensor

    def __init__(self, vocab: int, seq: int, hidden: int, layer: nn.TransformerEncoderLayer, layers: int) -> None:
        super().__init__()
        self.scale = math.sqrt(hidden)
        self.tokens = nn.Embedding(vocab, hidden)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(hidden, vocab)
        draw_weights(self)
        self.register_buffer("positions", sinusoids(torch.arange(seq), hidden), persistent=False)
        self.register_buffer("later", torch.ones(seq, seq, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.tokens(ids) * self.scale + self.positions, self.later))


@legal("hidden % heads == 0", "hidden % 2 == 0")
@trained(lr=0.1)
def encoder_lm(
    batch: int = 32,
    seq: int = 35,
    hidden: int = 200,
    layers: int = 2,
    heads: int = 2,
    intermediate: int = 200,
    vocab: int = 10000,
    dropout: float = 0.0,
) -> Parts:
    """Language model on encoder layers that see no later token."""
    divide("hidden", hidden, "heads", heads)
    divide("hidden", hidden, "sines and cosines", 2)
    layer = nn.TransformerEncoderLayer(hidden, heads, intermediate, dropout, batch_first=True)
    return language_model(EncoderLM(vocab, seq, hidden, layer, layers), vocab, batch, seq)


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
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class ViT(nn.Module):
    """(B, 3, image, image) -> (B, classes), read from the class token in front of the patches."""

    def __init__(
        self, side: int, patch: int, hidden: int, blocks: list[EncoderBlock], classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.randn(1, side * side + 1, hidden) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        x = self.norm(self.blocks(self.dropout(x + self.positions)))
        return self.head(x[:, 0])


@legal("hidden % heads == 0", "image % patch == 0")
@trained(lr=1e-3, optimizer="adamw")
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
) -> Parts:
    """Vision transformer on image patches; B/16 by default, 86.6 M parameters."""
    divide("hidden", hidden, "heads", heads)
    side = divide("image", image, "patch", patch)
    blocks = [EncoderBlock(hidden, heads, intermediate, dropout) for _ in range(layers)]
    model = ViT(side, patch, hidden, blocks, classes, dropout)
    return classifier(model, torch.randn(batch, 3, image, image), classes)
