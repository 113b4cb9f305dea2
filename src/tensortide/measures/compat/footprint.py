"""The footprint of deeplite-profiler 1.2.5 against our activation peak, storage by storage."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from tensortide.errors import Unavailable
from tensortide.graph.model import Graph
from tensortide.measures.compat.liveness import BYTES, LiveNode, live_nodes
from tensortide.measures.compat.nodes import NodeGraph
from tensortide.timelines.resident import GIVEN


def footprint_reasons(traced: NodeGraph, batch: int) -> tuple[int, dict[str, Fraction | int]]:
    """Return our activation peak in bytes, and what leads from it to the footprint there: bytes by reason."""
    graph = traced.graph
    at, resident = _peak(graph)
    ours = sum(graph.storages[storage].nbytes for storage in resident)
    try:
        rows = live_nodes(traced)
    except Unavailable:
        return ours, {}
    peak = max(rows, key=lambda row: row.nbytes, default=None)
    live = 0 if peak is None else peak.nbytes
    reasons: dict[str, Fraction | int] = defaultdict(int)
    if peak is not None:
        _compare(graph, peak, resident, at, reasons)
    reasons["the live bytes are multiplied by 4 once more"] += 3 * live
    reasons[f"divided by the batch of {batch}"] += Fraction(4 * live, batch) - 4 * live
    return ours, dict(reasons)


def _peak(graph: Graph) -> tuple[int, set[int]]:
    """The op at which most bytes of results are resident, and the storages that are."""
    results = {
        index: storage
        for index, storage in enumerate(graph.storages)
        if storage.birth is not None and storage.role not in GIVEN
    }
    change = [0] * (len(graph.ops) + 1)
    for storage in results.values():
        change[storage.birth or 0] += storage.nbytes
        if storage.death is not None:
            change[storage.death] -= storage.nbytes
    best = at = total = 0
    for index, delta in enumerate(change[:-1]):
        total += delta
        if total > best:
            best, at = total, index
    end = len(graph.ops)
    alive = {
        index
        for index, storage in results.items()
        if (storage.birth or 0) <= at < (end if storage.death is None else storage.death)
    }
    return at, alive


def _compare(graph: Graph, peak: LiveNode, resident: set[int], at: int, reasons: dict[str, Fraction | int]) -> None:
    """Add the difference between the live values at their peak and the storages at ours."""
    where, here = f"their peak, at {peak.node.name}", f"ours, at op {at}"
    seen: set[int] = set()
    for value in peak.live:
        storage, counted = value.tensor.storage, BYTES * value.tensor.numel
        if storage in seen:
            reasons["views and results in place count as further values"] += counted
            continue
        seen.add(storage)
        whole = graph.storages[storage].nbytes
        if storage not in resident:
            what = "inputs and weights seen through views" if graph.storages[storage].birth is None else "results"
            reasons[f"{what} that are live at {where}, and not at {here}"] += counted
        elif value.tensor.nbytes == whole:
            reasons[f"{value.tensor.dtype} counted as 4 bytes"] += counted - whole
        else:
            reasons["views counted by their own elements, and not by the storage that they keep"] += counted - whole
    for storage in resident - seen:
        reasons[f"storages resident at {here}, that are no live values at {where}"] -= graph.storages[storage].nbytes
