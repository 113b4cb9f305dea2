"""Storages that must be resident while an op runs, in every order: its unavoidable set, and its minimum cut."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec

from tensortide.plans.order.budget import Budget
from tensortide.plans.order.flow import Network
from tensortide.plans.order.problem import START, Problem

Flow = tuple[tuple[int, int, int], ...]


class Cut(msgspec.Struct, frozen=True):
    """The least that can be held when an op starts.

    ``held``: bytes in blocks. ``done``: the smallest down-set that holds so little. ``blocks`` and ``waits`` are a flow
    that proves it, see ``proof.Cut``: ``(block, user, bytes)`` and ``(op, dependency, bytes)``.
    """

    held: int
    done: frozenset[int]
    blocks: Flow
    waits: Flow


def unavoidable(problem: Problem, op: int) -> list[int]:
    """The storages that are resident during ``op`` in every order, ascending; true whatever their sizes.

    The persistent ones; what ``op`` itself allocates; and what some op that must come before it allocates and ``op`` or
    one that must come after it (or the end of the step) still needs.
    """
    before, after = {START, *problem.ancestors(op)}, {op, len(problem), *problem.descendants(op)}
    return sorted(
        problem.persistent
        + [
            problem.storage[block]
            for block, birth in enumerate(problem.birth)
            if birth == op or (birth in before and not after.isdisjoint(problem.users[block]))
        ]
    )


def least_held(problem: Problem, done: AbstractSet[int], barred: AbstractSet[int], budget: Budget) -> Cut:
    """The least bytes in blocks over all down-sets that hold ``done`` and none of ``barred``.

    ``done`` is a down-set, ``barred`` is closed under dependents. The down-set is the source side of a minimum cut: a
    block costs its bytes where its birth is on that side, as the start of the step is, and one of its users is not; an
    op is never on it without its dependencies. After Picard (Management Science 22, 1976), as a closure problem.
    """
    net = Network()
    node = {START: 0, **dict.fromkeys(done, 0), **dict.fromkeys(barred, 1), len(problem): 1}
    free = [op for op in range(len(problem)) if op not in node]
    node.update((op, net.node()) for op in free)
    endless = sum(problem.nbytes) + 1
    blocks = _block_arcs(problem, net, node, endless)
    waits = [
        (net.arc(node[op], node[needed], endless), op, needed)
        for op in free
        for needed in problem.before[op]
        if node[needed]
    ]
    budget.spend(len(problem))
    level = net.maximize(budget)
    return Cut(
        held=sum(net.room[arc ^ 1] for arc in net.arcs[0] if not arc & 1),
        done=frozenset(op for op in node if level[node[op]] >= 0) - {START},
        blocks=tuple((block, user, net.room[arc ^ 1]) for arc, block, user in blocks if net.room[arc ^ 1]),
        waits=tuple((op, needed, net.room[arc ^ 1]) for arc, op, needed in waits if net.room[arc ^ 1]),
    )


def _block_arcs(problem: Problem, net: Network, node: dict[int, int], endless: int) -> list[tuple[int, int, int]]:
    """One arc or more for each block that can be held; returns ``(arc, block, user)`` of those that lead to users."""
    found = []
    for block, birth in enumerate(problem.birth):
        start, nbytes = node[birth], problem.nbytes[block]
        if start == 1 or not nbytes:
            continue
        ends = {node[user]: user for user in problem.users[block] if node[user] not in (0, start)}
        if 1 in ends:  # held in any case once it is allocated
            ends = {1: ends[1]}
        if len(ends) > 1:
            middle = net.node()
            net.arc(start, middle, nbytes)
            start, nbytes = middle, endless
        found += [(net.arc(start, end, nbytes), block, user) for end, user in ends.items()]
    return found


def cut_of(problem: Problem, op: int, budget: Budget) -> Cut:
    """The minimum cut of ``op``: over all orders, the least that is held when it starts."""
    return least_held(problem, problem.ancestors(op), {op, *problem.descendants(op)}, budget)
