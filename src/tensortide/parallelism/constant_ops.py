"""Ops whose results every rank can compute by itself: they depend on nothing but inputs and buffers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensortide.graph.effects import draws_random
from tensortide.graph.model import Graph, Phase, Role


def constants(graph: Graph, of: Sequence[int | None] | None = None) -> frozenset[int]:
    """Forward ops that depend on nothing but inputs and buffers, and whose results no other op changes; with ``of``
    only those that it gives a stage."""
    given = (Role.BUFFER, Role.INPUT)
    fixed = {i for i, s in enumerate(graph.storages) if s.birth is None and s.role in given}
    index = graph.index
    written = {storage for i in range(len(graph.ops)) for storage in index.writes[i] if storage in fixed}
    fixed -= written
    last = {storage: i for i in range(len(graph.ops)) for storage in index.writes[i]}
    found: set[int] = set()
    for i, op in enumerate(graph.ops):
        call = graph.calls[op.call]
        staged = of is None or of[i] is not None
        plain = staged and op.phase is Phase.FORWARD and not draws_random(call) and not call.mutated
        if plain and op.outputs and fixed.issuperset(index.reads[i]) and all(last[s] == i for s in index.writes[i]):
            found.add(i)
            fixed.update(index.writes[i])
    return frozenset(found)


def given_tensors(graph: Graph, free: Collection[int]) -> frozenset[int]:
    """Inputs, buffers, and what the constant ops ``free`` make: every rank has them whole, or can compute them."""
    named = {each.tensor for each in graph.named if each.role in (Role.INPUT, Role.BUFFER)}
    return frozenset(named.union(*(graph.ops[index].outputs for index in free)))
