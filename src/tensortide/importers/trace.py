"""A step that was read from other tools' files: its Graph, what these call its kernels and tensors, its times."""

from __future__ import annotations

import msgspec

from tensortide.graph.model import Graph
from tensortide.timing.exact import Times

__all__ = ["Trace", "trace_of"]


class Trace(msgspec.Struct, frozen=True):
    """``graph``, and beside it what a Graph has no place for.

    ``kernels``: the name of each op, in full, as the source has it. ``tensors``: the name of each tensor. ``times``:
    of each op, where they are known. ``unknown``: tensors whose size nobody knows (a symbolic dimension without a
    value): the graph has them with 0 bytes.
    """

    graph: Graph
    kernels: tuple[str, ...]
    tensors: tuple[str, ...]
    times: Times | None = None
    unknown: tuple[int, ...] = ()


def trace_of(graph: Graph, times: Times | None = None) -> Trace:
    """``graph`` as a Trace: ops are called what they call, tensors like their storage, the views of it numbered."""
    kernels = tuple(graph.calls[op.call].op for op in graph.ops)
    seen: dict[int, int] = {}
    names: list[str] = []
    for tensor in graph.tensors:
        count = seen[tensor.storage] = seen.get(tensor.storage, -1) + 1
        name = graph.storages[tensor.storage].name or f"storage{tensor.storage}"
        names.append(f"{name}.{count}" if count else name)
    return Trace(graph, kernels, tuple(names), times)
