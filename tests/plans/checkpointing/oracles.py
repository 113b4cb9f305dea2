"""Static graphs to search through, and slow answers that share no code with the planners."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from hypothesis import strategies as st

from tensortide.plans import Evict
from tensortide.plans.checkpointing.stages import StaticPlan
from tensortide.plans.checkpointing.static import StaticGraph

SIZES = st.one_of(st.integers(0, 9), st.integers(0, 10**10))


@st.composite
def static_graphs(draw: st.DrawFn, most: int = 9, sizes: st.SearchStrategy[int] = SIZES) -> StaticGraph:
    """Any DAG, any part of it backward, some nodes kept, some not to be computed again after a while."""
    count = draw(st.integers(1, most))
    parents = [draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set() for node in range(count)]
    first = draw(st.integers(0, count))
    last = st.just(count - 1)
    return StaticGraph(
        cost_ns=tuple(draw(sizes) for _ in range(count)),
        nbytes=tuple(draw(sizes) for _ in range(count)),
        parents=tuple(tuple(sorted(read)) for read in parents),
        backward=tuple(node >= first for node in range(count)),
        until=tuple(draw(last | last | st.integers(node, count - 1)) for node in range(count)),
        kept=frozenset(draw(st.sets(st.integers(0, count - 1), max_size=2))),
        fixed_bytes=draw(sizes),
    )


def interpreted(static: StaticGraph, plan: StaticPlan) -> tuple[int, int]:
    """Cost and peak of a plan, played on nothing but the set of what is resident."""
    resident: set[int] = set()
    order: list[int] = []
    levels = [0]
    for step in plan.steps:
        if isinstance(step, Evict):
            resident.remove(step.storage)
            continue
        node = step.op
        assert node not in resident
        assert resident.issuperset(static.parents[node])
        if node in order:
            assert len(set(order)) <= static.until[node]
        order.append(node)
        resident.add(node)
        levels.append(sum(static.nbytes[node] for node in resident))
    assert list(dict.fromkeys(order)) == list(range(len(static)))
    assert resident >= static.kept
    return sum(static.cost_ns[node] for node in order), max(levels)


def cheapest_of_all(static: StaticGraph, budget_bytes: int) -> int | None:
    """The least cost of any schedule in stages within the budget: Dijkstra over stage, position and what is resident.

    Before each position any part of what is resident may go; there the node is computed, or not.
    """
    budget = budget_bytes - static.fixed_bytes
    heap: list[tuple[int, int, int, tuple[int, ...]]] = [(0, 0, 0, ())]
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    while heap:
        cost, stage, at, resident = heapq.heappop(heap)
        if (stage, at, resident) in seen:
            continue
        seen.add((stage, at, resident))
        if stage == len(static):
            if static.kept.issubset(resident):
                return cost
            continue
        for left in _subsets(resident):
            for ns, found in _results(static, stage, at, frozenset(left), budget):
                following = (stage, at + 1) if at < stage else (stage + 1, 0)
                heapq.heappush(heap, (cost + ns, *following, found))
    return None


def _results(
    static: StaticGraph, stage: int, at: int, resident: frozenset[int], budget: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    if at < stage:
        yield 0, tuple(sorted(resident))
    if at in resident or not resident.issuperset(static.parents[at]) or (at < stage and stage > static.until[at]):
        return
    after = resident | {at}
    if sum(static.nbytes[node] for node in after) <= budget:
        yield static.cost_ns[at], tuple(sorted(after))


def _subsets(nodes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(nodes, size) for size in range(len(nodes) + 1))
