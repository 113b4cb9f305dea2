"""A step that recomputes: its Graph with the ops recomputed in the backward pass, as it would have been captured.

Regions are recomputed as ``torch.utils.checkpoint`` (not reentrant) does: before the first backward op that reads
anything of the region, all of its ops up to the last whose result the backward pass reads. What other forward ops read
too, such as the output of a block, stays resident and is not recomputed. Plans, those of files too, are executed as
``replays.executed`` does, with storages that they leave alone released where the captured step released them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tensortide.errors import DegreesError, PlanError
from tensortide.graph.model import Graph, Phase
from tensortide.parallelism import Ranks
from tensortide.parallelism.closed.configuration import Recompute
from tensortide.plans import Compute, Lane, Plan
from tensortide.plans.instance import instance
from tensortide.plans.legal import moves
from tensortide.plans.under_budget.sequence import steps_of
from tensortide.plans.under_budget.tables import tables
from tensortide.replays import executed
from tensortide.studies.scale.regions import attention_cores, blocks, inside

if TYPE_CHECKING:
    from tensortide.graph.model import Storage


def recomputed(graph: Graph, how: Recompute, plan: Plan | None = None) -> Graph:
    """``graph`` with the recomputation that ``how`` asks for; ``plan`` is that of ``plan``.

    Raises:
        DegreesError: there is nothing of that kind to recompute, or it may not be recomputed.
        PlanError: the plan is for another step, or moves storages.
    """
    if how == "none":
        return graph
    if how == "plan":
        if plan is None:
            raise PlanError("recomputation by a plan needs the plan")
        return by_plan(graph, plan)
    regions = blocks(graph) if how == "full" else attention_cores(graph)
    try:
        return by_plan(graph, plan_of(graph, regions))
    except PlanError as error:
        raise DegreesError(f"{how} recomputation cannot be: {error}") from error


def plan_of(graph: Graph, regions: Iterable[Sequence[int]]) -> Plan:
    """The plan that recomputes ``regions``."""
    device = graph.index.main_device
    stated = tables(instance(graph, device, [0] * len(graph), workspace=False))
    return Plan(graph.index.digest, (Lane(device, steps_of(stated, map(Compute, checkpoints(graph, regions)))),))


def with_plan(ranks: Ranks, plan: Plan) -> Ranks:
    """``ranks`` with the step of a stage as ``plan`` runs it. Raises PlanError if it is for none of the stages."""
    if all(graph.index.digest != plan.graph for graph in ranks.graphs):
        raise PlanError(
            "the plan is neither for this step nor for that of a rank with these degrees: make it with the same "
            "settings and --machine"
        )
    graphs = [by_plan(graph, plan) if graph.index.digest == plan.graph else graph for graph in ranks.graphs]
    return replace(ranks, graphs=tuple(graphs))


def by_plan(graph: Graph, plan: Plan) -> Graph:
    """``graph`` as ``plan`` runs it. Raises PlanError for a plan of another graph, and for one that moves storages."""
    if moves(plan):
        raise PlanError(
            "the plan moves storages, and only recomputation is played on many devices: plan --offload less"
        )
    played = executed(graph, plan)
    order = [step.op for step in plan.lanes[0].steps if isinstance(step, Compute)]
    backward = next((i for i, op in enumerate(played.ops) if op.phase is Phase.BACKWARD), len(order))
    ops = [
        replace(op, phase=Phase.BACKWARD) if op.recompute and op.phase is Phase.FORWARD and place >= backward else op
        for place, op in enumerate(played.ops)
    ]
    return replace(played, ops=tuple(ops), storages=tuple(_released(graph, played, order)))


def _released(graph: Graph, played: Graph, order: Sequence[int]) -> Iterator[Storage]:
    """The storages of ``played``, each released where the step releases it, not at its last use.

    While a region is recomputed its variables keep their first values.
    """
    first: dict[int, int] = {}
    latest: dict[int, int] = {}
    owner = graph.index.owner, played.index.owner
    for place, number in enumerate(order):
        first.setdefault(number, place)
        op, run = graph.ops[number], played.ops[place]
        for old, new in zip((*op.inputs, *op.outputs), (*run.inputs, *run.outputs), strict=True):
            if played.storages[owner[1][new]].death != place + 1 or old in op.inputs:  # no second copy, dropped at once
                latest[owner[0][old]] = owner[1][new]
    lasting = {new: graph.storages[old].death for old, new in latest.items()}
    for number, storage in enumerate(played.storages):
        death = lasting.get(number)
        if death is None or storage.death is None:
            yield storage
            continue
        again = 0 if storage.birth is None else storage.birth
        while again < len(order) and first[order[again]] != again and order[again] < death:
            again += 1
        yield replace(storage, death=max(storage.death, again, first.get(death, len(order))))


def checkpoints(graph: Graph, regions: Iterable[Sequence[int]]) -> list[int]:
    """The ops in the order in which they run if ``regions`` are recomputed."""
    facts = graph.index
    backward = [i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD]
    readers: dict[int, int] = {}
    tensors: dict[int, int] = {}
    for index in reversed(backward):
        readers.update(dict.fromkeys(facts.reads[index], index))
        tensors.update(dict.fromkeys(graph.ops[index].inputs, index))
    again: dict[int, list[int]] = {}
    for region in regions:
        own = set(inside(graph, region))
        read = own & readers.keys()
        if not read:
            continue
        last = max(
            index
            for index in region
            if read & set(facts.writes[index])
            or any(t in tensors for t in graph.ops[index].outputs if facts.owner[t] in read)
        )
        ops = [index for index in region if index <= last and graph.index.repeatable(index)]
        again.setdefault(min(readers[storage] for storage in read), []).extend(ops)
    return [op for index in range(len(graph)) for op in (*again.get(index, ()), index)]
