"""Bytes over one step as other liveness tools count them: every tensor owns its bytes, views too."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tensortide.graph.model import Graph
from tensortide.memory.layout import bytes_of
from tensortide.timelines.intervals import Life, active_bytes, lasting_tensors, live_bytes

__all__ = ["CompatSeries", "compat_series"]


class CompatSeries(msgspec.Struct, frozen=True):
    """Bytes per op, as G10 writes them.

    ``active``: what the op touches. ``active_breakdown``: the same as input (what the first op of the step makes),
    weights (what lives across steps) and the rest. ``total``: all weights, whatever else is alive, and tensor 0 once
    more, which G10 counts twice. ``live``: without that. ``global_weight``: all weights. ``input_size``: tensor 0.
    """

    active: tuple[int, ...]
    active_breakdown: tuple[tuple[int, int, int], ...]
    total: tuple[int, ...]
    live: tuple[int, ...]
    global_weight: int
    input_size: int


def compat_series(graph: Graph, lives: Sequence[Life]) -> CompatSeries:
    """The series of ``graph``, whose ``lives`` are those of its tensors in mode ``compat``."""
    import numpy as np

    count = len(graph)
    lasting = lasting_tensors(graph)
    weights = sum(bytes_of(tensor) for tensor, lasts in zip(graph.tensors, lasting, strict=True) if lasts)
    resident = sum(life.nbytes for life in lives if life.persistent)
    live = live_bytes(lives, count) + (weights - resident)  # weights that no op uses are there too
    active = active_bytes(lives, count)
    of_weights = active_bytes([life for life in lives if life.persistent], count)
    of_input = np.zeros(count, np.int64)
    if count:
        made = {tensor for tensor in graph.ops[0].outputs if not lives[tensor].persistent}
        of_input[0] = sum(lives[tensor].nbytes for tensor in made)
    first = bytes_of(graph.tensors[0]) if graph.tensors else 0
    parts = (of_input.tolist(), of_weights.tolist(), (active - of_weights - of_input).tolist())
    return CompatSeries(
        active=tuple(active.tolist()),
        active_breakdown=tuple(zip(*parts, strict=True)),
        total=tuple((live + first).tolist()),
        live=tuple(live.tolist()),
        global_weight=weights,
        input_size=first,
    )
