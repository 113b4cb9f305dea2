"""A step as an importer returns it: its Graph, and what the source says beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensortide.shown import Shown

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.importers.memory_snapshot.records import Snapshot
    from tensortide.plans.remat.schedule import Recording
    from tensortide.timing.durations import Durations, Times


@dataclass(frozen=True, repr=False)
class Imported(Shown):
    """``graph``, and beside it facts that a Graph has no place for; each is optional.

    ``durations`` of its ops, and ``times``: the same exactly, where they are not whole nanoseconds. ``events``: the
    order in which the program took and released its references. ``kernels`` and ``tensors``: the name of each op and
    of each tensor in the source. ``symbols``: values of the symbols in its sizes. ``unknown``: tensors whose size
    depends on a symbol without a value; they have 0 bytes in the graph. ``measure``: the source asks for its ops to be
    measured. ``device_bytes``: the memory of the device that it names. ``recording``: the snapshot of an allocator.
    """

    SECTION = "cost_table"
    graph: Graph
    durations: Durations | None = None
    events: Recording | None = None
    kernels: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    times: Times | None = None
    symbols: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()
    measure: bool = False
    device_bytes: int | None = None
    recording: Snapshot | None = None

    def __repr__(self) -> str:
        return f"<Imported {self.graph!r}>"


def with_names(graph: Graph, times: Times | None = None) -> Imported:
    """Name the ops of ``graph`` after what they call, its tensors after their storage, further views numbered."""
    kernels = tuple(graph.calls[op.call].op for op in graph.ops)
    seen: dict[int, int] = {}
    names: list[str] = []
    for tensor in graph.tensors:
        count = seen[tensor.storage] = seen.get(tensor.storage, -1) + 1
        name = graph.storages[tensor.storage].name or f"storage{tensor.storage}"
        names.append(f"{name}.{count}" if count else name)
    return Imported(graph, kernels=kernels, tensors=tuple(names), times=times)
