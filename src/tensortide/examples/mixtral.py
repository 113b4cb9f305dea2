"""Mixtral: Jiang et al., "Mixtral of Experts", 2024; capacities as in Lepikhin et al., "GShard", 2020.

Which tokens an expert gets depends on values, and so would the shapes, were every expert to take exactly the tokens
routed to it. The routing here has fixed shapes instead, so a step can be captured without values.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import check_attention, head_size
from tensortide.examples.decoders import Decoder, DecoderLayer, GroupedQueryAttention, rotary_table
from tensortide.examples.training import Parts, choose, default_dtype, next_token_loss, tokens, trained
from tensortide.workload import legal

__all__ = ["MixtureOfExperts", "mixtral"]


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
