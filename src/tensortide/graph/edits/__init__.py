"""Edits of a Graph: functions that return another Graph, whose storages, lifetimes and names are right again."""

from __future__ import annotations

from tensortide.graph.edits.draft import compacted, tensor
from tensortide.graph.edits.grouping import fuse, split
from tensortide.graph.edits.single import delete, insert, replace, rewire
from tensortide.graph.sizes import resized

__all__ = ["compacted", "delete", "fuse", "insert", "replace", "resized", "rewire", "split", "tensor"]
