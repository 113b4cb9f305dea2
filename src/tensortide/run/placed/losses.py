"""Losses of a step in several processes, held against those of one process."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.dtypes import is_half
from tensortide.graph.model import Graph

_TOLERANCE, _HALF_TOLERANCE = 1e-5, 1e-2
"""Shares by which a loss that is added in another order may differ from that of one process, without and with 2-byte
floats."""


def tolerance_of(graph: Graph) -> float:
    """The share by which a loss of ``graph`` may differ when it is added in another order."""
    return _HALF_TOLERANCE if any(is_half(tensor.dtype) for tensor in graph.tensors) else _TOLERANCE


def same_bits(ran: Sequence[float], alone: Sequence[float]) -> bool:
    """Return whether two lists of losses are bit-identical."""
    return [*map(float.hex, ran)] == [*map(float.hex, alone)]


def furthest(ran: Sequence[float], alone: Sequence[float]) -> float:
    """The largest difference of a loss from that of one process, as a share of it; infinite where one is no number, or
    is missing."""
    if len(ran) != len(alone):
        return math.inf
    return max((_difference(*pair) for pair in zip(ran, alone, strict=True)), default=0.0)


def _difference(ran: float, alone: float) -> float:
    """The difference of two losses as a share of the second."""
    if ran == alone or (math.isnan(ran) and math.isnan(alone)):
        return 0.0
    share = abs(ran - alone) / abs(alone) if alone else math.inf
    return math.inf if math.isnan(share) else share
