"""Families of ops: each answers for all ops that are instances of it, whatever vocabulary names them.

A family is a function from a row's operands and attributes to the rule that the ops of the row have: cost, bytes, how
the shape of the result follows, the dimensions of a product. What else other rooms ask of an op, they keep in tables by
the name of its family.
"""

from __future__ import annotations

from tensortide.cost.families.einsum import einsum
from tensortide.cost.families.moves import collective, fill, free, gather, move, part, placed
from tensortide.cost.families.products import contraction, convolution, decomposition, fourier, recurrent, substitution
from tensortide.cost.families.reductions import (
    channelwise,
    combined,
    normalization,
    reduction,
    running,
    search,
    softmax,
    softmax_gradient,
    sort,
    topk,
)
from tensortide.cost.families.table import FAMILIES, read_rows
from tensortide.cost.families.updates import (
    histogram,
    integer,
    numbered,
    random,
    sampled,
    scatter,
    segment,
    selected,
    update,
)
from tensortide.cost.families.windows import adaptive, folded, local_response, pool, resample
from tensortide.cost.registry import elementwise

__all__ = [
    "FAMILIES",
    "adaptive",
    "channelwise",
    "collective",
    "combined",
    "contraction",
    "convolution",
    "decomposition",
    "einsum",
    "elementwise",
    "fill",
    "folded",
    "fourier",
    "free",
    "gather",
    "histogram",
    "integer",
    "local_response",
    "move",
    "normalization",
    "numbered",
    "part",
    "placed",
    "pool",
    "random",
    "read_rows",
    "recurrent",
    "reduction",
    "resample",
    "running",
    "sampled",
    "scatter",
    "search",
    "segment",
    "selected",
    "softmax",
    "softmax_gradient",
    "sort",
    "substitution",
    "topk",
    "update",
]
