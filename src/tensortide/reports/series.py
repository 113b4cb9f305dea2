"""Memory of a document at every op, from the lives of its storages."""

from __future__ import annotations

from itertools import accumulate

from tensortide.graph.roles import WORKSPACE
from tensortide.reports.columns import Ints
from tensortide.reports.document import Document


def memory_by_role(document: Document, lifetimes: str = "eager") -> dict[str, list[int]]:
    """Bytes resident during each op for each role that occurs; they add up to the Timeline's ``resident``."""
    storages, count = document.storages, len(document.ops.name)
    changes = {role: [0] * (count + 2) for role in storages.roles}
    deaths = deaths_of(document, lifetimes)
    for role, nbytes, birth, death in zip(storages.role, storages.nbytes, storages.birth, deaths, strict=True):
        if birth < death:
            change = changes[storages.roles[role]]
            change[max(birth, 0)] += nbytes
            change[death] -= nbytes
    series = {role: list(accumulate(change))[:count] for role, change in changes.items() if any(change)}
    if any(document.ops.workspace_bytes):
        series[WORKSPACE] = list(document.ops.workspace_bytes)
    return series


def deaths_of(document: Document, lifetimes: str) -> Ints:
    """Column of deaths under ``lifetimes``."""
    return document.storages.death if lifetimes == "eager" else document.storages.last_use_death
