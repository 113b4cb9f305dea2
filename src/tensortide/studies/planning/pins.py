"""Storages that the user pins, by module or by role."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.module_paths import is_inside
from tensortide.timelines.resident import storage_homes


def pinned(graph: Graph, patterns: Iterable[str]) -> set[int]:
    """Storages of a role, or of a module or of one inside it, that a pattern names (``blocks.*.mlp``, ``parameter``).

    A storage belongs to the module of its parameter, else to that of the op that allocates it. Raises PlanError for a
    pattern that names nothing.
    """
    homes = [graph.module_path(module) for module in storage_homes(graph)]
    found: set[int] = set()
    for pattern in patterns:
        named = {
            number
            for number, storage in enumerate(graph.storages)
            if fnmatch.fnmatchcase(storage.role.value, pattern) or is_inside(homes[number], pattern)
        }
        if not named:
            roles = ", ".join(sorted({storage.role.value for storage in graph.storages}))
            raise PlanError(f"--pin {pattern} names no tensor: give a module path (blocks.*.mlp), or a role: {roles}")
        found |= named
    return found
