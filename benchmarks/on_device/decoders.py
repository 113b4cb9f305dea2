"""A GPT-2 and a Llama, whole or in parts."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Shape(NamedTuple):
    """Sizes of a model, and the batch of one micro-batch; without ``ffn`` it is a GPT-2, else a Llama."""

    hidden: int
    layers: int
    heads: int
    vocab: int
    seq: int
    batch: int
    dtype: str = "bfloat16"
    kv_heads: int = 0
    ffn: int = 0


SHAPES = {
    "gpt2": Shape(2048, 24, 16, vocab=50304, seq=1024, batch=8),
    "llama": Shape(2048, 16, 16, vocab=32000, seq=2048, batch=4, kv_heads=8, ffn=5632),
}
TINY = {
    "gpt2": Shape(64, 4, 8, vocab=512, seq=32, batch=2, dtype="float32"),
    "llama": Shape(64, 4, 8, vocab=512, seq=32, batch=2, dtype="float32", kv_heads=8, ffn=128),
}


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention of heads in the second dimension, and (B, S, heads * d) of it."""
    grouped = {"enable_gqa": True} if query.shape[1] != key.shape[1] else {}
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, **grouped).transpose(1, 2).flatten(2)


class GPT2Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden, self.head = shape.hidden, shape.hidden // shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(attention(*(part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in parts)))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class LlamaBlock(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden, self.head = shape.hidden, shape.hidden // shape.heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.query, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(hidden, shape.kv_heads * self.head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, shape.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.ffn, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norm1(x)
        query, key, value = (
            layer(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        x = x + self.out(attention(rotate(query, cos, sin), rotate(key, cos, sin), value))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Blocks ``start`` to ``end`` with the embedding before the first and the head after the last, in which GPT-2 uses
    the weight of the embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape, start: int, end: int, *, recompute: bool) -> None:
        super().__init__()
        self.first, self.last, self.recompute, llama = start == 0, end == shape.layers, recompute, shape.ffn > 0
        if self.first or not llama:
            self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        if self.first and not llama:
            self.positions = nn.Embedding(shape.seq, shape.hidden)
        make = LlamaBlock if llama else GPT2Block
        self.blocks = nn.ModuleList([make(shape) for _ in range(start, end)])
        if self.last:
            self.norm = nn.RMSNorm(shape.hidden, eps=1e-5) if llama else nn.LayerNorm(shape.hidden)
            self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
            if not llama:
                self.head.weight = self.tokens.weight
        elif not self.first and not llama:
            del self.tokens
        if llama:
            size = shape.hidden // shape.heads
            frequency = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
            angles = torch.outer(torch.arange(shape.seq, dtype=torch.float32), frequency)
            self.register_buffer("cos", angles.cos().to(torch.get_default_dtype()), persistent=False)
            self.register_buffer("sin", angles.sin().to(torch.get_default_dtype()), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            ids, x = x, self.tokens(x)
            if hasattr(self, "positions"):
                x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        tables = (self.cos, self.sin) if hasattr(self, "cos") else ()
        for block in self.blocks:
            x = checkpoint(block, x, *tables, use_reentrant=False) if self.recompute else block(x, *tables)
        return self.head(self.norm(x)) if self.last else x
