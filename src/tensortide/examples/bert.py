"""BERT: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import attend, check_attention, merge_heads, split_heads
from tensortide.examples.training import Step, choose, default_dtype, divide, next_token_loss, tokens, training_step
from tensortide.workload import legal

__all__ = ["bert"]


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
        x: Tensor = self.dropout(self.norm(self.tokens(ids) + self.segments(segments) + self.positions(where)))
        return x


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

    def __init__(
        self,
        vocab: int,
        positions: int,
        hidden: int,
        layers: int,
        heads: int,
        intermediate: int,
        dropout: float,
        attention: str,
    ) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocab, positions, hidden, dropout)
        self.layers = nn.Sequential(
            *(EncoderLayer(hidden, heads, intermediate, dropout, attention) for _ in range(layers))
        )
        self.pooler = nn.Linear(hidden, hidden)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        encoded: Tensor = self.layers(self.embeddings(ids, segments))
        return torch.tanh(self.pooler(encoded[:, 0])), encoded


@legal("hidden % heads == 0", "seq <= positions")
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
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """BERT encoder with pooler; base by default, 109 M parameters.

    The loss needs no parameters beyond the encoder's own: ``objective="pooled"`` regresses the pooled vector to a
    random one; ``"masked"`` predicts every token by a product with the token embedding.
    """
    divide("hidden", hidden, "heads", heads)
    choose("objective", objective, ("pooled", "masked"))
    if seq > positions:
        raise ValueError(f"seq={seq} needs positions={seq} or more, got positions={positions}")
    check_attention(attention)
    with default_dtype(dtype):
        model = Bert(vocab, positions, hidden, layers, heads, intermediate, dropout, attention)
        wanted = torch.randn(batch, hidden)
    ids, segments, labels = tokens(vocab, batch, seq), tokens(2, batch, seq), tokens(vocab, batch, seq)

    def loss_fn(output: tuple[Tensor, Tensor]) -> Tensor:
        pooled, encoded = output
        if objective == "pooled":
            return F.mse_loss(pooled, wanted)
        return next_token_loss(F.linear(encoded, model.embeddings.tokens.weight), labels)

    return training_step(model, [ids, segments], loss_fn, optimizer, lr=1e-4, clip=1.0, train=train)
