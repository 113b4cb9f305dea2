"""Scaled dot-product attention, fused or spelled out, shared by the transformers here."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tensortide.examples.training import choose, divide

__all__ = ["attend", "check_attention", "check_lengths", "head_size", "merge_heads", "sinusoids", "split_heads"]


def check_attention(name: str) -> str:
    """``name`` if ``attend`` knows it; a ValueError that lists those it knows if not."""
    return choose("attention", name, ("sdpa", "eager"))


def check_lengths(hidden: int, heads: int, seq: int, positions: int) -> None:
    """Raise ValueError unless ``heads`` divide ``hidden`` and each token of a sequence has a position."""
    divide("hidden", hidden, "heads", heads)
    if seq > positions:
        raise ValueError(f"seq={seq} needs positions={seq} or more, got positions={positions}")


def head_size(hidden: int, heads: int, kv_heads: int) -> int:
    """The size of a head of grouped-query attention whose pairs are rotated; ValueError if there is none."""
    size = divide("hidden", hidden, "heads", heads)
    divide("heads", heads, "kv_heads", kv_heads)
    divide("hidden / heads", size, "the pairs of a rotation", 2)
    return size


def sinusoids(where: Tensor, size: int) -> Tensor:
    """(S,) -> (S, size): sines of the positions in the first half of the channels, cosines in the second."""
    frequency = 10000.0 ** (-torch.arange(0, size, 2, device=where.device) / size)
    angles = where.unsqueeze(1) * frequency
    return torch.cat([angles.sin(), angles.cos()], 1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, S, heads * d) -> (B, heads, S, d), a view."""
    heads_apart: Tensor = x.unflatten(-1, (heads, -1))
    return heads_apart.transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, heads, S, d) -> (B, S, heads * d)."""
    return x.transpose(1, 2).flatten(2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attention: str = "sdpa",
    causal: bool = False,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of ``query`` (B, heads, S, d) over ``key`` and ``value`` (B, kv_heads, T, d).

    ``mask`` is boolean, broadcasts to (B, heads, S, T) and is True where attention is allowed; ``causal`` allows
    only positions up to the query's own. Fewer key-value heads than heads are shared by groups of neighbours.
    """
    grouped = query.shape[1] != key.shape[1]
    if attention == "sdpa":
        shared: dict[str, Any] = {"enable_gqa": True} if grouped else {}  # since PyTorch 2.5
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, **shared
        )
    if grouped:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if causal:
        lower = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        mask = lower if mask is None else mask & lower
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return F.dropout(scores.softmax(-1), dropout) @ value
