"""Keys and values that travel in a ring: each step is beside the attention to the part that has come before.

A ring of c ranks moves the bytes of a gather in c - 1 steps (Liu et al., "Ring Attention", 2310.01889). While one part
is on its way, queries attend to the last: of the exchange, what outlasts c - 1 of c parts of the kernel is exposed. In
the backward pass keys, values and their gradients travel beside the backward kernel. Parts that mirror each other
(zigzag) make all ranks' kernels alike under a causal mask. Where the Graph has the ring itself, each of its steps is
beside the kernel that follows it in the same attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tensortide.graph.communication import group_of, kind_of
from tensortide.graph.model import Graph
from tensortide.parallelism.context import GROUP
from tensortide.parallelism.keys import ATTENTION
from tensortide.parallelism.sites import base_name
from tensortide.timing.collectives.constants import CONTENTION
from tensortide.timing.estimates import Estimate


def beside_attention(
    graph: Graph, times: Mapping[int, Estimate], ns: Sequence[float], ranks: int
) -> dict[int, Estimate]:
    """The exposed part, by op, of the exchanges of fused attention in a ring of ``ranks``. ``times``: those of
    collectives, by op; ``ns``: those of all ops. An exchange beside a kernel slows the kernel down (``CONTENTION``)."""
    found: dict[int, Estimate] = {}
    for kernel, exchanges in _exchanges(graph, times).items():
        whole = sum(times[index].time_ns for index in exchanges)
        in_ring = kind_of(graph[exchanges[0]].name) == "send_recv" if exchanges else False
        exposed = max(0.0, whole - ns[kernel] * (1 if in_ring else (ranks - 1) / ranks))
        share = (exposed + CONTENTION * (whole - exposed)) / whole if whole else 0.0
        found.update({index: _scaled(times[index], share) for index in exchanges})
    return found


def _exchanges(graph: Graph, times: Mapping[int, Estimate]) -> dict[int, list[int]]:
    """The collectives of each fused kernel: gathers before it and scatters after it."""
    kernels = [i for i, op in enumerate(graph.ops) if base_name(graph.calls[op.call].op).startswith(ATTENTION)]
    found: dict[int, list[int]] = {kernel: [] for kernel in kernels}
    for index in times:
        if group_of(graph[index]) != GROUP:
            continue
        kind, near = kind_of(graph[index].name), list[int]()
        if kind == "all_gather":
            near = [kernel for kernel in kernels if kernel > index][:1]
        elif kind == "send_recv":
            here = graph.ops[index].module, graph.ops[index].phase
            later = (kernel for kernel in kernels if kernel > index)
            near = [kernel for kernel in later if (graph.ops[kernel].module, graph.ops[kernel].phase) == here][:1]
        elif kind == "reduce_scatter":
            near = [kernel for kernel in kernels if kernel < index][-1:]
        for kernel in near:
            found[kernel].append(index)
    return found


def _scaled(time: Estimate, share: float) -> Estimate:
    """``share`` of a time, with the same relative interval."""
    if not time.time_ns or not share:
        return Estimate()
    below, above = math.log(time.time_ns / time.low_ns), math.log(time.high_ns / time.time_ns)
    return Estimate.of(share * time.time_ns, below, above, time.provenance, "collective")
