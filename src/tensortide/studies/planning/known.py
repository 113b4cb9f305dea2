"""Plans known before any search: the step as recorded, online policies, static strategies; a row of ``MAKERS`` each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tensortide.errors import PlanError
from tensortide.graph.model import Phase
from tensortide.graph.module_paths import repeated, within
from tensortide.plans.checkpointing.stages import StaticPlan, to_plan
from tensortide.plans.checkpointing.static import StaticGraph, static_graph
from tensortide.plans.under_budget.known import Known
from tensortide.plans.under_budget.sequence import sequence_of
from tensortide.replays.remat.simulator import candidates
from tensortide.search_limit import attended
from tensortide.studies.planning.problem import Problem
from tensortide.studies.remat.contenders import contenders

AS_RECORDED = "as recorded"
"""The name of the plan that changes nothing."""
OVERHEAD_LIMIT = 4.0
"""A policy is given up when the step takes this many times its time without recomputation."""
MOST_PLANS = 24
"""Plans of a static strategy that are played; its settings beyond them are not tried."""
MOST_BANISHING = 5_000
"""Longest step on which a policy is tried that releases storages for good, which is not compiled."""
MOST_NODES = 10_000
"""Longest step, in nodes, that static strategies plan."""


def as_recorded(problem: Problem) -> Iterator[Known]:
    """Yield the step as it was recorded."""
    yield Known(AS_RECORDED, "as recorded", list(range(len(problem.recording.graph))))


def given(problem: Problem) -> Iterator[Known]:
    """Yield the plans that the caller knows; those with transfers take links."""
    for name, plan in problem.known.items():
        try:
            yield Known(name, "given", sequence_of(plan.lanes[0].steps))
        except PlanError as error:
            yield Known(name, "given", reason=str(error))


def per_block(problem: Problem) -> Iterator[Known]:
    """Yield checkpoints of repeated modules, one plan for each kind: the forward ops of each run again before its first
    backward op, as under ``torch.utils.checkpoint`` without early stop."""
    graph = problem.recording.graph
    for name, members in repeated((module.path, module.type) for module in graph.modules).items():
        again: dict[int, list[int]] = {}
        for member in members:
            inside = [op for op in range(len(graph)) if within(graph.module_path(graph.ops[op].module), member)]
            forward = [op for op in inside if graph.ops[op].phase is Phase.FORWARD]
            later = [op for op in inside if graph.ops[op].phase is Phase.BACKWARD]
            if forward and later:
                again[later[0]] = [op for op in forward if graph.index.repeatable(op)]
        if again:
            sequence = [op for at in range(len(graph)) for op in (*again.get(at, ()), at)]
            yield Known(f"checkpoint {name}", "modules", sequence)


def online(problem: Problem) -> Iterator[Known]:
    """Yield the run of each policy, if they are asked for."""
    for name in candidates() if problem.policies else ():
        run = problem.simulator.run(name, problem.budget_bytes, overhead_limit=OVERHEAD_LIMIT)
        if run.status == "ok":
            yield Known(name, "online policy", sequence_of(run.plan().lanes[0].steps))
        else:
            yield Known(name, "online policy", reason=run.status)
    if problem.policies and len(problem.recording.graph) <= MOST_BANISHING:
        run = problem.simulator.by("banish").run("dtr-local", problem.budget_bytes, overhead_limit=OVERHEAD_LIMIT)
        if run.status == "ok":
            yield Known("dtr-local with banishing", "online policy", sequence_of(run.plan().lanes[0].steps))


def static(problem: Problem) -> Iterator[Known]:
    """Yield the schedules of strategies that plan ahead and take no budget."""
    graph = problem.recording.graph
    nodes = static_graph(graph, problem.recording.durations_ns, problem.device)
    for name, plans, skipped in contenders(nodes):
        if skipped or len(nodes) > MOST_NODES:
            reason = skipped or f"{len(nodes):,} nodes, more than {MOST_NODES:,}"
            yield Known(name, "static plan", reason=reason)
            continue
        each = itertools.islice(plans, MOST_PLANS)
        while (made := attended(partial(_next_sequence, each, nodes, problem), problem.look)) is not None:
            sequence, reason = made
            yield Known(name, "static plan", sequence, reason)


def _next_sequence(
    plans: Iterator[StaticPlan], nodes: StaticGraph, problem: Problem
) -> tuple[list[int] | None, str] | None:
    """The ops of the next plan, or why it is none; None after the last one."""
    made = next(plans, None)
    if made is None:
        return None
    try:
        found = sequence_of(to_plan(made, nodes, problem.recording.graph, problem.device).lanes[0].steps)
        return (in_recorded_order(found) if problem.order == "recorded" else found), ""
    except PlanError as error:
        return None, str(error)


def in_recorded_order(sequence: Iterable[int]) -> list[int]:
    """``sequence`` with the first run of each op, such as a view that stands right behind its source, put off until all
    ops recorded before it have run."""
    found: list[int] = []
    waiting: set[int] = set()
    ahead = 0
    for op in sequence:
        if op < ahead:
            found.append(op)
            continue
        waiting.add(op)
        while ahead in waiting:
            found.append(ahead)
            ahead += 1
    return found


def partitioned(problem: Problem) -> Iterator[Known]:
    """Yield what PyTorch's partitioner saves and recomputes, by its settings."""
    yield from problem.partitions


MAKERS: dict[str, Callable[[Problem], Iterator[Known]]] = {
    "per-block checkpointing": per_block,
    "PyTorch's partitioner": partitioned,
    "online policies": online,
    "static plans": static,
}
"""Makers of plans for a step that does not fit as recorded, in the order in which they are tried."""
