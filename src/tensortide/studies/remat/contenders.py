"""Static strategies as contenders, and made-up steps for them to be compared on."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tensortide.graph.model import TENSOR, Call, Graph, Meta, Op, Phase, Role, Storage, Tensor
from tensortide.plans.checkpointing.optimum import NODES
from tensortide.plans.checkpointing.segments import (
    candidates,
    checkpoint_all,
    checkpoint_last,
    chen_greedy_sweep,
    chen_sqrt,
    is_chain,
    revolve,
)
from tensortide.plans.remat.schedule import recorded
from tensortide.search_limit import SearchLimit

if TYPE_CHECKING:
    from tensortide.graph.model import Value
    from tensortide.plans.checkpointing.stages import StaticPlan
    from tensortide.plans.checkpointing.static import StaticGraph
    from tensortide.plans.remat.schedule import Recording

Contender: TypeAlias = "tuple[str, Iterable[StaticPlan], str]"
"""A strategy: its name, its plans, and, if it has none, why."""

MOST_NODES = 10_000
"""Up to so many nodes there are schedules at all: they are found in tables of their square."""
MARGIN = 0.1
"""Share by which peaks may deviate from what planners count, at least."""
QUADRATIC_NODES = 500
"""Up to so many nodes each stage may start from the node before it: the time of that is their square."""


def contenders(static: StaticGraph) -> Iterator[Contender]:
    """List the strategies that take no budget, each with all its settings.

    Nothing stays beyond its last use (``tight``): as published, Chen's strategies keep whole segments, and need more.
    """
    large = f"{len(static):,} nodes, more than {MOST_NODES:,}" if len(static) > MOST_NODES else ""
    for articulation in (False, True):
        where = " (art.)" if articulation else ""
        reason = large or (_no_points(static) if articulation else "")
        yield f"checkpoint all{where}", _one(partial(checkpoint_all, static, articulation=articulation), reason), reason
        yield f"Chen sqrt n{where}", _one(partial(chen_sqrt, static, articulation=articulation), reason), reason
        sweep = chen_greedy_sweep(static, articulation=articulation, tight=True)
        yield f"Chen greedy{where}", () if reason else sweep, reason
    reason = "" if len(static) <= QUADRATIC_NODES else f"{len(static):,} nodes, more than {QUADRATIC_NODES}"
    yield "checkpoint last", _one(partial(checkpoint_last, static), reason), reason
    reason = large or ("" if is_chain(static) else "the step is no chain")
    yield "Revolve", () if reason else _revolved(static), reason


def why_no_program(static: StaticGraph) -> str:
    """Return the reason why no integer program is solved for ``static``; empty if one can be."""
    if importlib.util.find_spec("ortools") is None:
        return "it needs OR-Tools: pip install 'tensortide[solve]'"
    return "" if len(static) <= NODES else f"{len(static):,} nodes, more than {NODES}"


def _one(make: partial[StaticPlan], reason: str) -> Iterator[StaticPlan]:
    if not reason:
        yield make(tight=True)


def _no_points(static: StaticGraph) -> str:
    points = candidates(static, articulation=True)
    if not points:
        return "there is no articulation point"
    return "every forward node is an articulation point" if points == candidates(static) else ""


def _revolved(static: StaticGraph) -> Iterator[StaticPlan]:
    """Yield schedules with each number of slots up to 32, then with sparser numbers, last with one slot per layer."""
    slots = 1
    while slots < len(static) // 2:
        yield revolve(static, slots)
        slots += 1 + slots // 32
    yield revolve(static, len(static) // 2)


def within(plans: Iterable[StaticPlan], limit: SearchLimit) -> tuple[list[StaticPlan], bool]:
    """Select the ``plans`` worth playing among those made within ``limit``, of which each spends its steps; and report
    whether all were made.

    A plan is left out if another takes as long and has a peak lower by ``MARGIN``. At least one is made.
    """
    made, complete = [], True
    for plan in plans:
        made.append(plan)
        limit.spend(len(plan.steps))
        if limit.spent:
            complete = False
            break
    made = list({(plan.cost_ns, plan.peak_bytes): plan for plan in reversed(made)}.values())
    made.sort(key=lambda plan: (plan.cost_ns, plan.peak_bytes))
    lowest = itertools.accumulate((plan.peak_bytes for plan in made), min, initial=1 << 62)
    return [plan for plan, low in zip(made, lowest, strict=False) if plan.peak_bytes * (1 - MARGIN) < low], complete


def made_up(static: StaticGraph, name: str = "") -> Recording:
    """A Recording of a step with an op per node of ``static``, in their order; each output goes after its last use.

    What the comparison of DTR with Checkmate plays: "DTR on a static graph", a node's parents in ascending order.
    """
    last = [max(read, default=node) for node, read in enumerate(static.children)]
    calls = [
        Call(f"made_up.{'backward' if back else 'forward'}.default", _names(count), count)
        for back in (False, True)
        for count in range(1 + max(map(len, static.parents), default=0))
    ]
    half = len(calls) // 2
    columns = zip(static.parents, static.backward, strict=True)
    ops = [
        Op(half * back + len(read), read, (node,), Phase.BACKWARD if back else Phase.FORWARD)
        for node, (read, back) in enumerate(columns)
    ]
    storages = [
        Storage(nbytes, "cpu", Role.TEMPORARY if back else Role.ACTIVATION, node, None if kept else last[node] + 1)
        for node, (nbytes, back) in enumerate(zip(static.nbytes, static.backward, strict=True))
        for kept in (node in static.kept,)
    ]
    tensors = tuple(Tensor(node, "uint8", (nbytes,), (1,)) for node, nbytes in enumerate(static.nbytes))
    graph = Graph(tuple(ops), tuple(calls), tensors, tuple(storages), meta=Meta(name))
    return recorded(graph, static.cost_ns, "made up")


def _names(count: int) -> tuple[tuple[str, Value], ...]:
    return tuple((f"x{i}", TENSOR) for i in range(count))
