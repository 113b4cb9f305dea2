"""A schedule of nodes as a Plan of ops."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.checkpointing.stages import Free, StaticPlan
from tensortide.plans.checkpointing.static import StaticGraph
from tensortide.plans.model import Compute, Evict, Lane, Plan


def to_plan(static_plan: StaticPlan, static: StaticGraph, graph: Graph, device: str = "") -> Plan:
    """The Plan of ``graph``, its loops written out, that computes the ops of each node as ``static_plan`` says.

    ``static`` is ``static_graph(graph, ...)``. Views are computed with their source the first time, ops that no node
    stands for at their place in the step. What is freed is evicted only if it is touched again. ``device`` names the
    lane; default ``Index.main_device``.
    """
    graph = unrolled(graph)
    steps: list[Compute | Evict] = []
    later: set[int] = set()
    for step in reversed(list(_spelled(static_plan, static, len(graph)))):
        if isinstance(step, Compute):
            later.update(graph.index.touches[step.op])
        elif step.storage not in later:
            continue
        steps.append(step)
    return Plan(graph.index.digest, (Lane(graph.index.device(device), tuple(reversed(steps))),))


def _spelled(static_plan: StaticPlan, static: StaticGraph, count: int) -> Iterator[Compute | Evict]:
    """The ops of each node; the evictions of all that is freed."""
    of_nodes = {op for ops in static.ops for op in ops}
    loose = [op for op in range(count - 1, -1, -1) if op not in of_nodes]
    made: set[int] = set()
    for step in static_plan.steps:
        if isinstance(step, Free):
            yield from map(Evict, static.storages[step.node])
            continue
        ops, first = static.ops[step.node], step.node not in made
        made.add(step.node)
        place = max((op for op in ops if op not in static.views), default=max(ops, default=-1))
        while first and loose and loose[-1] < place:
            yield Compute(loose.pop())
        for op in ops:
            if first or op not in static.views:
                yield Compute(op)
    yield from map(Compute, reversed(loose))
