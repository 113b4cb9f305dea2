"""The footprint of a step: bytes of all its storages, whether or not they are ever resident together."""

from __future__ import annotations

from tensortide.graph.model import Graph

__all__ = ["footprint_bytes"]


def footprint_bytes(graph: Graph) -> int:
    """Bytes of all distinct storages of one step, on all devices: views and results in place add nothing.

    A storage that a loop's body allocates counts once per iteration; one that the body updates in place was allocated
    outside of it and counts once.
    """
    return sum(storage.nbytes * copies for storage, copies in zip(graph.storages, graph.index.copies, strict=True))
