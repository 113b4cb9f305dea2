"""Storages that a live run cannot move or evict, whatever a plan says."""

from __future__ import annotations

from tensortide.graph.model import Graph, Tensor

SMALL = 64 << 10
"""Most bytes of integers in a row that always stay resident. C++ keeps the address of lengths, offsets and batch sizes
while other ops run."""


def immovable(graph: Graph) -> set[int]:
    """Storages of ``graph`` that stay where they are in a live run, whatever a plan says: planners pin them.

    Others are found only while the program runs: those whose address was handed out, or that share their memory.
    """
    stay = {graph.index.owner[i] for i, tensor in enumerate(graph.tensors) if _is_index(tensor)}
    return {s for s in stay if graph.storages[s].birth is not None and graph.storages[s].nbytes <= SMALL}


def _is_index(tensor: Tensor) -> bool:
    return tensor.dtype in ("int32", "int64") and len(tensor.shape) <= 1
