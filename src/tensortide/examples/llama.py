"""Llama: Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023.

RMS norm, rotary position embedding, gated feed-forward (SwiGLU) and grouped-query attention, all without biases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tensortide.examples.attention import attend, check_attention, merge_heads, split_heads
from tensortide.examples.training import Step, default_dtype, divide, next_token_loss, tokens, training_step
from tensortide.workload import legal

__all__ = ["Decoder", "GatedFeedForward", "GroupedQueryAttention", "llama", "rotary_table", "rotate"]


def rotary_table(seq: int, size: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines (seq, size / 2) of position times frequency."""
    frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.outer(torch.arange(seq, dtype=torch.float32), frequency)
    kind = torch.get_default_dtype()
    return angles.cos().to(kind), angles.sin().to(kind)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + d / 2) of ``x`` (B, heads, S, d) by their position's angles."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class GroupedQueryAttention(nn.Module):
    """(B, S, hidden) -> (B, S, hidden), causal; groups of query heads share one key-value head."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, attention: str) -> None:
        super().__init__()
        size = hidden // heads
        self.heads, self.kv_heads = heads, kv_heads
        self.attention = attention
        self.query = nn.Linear(hidden, heads * size, bias=False)
        self.key = nn.Linear(hidden, kv_heads * size, bias=False)
        self.value = nn.Linear(hidden, kv_heads * size, bias=False)
        self.out = nn.Linear(heads * size, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query = rotate(split_heads(self.query(x), self.heads), cos, sin)
        key = rotate(split_heads(self.key(x), self.kv_heads), cos, sin)
        value = split_heads(self.value(x), self.kv_heads)
        out: Tensor = self.out(merge_heads(attend(query, key, value, attention=self.attention, causal=True)))
        return out


class GatedFeedForward(nn.Module):
    """(..., hidden) -> (..., hidden): down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return out


class DecoderLayer(nn.Module):
    """(B, S, hidden) -> (B, S, hidden): attention and feed-forward, each normalized first and added."""

    def __init__(self, hidden: int, attention: GroupedQueryAttention, feed_forward: nn.Module) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(hidden, eps=1e-5)
        self.attention = attention
        self.norm2 = nn.RMSNorm(hidden, eps=1e-5)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        out: Tensor = x + self.feed_forward(self.norm2(x))
        return out


class Decoder(nn.Module):
    """Token ids (B, S) -> logits (B, S, vocab); embedding and head are two matrices."""

    cos: Tensor
    sin: Tensor

    def __init__(self, vocab: int, hidden: int, rotary: tuple[Tensor, Tensor], layers: list[DecoderLayer]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.register_buffer("cos", rotary[0], persistent=False)
        self.register_buffer("sin", rotary[1], persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits: Tensor = self.head(self.norm(x))
        return logits


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0")
def llama(
    batch: int = 8,
    seq: int = 512,
    hidden: int = 512,
    layers: int = 8,
    heads: int = 8,
    kv_heads: int = 2,
    intermediate: int = 1376,
    vocab: int = 32000,
    attention: str = "sdpa",
    dtype: str = "float32",
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """Llama language model with grouped-query attention; 55 M parameters by default.

    Llama 2 7B is ``hidden=4096 layers=32 heads=32 kv_heads=32 intermediate=11008 seq=4096``.
    """
    size = divide("hidden", hidden, "heads", heads)
    divide("heads", heads, "kv_heads", kv_heads)
    divide("hidden / heads", size, "the pairs of a rotation", 2)
    check_attention(attention)
    with default_dtype(dtype):
        feed_forwards = [GatedFeedForward(hidden, intermediate) for _ in range(layers)]
        mixers = [GroupedQueryAttention(hidden, heads, kv_heads, attention) for _ in range(layers)]
        blocks = [DecoderLayer(hidden, *parts) for parts in zip(mixers, feed_forwards, strict=True)]
        model = Decoder(vocab, hidden, rotary_table(seq, size), blocks)
    ids, targets = tokens(vocab, batch, seq), tokens(vocab, batch, seq)
    return training_step(
        model, [ids], lambda logits: next_token_loss(logits, targets), optimizer, lr=3e-4, clip=1.0, train=train
    )
