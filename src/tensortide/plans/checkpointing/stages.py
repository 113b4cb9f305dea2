"""Schedules of a StaticGraph in stages, made from a retention matrix (Jain et al. 2020, section 3), and as Plans.

A step of n nodes is cut into n *stages*. In stage t node t is computed for the first time, and before it whatever nodes
below t are recomputed, in the order of their numbers. A retention matrix says what stage t finds resident:
``keep[t, v]``. Its last row, n, is what the step leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.checkpointing.static import StaticGraph
from tensortide.plans.model import Compute, Evict, Lane, Plan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Retention: TypeAlias = NDArray[np.bool_]

StaticStep: TypeAlias = Compute | Evict
"""As in a Plan, but of nodes: compute one, or release what it made."""


class StaticPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a StaticGraph.

    ``cost_ns``: time of all its ``Compute`` steps. ``peak_bytes``: most bytes resident while a node is computed, what
    it reads and what it makes included; ``activation_bytes`` without what is resident throughout. ``overhead``:
    ``cost_ns`` over the cost of computing every node once. ``segment_bytes``: the setting of Chen's greedy strategy.
    """

    strategy: str
    steps: tuple[StaticStep, ...]
    cost_ns: int
    activation_bytes: int
    peak_bytes: int
    overhead: float
    segment_bytes: float = 0.0


def nothing_kept(static: StaticGraph) -> Retention:
    """A retention matrix that says nothing but what the step leaves behind: that stays from when it is made."""
    import numpy as np

    keep = np.zeros((len(static) + 1, len(static)), bool)
    for node in static.kept:
        keep[node + 1 :, node] = True
    return keep


def planned(static: StaticGraph, keep: Retention, strategy: str, *, tight: bool = True) -> StaticPlan:
    """The schedule whose stages find resident what ``keep`` says, with the fewest computations that this takes.

    ``tight``: nothing is retained beyond its last use, and nothing computed for none.
    """
    rows, keep = _completed(static, keep)
    return measured(static, _steps(static, rows, keep, tight), strategy)


def _completed(static: StaticGraph, keep: Retention) -> tuple[list[set[int]], Retention]:
    """The nodes that each stage computes, and what it finds resident.

    Only nodes before a stage can be kept for it. A node that the next stage keeps and this one lacks is computed, and
    so is every node that is read and absent. A node that may no longer be computed in a stage that asks for it is
    retained instead, from the last stage that had it.
    """
    import numpy as np

    keep, rows = np.tril(keep, -1), list[set[int]]()
    for stage in range(len(static)):
        row = set[int]()
        rows.append(row)
        asked = [stage, *(keep[stage + 1] & ~keep[stage]).nonzero()[0].tolist()]
        for node in asked:  # which grows on the way
            if keep[stage, node] or node in row:
                continue
            if stage > static.until[node]:
                last = next(t for t in range(stage - 1, -1, -1) if keep[t, node] or node in rows[t])
                keep[last + 1 : stage + 1, node] = True
            else:
                row.add(node)
                asked += static.parents[node]
    return rows, keep


def _steps(static: StaticGraph, rows: list[set[int]], keep: Retention, tight: bool) -> list[StaticStep]:
    """The computations of ``rows``, each value released once it is not needed any more: found from the last one back.

    Unless ``tight``, what a stage finds resident is needed until then, whether or not it is used.
    """
    steps: list[StaticStep] = []
    needed = set(keep[len(static)].nonzero()[0].tolist())
    for stage in range(len(static) - 1, -1, -1):
        if not tight:
            found = set(keep[stage + 1].nonzero()[0].tolist()) - needed
            steps += map(Evict, sorted(found, reverse=True))
            needed |= found
        for node in sorted(rows[stage], reverse=True):
            if node == stage or node in needed:
                steps += [Evict(v) for v in (node, *reversed(static.parents[node])) if v not in needed]
                steps.append(Compute(node))
                needed.discard(node)
                needed.update(static.parents[node])
    return steps[::-1]


def measured(static: StaticGraph, steps: Iterable[StaticStep], strategy: str) -> StaticPlan:
    """``steps`` with what they cost. Raises PlanError if they do not execute ``static``."""
    steps = tuple(steps)
    resident: set[int] = set()
    made: set[int] = set()
    held = peak = cost = 0
    for number, step in enumerate(steps):
        if isinstance(step, Evict):
            if step.storage not in resident:
                raise PlanError(f"step {number} frees node {step.storage}, which is not resident")
            resident.discard(step.storage)
            held -= static.nbytes[step.storage]
            continue
        node = step.op
        if node in resident or (node not in made and node != len(made)):
            raise PlanError(f"step {number} computes node {node}, whose turn it is not")
        absent = next((u for u in static.parents[node] if u not in resident), None)
        if absent is not None:
            raise PlanError(f"step {number} computes node {node}, which reads node {absent}; it is not resident")
        if node in made and len(made) > static.until[node]:
            raise PlanError(f"step {number} recomputes node {node} after node {static.until[node]}")
        made.add(node)
        resident.add(node)
        held += static.nbytes[node]
        peak = max(peak, held)
        cost += static.cost_ns[node]
    if len(made) < len(static) or not resident >= static.kept:
        raise PlanError("the plan does not compute every node, or loses what the step leaves behind")
    base = static.base_ns
    return StaticPlan(
        strategy=strategy,
        steps=steps,
        cost_ns=cost,
        activation_bytes=peak,
        peak_bytes=peak + static.fixed_bytes,
        overhead=cost / base if base else 1.0,
    )


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
    loose = sorted(set(range(count)).difference(*static.ops), reverse=True)
    made: set[int] = set()
    for step in static_plan.steps:
        if isinstance(step, Evict):
            yield from map(Evict, static.storages[step.storage])
            continue
        ops = static.ops[step.op]
        if step.op in made:
            ops = tuple(op for op in ops if op not in static.views)
        else:
            place = max((op for op in ops if op not in static.views), default=max(ops, default=-1))
            while loose and loose[-1] < place:
                yield Compute(loose.pop())
        made.add(step.op)
        yield from map(Compute, ops)
    yield from map(Compute, reversed(loose))
