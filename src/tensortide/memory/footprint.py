"""The footprint of a step: bytes of all its storages, whether or not they are ever resident together."""

from __future__ import annotations

from tensortide.graph.model import Graph

__all__ = ["footprint_bytes", "storage_copies"]


def footprint_bytes(graph: Graph) -> int:
    """Bytes of all distinct storages of one step: views and results in place add nothing.

    A storage that a loop's body allocates counts once per iteration; one that the body updates in place was allocated
    outside of it and counts once.
    """
    copies = storage_copies(graph)
    return sum(storage.nbytes * times for storage, times in zip(graph.storages, copies, strict=True))


def storage_copies(graph: Graph) -> tuple[int, ...]:
    """How often one step allocates each storage: once, or as often as the op that does so runs."""
    return tuple(1 if storage.birth is None else graph.trips(storage.birth) for storage in graph.storages)
