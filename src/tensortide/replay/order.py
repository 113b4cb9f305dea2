"""A Plan that is an order, played: the Graph with its ops in that order, and its Timeline."""

from __future__ import annotations

import msgspec

from tensortide.graph.model import Graph, Storage
from tensortide.graph.unroll import unrolled
from tensortide.memory import Timeline, timeline
from tensortide.plan import Plan, validate
from tensortide.plan.lifetimes import Life, lives, users


def reordered(graph: Graph, plan: Plan) -> Graph:
    """``graph`` as ``plan`` runs it: its ops in that order, births and deaths as ``plan.lifetimes`` has them.

    Op i of the result is op ``plan.order[i]`` of ``graph``; every other index stays. Raises PlanError if the plan is no
    order of the ops, or does not execute the graph. Loops are written out first: then indexes are those of
    ``unrolled(graph)``.
    """
    graph = unrolled(graph)
    validate(plan, graph)
    order = plan.order
    at = {op: position for position, op in enumerate(order)}
    touched = users(graph)
    storages = tuple(
        _reborn(storage, life, [at[op] for op in ops])
        for storage, life, ops in zip(graph.storages, lives(graph, touched), touched, strict=True)
    )
    return msgspec.structs.replace(graph, ops=tuple(graph.ops[op] for op in order), storages=storages)


def _reborn(storage: Storage, life: Life, positions: list[int]) -> Storage:
    if life is Life.ALWAYS:
        return msgspec.structs.replace(storage, birth=None, death=None)
    if life is Life.NEVER:
        return msgspec.structs.replace(storage, birth=None, death=0)
    death = None if life is Life.KEPT else max(positions) + 1
    return msgspec.structs.replace(storage, birth=min(positions), death=death)


def replay(graph: Graph, plan: Plan, *, workspace: bool = True) -> Timeline:
    """Bytes resident on the device of the plan's lane during each of its steps.

    ``Timeline.graph`` is ``graph`` as reordered. Raises PlanError as ``reordered`` does.
    """
    played = reordered(graph, plan)
    return timeline(played, device=plan.lanes[0].device, workspace=workspace)
