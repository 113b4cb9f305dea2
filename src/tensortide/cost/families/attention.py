"""Attention of heads: the pairs of query and key that a mask leaves, and what they cost forward and backward.

Counting convention: docs/cost.md, attention; the recomputation of scores in a fused backward follows Dao et al.,
"FlashAttention", 2022.
"""

from __future__ import annotations

from typing import NamedTuple

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost

FORWARD = "B Hq P (Dk + Dv) MACs + per query row of s keys: scale s, mask s, softmax 5s - 2, dropout 2s"
BACKWARD = "2 B Hq P (Dk + Dv) MACs (B Hq P Dk recomputed) + per query row: dropout 2s, softmax 4s - 1, scale s"


# -- pairs of query and key per head that a mask leaves ---------------------------------------------


def dense(queries: int, keys: int) -> int:
    """Every query meets every key."""
    return queries * keys


def top_left(queries: int, keys: int) -> int:
    """Causal from the first key on: key j <= query i.

    >>> top_left(4, 4), top_left(2, 4), top_left(4, 2)
    (10, 3, 7)
    """
    if queries >= keys:
        return keys * (keys + 1) // 2 + (queries - keys) * keys
    return queries * (queries + 1) // 2


def bottom_right(queries: int, keys: int) -> int:
    """Causal up to the last key: j <= i + keys - queries, decoding with a cache.

    >>> bottom_right(4, 4), bottom_right(2, 4), bottom_right(4, 2)
    (10, 7, 3)
    """
    if queries <= keys:
        return queries * keys - queries * (queries - 1) // 2
    return keys * (keys + 1) // 2


def window(queries: int, keys: int, left: int | None, right: int | None, shift: int = 0) -> int:
    """Keys from ``left`` before to ``right`` after the diagonal i + shift; None is unlimited.

    >>> window(4, 4, 1, 0), window(4, 4, None, 0), window(1, 8, 2, 0, shift=7)
    (7, 10, 3)
    """
    total = 0
    for i in range(queries):
        first = 0 if left is None else max(0, i + shift - left)
        last = keys - 1 if right is None else min(keys - 1, i + shift + right)
        total += max(0, last - first + 1)
    return total


# -- one attention ----------------------------------------------------------------------------------


class Problem(NamedTuple):
    """One attention: sizes, dense pairs of all batches together, and active pairs (None: unknown)."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dk: int
    dv: int
    pairs: int
    active: int | None
    masked: bool
    dropout: bool
    reason: str = ""
    scaled: bool = True

    @property
    def rows(self) -> int:
        return self.pairs // max(1, self.keys) * self.heads

    def show(self, op: OpCall) -> None:
        active = "unknown" if self.active is None else self.active
        op.let(B=self.batch, Hq=self.heads, Hkv=self.key_heads, Sq=self.queries, Sk=self.keys)
        op.let(Dk=self.dk, Dv=self.dv, P=self.pairs // max(1, self.batch), active_pairs=active)


def forward(op: OpCall, p: Problem) -> Cost:
    """Scores, softmax and the weighted sum of values."""
    p.show(op)
    s, rows = p.keys, p.rows
    per_row = (p.scaled + p.masked + 5) * s - 2 + (2 * s if p.dropout else 0)
    width = p.heads * (p.dk + p.dv)
    return Cost(
        macs=p.pairs * width,
        active_macs=None if p.active is None else p.active * width,
        elementwise_flops=rows * per_row,
        transcendentals=rows * 2 * s,
        comparisons=rows * (s - 1),
        random_draws=rows * s if p.dropout else 0,
        exact=not p.reason,
        reason=p.reason,
    )


def backward(op: OpCall, p: Problem, wanted: tuple[bool, ...]) -> Cost:
    """Gradients of query, key, value (and bias) as wanted; the scores are rebuilt by the kernel."""
    p.show(op)
    of_query, of_key, of_value, of_bias = wanted
    of_scores = of_query or of_key or of_bias
    width = p.heads * (p.dv * (of_value + of_scores) + p.dk * (of_query + of_key))
    s, rows = p.keys, p.rows
    per_row = (2 * s if p.dropout else 0) + (4 * s - 1 + s if of_scores else 0)
    key_rows = p.batch * p.key_heads * p.keys * (p.heads // max(1, p.key_heads) - 1)
    reduced = key_rows * (p.dk * of_key + p.dv * of_value)
    return Cost(
        macs=p.pairs * width,
        active_macs=None if p.active is None else p.active * width,
        kernel_recompute_macs=p.pairs * p.heads * p.dk,
        elementwise_flops=rows * per_row + reduced,
        exact=not p.reason,
        reason=p.reason,
    )
