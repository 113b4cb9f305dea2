"""Ops that may belong to the region of an expert: those that work on each row alone, and who reads their results."""

from __future__ import annotations

from collections.abc import Iterable

from tensortide.graph.model import Graph, Op

SUMS = ("add", "allreduce")
"""Ops that sum results of experts, the same wherever the rows are."""


def is_view(graph: Graph, op: Op) -> bool:
    """Return whether the outputs of an op lie in storages of its inputs."""
    owner = graph.index.owner
    return bool(op.outputs) and {owner[t] for t in op.outputs} <= {owner[t] for t in op.inputs}


def is_reshaped(graph: Graph, op: Op) -> bool:
    """Return whether an op views all elements of a tensor."""
    return is_view(graph, op) and len({graph.tensors[t].numel for t in (*op.outputs, *op.inputs)}) == 1


def readers_of(graph: Graph, indexes: Iterable[int]) -> dict[int, set[int]]:
    """The ops among ``indexes`` that read each tensor."""
    found: dict[int, set[int]] = {}
    for index in indexes:
        for tensor in graph.ops[index].inputs:
            found.setdefault(tensor, set()).add(index)
    return found
