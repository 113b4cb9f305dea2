"""Targets that are files of graphs, by their names."""

from __future__ import annotations

__all__ = ["GRAPH_FILES", "is_graph_file"]

GRAPH_FILES = (".meta", ".meta.gz", ".pb", ".pb.gz")
"""How the names of serialized TensorFlow graphs end."""


def is_graph_file(target: str) -> bool:
    """Whether ``target`` names a serialized TensorFlow graph."""
    return target.endswith(GRAPH_FILES)
