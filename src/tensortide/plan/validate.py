"""Does a Plan compute what its Graph computed? Played step by step on the states of storages."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.plan.model import Compute, Evict, Plan, fingerprint

_BEFORE = -1
"""The state of a storage that exists before the step and was not written yet."""


def validate(plan: Plan, graph: Graph) -> None:
    """Check that ``plan`` executes ``graph``; raises PlanError that says which step is wrong.

    Every op is computed at least once, and finds each storage it touches resident and last written by the op that last
    wrote it in the recorded step: that covers dependencies, the order of writes and reads, and recomputation of what
    was evicted. A plan of a graph with loops refers to the loops written out (``graph.unrolled``). Covers plans of one
    lane whose steps are ``Compute`` and ``Evict``.
    """
    graph = unrolled(graph)
    if plan.graph != fingerprint(graph):
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
        found, tensors, writes = expected[step.op]
        for storage, state in found.items():
            if states.get(storage) != state:
                raise PlanError(_wrong(graph, number, step.op, storage, states.get(storage), state))
        if not made >= tensors:
            tensor = min(tensors - made)
            raise PlanError(f"step {number} computes op {step.op} before the op that makes its input tensor {tensor}")
        states.update(dict.fromkeys(writes, step.op))
        made.update(graph.ops[step.op].outputs)
        computed.add(step.op)
    if len(computed) < len(graph):
        absent = next(i for i in range(len(graph)) if i not in computed)
        raise PlanError(f"op {absent} ({graph[absent].name}) is never computed")


def _expected(graph: Graph) -> Iterator[tuple[dict[int, int], set[int], set[int]]]:
    """For each op: which op last wrote each storage it touches; its input tensors that an op makes; the storages it
    writes. Allocating is a write."""
    owner = [tensor.storage for tensor in graph.tensors]
    written = {i: _BEFORE for i, storage in enumerate(graph.storages) if storage.birth is None}
    made: set[int] = set()
    born: list[set[int]] = [set() for _ in graph.ops]
    for i, storage in enumerate(graph.storages):
        if storage.birth is not None:
            born[storage.birth].add(i)
    for index, op in enumerate(graph.ops):
        read = {owner[tensor] for tensor in op.inputs}
        outputs = {owner[tensor] for tensor in op.outputs}
        writes = {owner[op.inputs[slot]] for slot in graph.calls[op.call].mutated} | (outputs - read) | born[index]
        yield {s: written[s] for s in (read | writes) - born[index]}, made.intersection(op.inputs), writes
        written.update(dict.fromkeys(writes, index))
        made.update(op.outputs)


def _wrong(graph: Graph, step: int, op: int, storage: int, state: int | None, expected: int) -> str:
    what = f"step {step} computes op {op} ({graph[op].name}), which needs storage {storage}"
    if state is None:
        return f"{what}; it is not resident"
    writers = ["before the step" if at == _BEFORE else f"by op {at} ({graph[at].name})" for at in (expected, state)]
    return f"{what} as written {writers[0]}; it was last written {writers[1]}"
