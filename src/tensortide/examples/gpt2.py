"""GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import attend, check_attention, merge_heads, split_heads
from tensortide.examples.training import Step, default_dtype, divide, next_token_loss, tokens, training_step
from tensortide.workload import legal

__all__ = ["gpt2"]


class CausalSelfAttention(nn.Module):
    """(B, S, hidden) -> (B, S, hidden); queries, keys and values come from one product."""

    def __init__(self, hidden: int, heads: int, dropout: float, attention: str) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.attention = attention
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        mixed = attend(query, key, value, attention=self.attention, causal=True, dropout=dropout)
        out: Tensor = self.out(merge_heads(mixed))
        return out


class Block(nn.Module):
    """(B, S, hidden) -> (B, S, hidden): attention and feed-forward, each normalized first and added."""

    def __init__(self, hidden: int, heads: int, dropout: float, attention: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = CausalSelfAttention(hidden, heads, dropout, attention)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.activation = nn.GELU(approximate="tanh")
        self.down = nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        out: Tensor = x + self.dropout(self.down(self.activation(self.up(self.norm2(x)))))
        return out


class GPT2(nn.Module):
    """Token ids (B, S) -> logits (B, S, vocab); the output product uses the token embedding's weight."""

    def __init__(
        self, vocab: int, positions: int, hidden: int, layers: int, heads: int, dropout: float, attention: str
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(hidden, heads, dropout, attention) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        where = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(where))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


@legal("hidden % heads == 0", "seq <= positions")
def gpt2(
    batch: int = 8,
    seq: int = 1024,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    vocab: int = 50257,
    positions: int = 1024,
    dropout: float = 0.0,
    attention: str = "sdpa",
    dtype: str = "float32",
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """GPT-2 language model with a tied head; small by default, 124 M parameters.

    The paper trains with dropout 0.1; the default 0 is today's practice and keeps the fused attention on every device.
    """
    divide("hidden", hidden, "heads", heads)
    if seq > positions:
        raise ValueError(f"seq={seq} needs positions={seq} or more, got positions={positions}")
    check_attention(attention)
    with default_dtype(dtype):
        model = GPT2(vocab, positions, hidden, layers, heads, dropout, attention)
    ids, targets = tokens(vocab, batch, seq), tokens(vocab, batch, seq)
    return training_step(
        model, [ids], lambda logits: next_token_loss(logits, targets), optimizer, lr=6e-4, clip=1.0, train=train
    )
