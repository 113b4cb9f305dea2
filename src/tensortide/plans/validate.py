"""Does a Plan compute what its Graph computed? Played step by step on the states of storages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.model import Compute, Evict, Plan

_BEFORE = -1
"""The state of a storage that exists before the step and was not written yet."""


def validate(plan: Plan, graph: Graph) -> None:
    """Check that ``plan`` executes ``graph``; raises PlanError that says which step is wrong.

    Every op is computed at least once, and finds each storage it touches resident and last written by the op that last
    wrote it in the recorded step: that covers dependencies, the order of writes and reads, and recomputation of what
    was evicted. A recomputed op allocates only what is not resident, and skips the updates that no output
    depends on (``graph.effects.blind_slots``). A plan of a graph with loops refers to the loops written out
    (``graph.unrolled``). Covers plans of one lane whose steps are ``Compute`` and ``Evict``.
    """
    graph = unrolled(graph)
    if plan.graph != graph.index.digest:
        raise PlanError("the plan was made for another graph")
    if len(plan.lanes) != 1:
        raise PlanError(f"a plan of {len(plan.lanes)} lanes cannot be checked yet")
    expected = list(_expected(graph))
    states = {i: _BEFORE for i, storage in enumerate(graph.storages) if storage.birth is None}
    made: set[int] = set()
    computed: set[int] = set()
    for number, step in enumerate(plan.lanes[0].steps):
        if isinstance(step, Evict):
            if states.pop(step.storage, None) is None:
                raise PlanError(f"step {number} evicts storage {step.storage}, which is not resident")
            continue
        if not isinstance(step, Compute):
            raise PlanError(f"step {number} is {step}, which cannot be checked yet")
        if not 0 <= step.op < len(graph):
            raise PlanError(f"step {number} computes op {step.op} of {len(graph)}")
        needs = expected[step.op]
        recompute = step.op in computed
        for storage, state in needs.found.items():
            if states.get(storage) != state and not (recompute and storage in needs.blind):
                raise PlanError(_wrong(graph, number, step.op, storage, states.get(storage), state))
        if not made >= needs.tensors:
            tensor = min(needs.tensors - made)
            raise PlanError(f"step {number} computes op {step.op} before the op that makes its input tensor {tensor}")
        kept = {s for s in needs.allocated if s in states} | needs.blind if recompute else ()
        states.update({s: step.op for s in needs.writes if s not in kept})
        made.update(graph.ops[step.op].outputs)
        computed.add(step.op)
    if len(computed) < len(graph):
        absent = next(i for i in range(len(graph)) if i not in computed)
        raise PlanError(f"op {absent} ({graph[absent].name}) is never computed")


class _Needs(NamedTuple):
    """Requirements and effects of an op: the last writer of each storage it touches; its input tensors that
    ops make; the storages that it writes (allocating is a write), those of them that it allocates, and those that it
    updates without its outputs depending on their old value."""

    found: dict[int, int]
    tensors: set[int]
    writes: tuple[int, ...]
    allocated: set[int]
    blind: set[int]


def _expected(graph: Graph) -> Iterator[_Needs]:
    """Yield the requirements and effects of each op in the recorded step."""
    facts = graph.index
    written = {i: _BEFORE for i, storage in enumerate(graph.storages) if storage.birth is None}
    made: set[int] = set()
    for index, op in enumerate(graph.ops):
        writes, allocated = facts.writes[index], set(facts.allocated[index])
        found = {s: written[s] for s in (*facts.reads[index], *writes) if s not in allocated}
        yield _Needs(found, made.intersection(op.inputs), writes, allocated, set(facts.blind[index]))
        written.update(dict.fromkeys(writes, index))
        made.update(op.outputs)


def _wrong(graph: Graph, step: int, op: int, storage: int, state: int | None, expected: int) -> str:
    what = f"step {step} computes op {op} ({graph[op].name}), which needs storage {storage}"
    if state is None:
        return f"{what}; it is not resident"
    writers = ["before the step" if at == _BEFORE else f"by op {at} ({graph[at].name})" for at in (expected, state)]
    return f"{what} as written {writers[0]}; it was last written {writers[1]}"
