"""Decoders: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2); Touvron et al.,
"Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023; Jiang et al., "Mixtral of Experts", 2024.

Llama has RMS norm, rotary position embedding, gated feed-forward (SwiGLU) and grouped-query attention, all without
biases. Which tokens an expert of Mixtral gets depends on values, and so would the shapes, were every expert to take
exactly the tokens routed to it. The routing here has fixed shapes instead (capacities as in Lepikhin et al., "GShard",
2020), so a step can be captured without values.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import attend, check_attention, check_lengths, head_size, merge_heads, split_heads
from tensortide.examples.training import (
    Parts,
    choose,
    default_dtype,
    draw_weights,
    language_model,
    next_token_loss,
    tokens,
    trained,
)
from tensortide.workload import legal

__all__ = ["MixtureOfExperts", "gpt2", "llama", "mixtral", "rotary_table", "rotate"]


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
        return self.out(merge_heads(mixed))


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
        return x + self.dropout(self.down(self.activation(self.up(self.norm2(x)))))


class GPT2(nn.Module):
    """Token ids (B, S) -> logits (B, S, vocab); the output product uses the token embedding's weight."""

    def __init__(self, vocab: int, positions: int, hidden: int, blocks: list[Block], dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(hidden)
        draw_weights(self)

    def forward(self, ids: Tensor) -> Tensor:
        where = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(where))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


@legal("hidden % heads == 0", "seq <= positions")
@trained(lr=6e-4, clip=1.0, optimizer="adamw")
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
) -> Parts:
    """GPT-2 language model with a tied head; small by default, 124 M parameters.

    The paper trains with dropout 0.1; the default 0 is today's practice and keeps the fused attention on every device.
    """
    check_lengths(hidden, heads, seq, positions)
    check_attention(attention)
    with default_dtype(dtype):
        blocks = [Block(hidden, heads, dropout, attention) for _ in range(layers)]
        model = GPT2(vocab, positions, hidden, blocks, dropout)
    return language_model(model, vocab, batch, seq)


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
        return self.out(merge_heads(attend(query, key, value, attention=self.attention, causal=True)))


class GatedFeedForward(nn.Module):
    """(..., hidden) -> (..., hidden): down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


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
        return x + self.feed_forward(self.norm2(x))


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
        draw_weights(self)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0")
@trained(lr=3e-4, clip=1.0, optimizer="adamw")
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
) -> Parts:
    """Llama language model with grouped-query attention; 55 M parameters by default.

    Llama 2 7B is ``hidden=4096 layers=32 heads=32 kv_heads=32 intermediate=11008 seq=4096``.
    """
    size = head_size(hidden, heads, kv_heads)
    check_attention(attention)
    with default_dtype(dtype):
        feed_forwards = [GatedFeedForward(hidden, intermediate) for _ in range(layers)]
        mixers = [GroupedQueryAttention(hidden, heads, kv_heads, attention) for _ in range(layers)]
        blocks = [DecoderLayer(hidden, *parts) for parts in zip(mixers, feed_forwards, strict=True)]
        model = Decoder(vocab, hidden, rotary_table(seq, size), blocks)
    return language_model(model, vocab, batch, seq)


class MixtureOfExperts(nn.Module):
    """(B, S, hidden) -> (B, S, hidden): each token goes to its ``top`` best of E gated feed-forward experts.

    ``dispatch="capacity"``: each expert has ``ceil(capacity * T * top / E)`` slots for the T tokens of the batch and
    takes those routed to it with the largest weights; tokens beyond that are passed over, empty slots compute with
    weight 0. ``dispatch="dense"``: every expert computes every token, and weights of 0 drop what was not routed.

    """

    def __init__(self, hidden: int, intermediate: int, experts: int, top: int, capacity: float, dispatch: str) -> None:
        super().__init__()
        self.experts, self.top, self.capacity, self.dispatch = experts, top, capacity, dispatch
        self.balance: Tensor | None = None
        self.router = nn.Linear(hidden, experts, bias=False)
        self.gate = nn.Parameter(torch.randn(experts, hidden, intermediate) * 0.02)
        self.up = nn.Parameter(torch.randn(experts, hidden, intermediate) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, intermediate, hidden) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        weights = self._route(flat)
        mixed = self._dense(flat, weights) if self.dispatch == "dense" else self._routed(flat, weights)
        return mixed.view_as(x)

    def _route(self, flat: Tensor) -> Tensor:
        """Weights (T, E): the softmax over each token's ``top`` largest router logits, 0 elsewhere."""
        logits = self.router(flat)
        best, index = logits.topk(self.top, -1)
        if self.training:
            share = torch.zeros_like(logits).scatter(1, index, 1.0 / self.top).mean(0)
            self.balance = self.experts * (share * logits.softmax(-1).mean(0)).sum()
        return torch.zeros_like(logits).scatter(1, index, best.softmax(-1))

    def take_balance(self) -> Tensor:
        """The load-balancing loss of the last forward pass in training mode, once.

        E * sum(share of the tokens * mean router probability) over the experts: 1 where the load is even.
        """
        balance, self.balance = self.balance, None
        assert balance is not None, "no forward pass in training mode since the last call"
        return balance

    def _compute(self, tokens: Tensor) -> Tensor:
        """(E, C, hidden) -> (E, C, hidden), slice e by expert e."""
        return (F.silu(tokens @ self.gate) * (tokens @ self.up)) @ self.down

    def _routed(self, flat: Tensor, weights: Tensor) -> Tensor:
        slots = min(flat.shape[0], math.ceil(self.capacity * flat.shape[0] * self.top / self.experts))
        share, index = weights.t().topk(slots, -1)
        computed = self._compute(flat[index]) * share.unsqueeze(-1)
        return torch.zeros_like(flat).index_add(0, index.flatten(), computed.flatten(0, 1))

    def _dense(self, flat: Tensor, weights: Tensor) -> Tensor:
        everything = self._compute(flat.expand(self.experts, -1, -1))
        return (everything * weights.t().unsqueeze(-1)).sum(0)


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0", "top <= experts")
@trained(lr=3e-4, clip=1.0, optimizer="adamw")
def mixtral(
    batch: int = 8,
    seq: int = 512,
    hidden: int = 512,
    layers: int = 8,
    heads: int = 8,
    kv_heads: int = 2,
    intermediate: int = 1376,
    experts: int = 8,
    top: int = 2,
    capacity: float = 1.25,
    dispatch: str = "capacity",
    balance: float = 0.01,
    vocab: int = 32000,
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """Mixtral-style language model: Llama with a top-2 mixture of 8 experts.

    Mixtral 8x7B is ``hidden=4096 layers=32 heads=32 intermediate=14336 kv_heads=8``. See MixtureOfExperts for
    ``dispatch`` and ``capacity``; ``balance`` is the weight of the load-balancing loss.
    """
    size = head_size(hidden, heads, kv_heads)
    choose("dispatch", dispatch, ("capacity", "dense"))
    check_attention(attention)
    with default_dtype(dtype):
        mixtures = [MixtureOfExperts(hidden, intermediate, experts, top, capacity, dispatch) for _ in range(layers)]
        mixers = [GroupedQueryAttention(hidden, heads, kv_heads, attention) for _ in range(layers)]
        blocks = [DecoderLayer(hidden, *parts) for parts in zip(mixers, mixtures, strict=True)]
        model = Decoder(vocab, hidden, rotary_table(seq, size), blocks)
    ids, targets = tokens(vocab, batch, seq), tokens(vocab, batch, seq)

    def loss_fn(logits: Tensor) -> Tensor:
        return next_token_loss(logits, targets) + balance * torch.stack([m.take_balance() for m in mixtures]).mean()

    return model, [ids], loss_fn
