"""Storages that must be resident while an op runs, in every order: its unavoidable set, and its minimum cut."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tensortide.plans.order.incumbent import Budget
from tensortide.plans.order.problem import START, Problem


class LeastHeld(NamedTuple):
    """The least that can be held when an op starts.

    ``nbytes``: what is held, persistent storages included. ``done``: the smallest down-set that holds so little.
    ``storages`` and ``waits`` are a flow that proves it, as in ``proof.Cut``.
    """

    nbytes: int
    done: frozenset[int]
    storages: tuple[tuple[int, int, int], ...]
    waits: tuple[tuple[int, int, int], ...]


def unavoidable(problem: Problem, op: int) -> list[int]:
    """The storages that are resident during ``op`` in every order, ascending; true whatever their sizes."""
    return sorted(problem.persistent + [problem.storage[block] for block in sure_blocks(problem, op)])


def sure_blocks(problem: Problem, op: int) -> list[int]:
    """The blocks that are resident during ``op`` in every order: what ``op`` itself allocates, and what some op that
    must come before it allocates and ``op`` or one that must come after it (or the end of the step) still needs."""
    before, after = {START, *problem.ancestors(op)}, {op, len(problem), *problem.descendants(op)}
    births = enumerate(problem.birth)
    return [b for b, birth in births if birth == op or (birth in before and not after.isdisjoint(problem.users[b]))]


def least_held(problem: Problem, done: AbstractSet[int], barred: AbstractSet[int], budget: Budget) -> LeastHeld:
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
    return LeastHeld(
        nbytes=problem.base + sum(net.room[arc ^ 1] for arc in net.arcs[0] if not arc & 1),
        done=frozenset(op for op in node if level[node[op]] >= 0) - {START},
        storages=tuple((problem.storage[b], user, net.room[arc ^ 1]) for arc, b, user in blocks if net.room[arc ^ 1]),
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


def cut_of(problem: Problem, op: int, budget: Budget) -> LeastHeld:
    """The minimum cut of ``op``: over all orders, the least that is held when it starts."""
    return least_held(problem, problem.ancestors(op), {op, *problem.descendants(op)}, budget)


class Network:
    """A flow network from node 0 to node 1, and Dinic's algorithm (Soviet Mathematics Doklady 11, 1970) on integers.

    Arcs come in pairs: arc ``a ^ 1`` is the reverse of ``a``.

    ``head[a]`` is where arc ``a`` leads, ``room[a]`` how much more it takes; what flows on ``a`` is ``room[a ^ 1]``.
    """

    __slots__ = ("arcs", "head", "room")

    def __init__(self) -> None:
        self.arcs: list[list[int]] = [[], []]
        self.head: list[int] = []
        self.room: list[int] = []

    def node(self) -> int:
        """A new node."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> int:
        """A new arc."""
        index = len(self.head)
        self.arcs[tail].append(index)
        self.arcs[head].append(index + 1)
        self.head += (head, tail)
        self.room += (capacity, 0)
        return index

    def maximize(self, budget: Budget) -> list[int]:
        """Send as much as possible. Returns the distance of every node from node 0 where there is room left: -1 for
        those out of reach; all others are the smallest source side of a minimum cut."""
        while True:
            level = self._levels()
            budget.spend(len(self.head) // 2)
            if level[1] < 0:
                return level
            self._saturate(level)

    def _levels(self) -> list[int]:
        arcs, head, room = self.arcs, self.head, self.room
        level = [-1] * len(arcs)
        level[0] = 0
        front = [0]
        while front and level[1] < 0:
            ahead = []
            for node in front:
                for arc in arcs[node]:
                    if room[arc] and level[head[arc]] < 0:
                        level[head[arc]] = level[node] + 1
                        ahead.append(head[arc])
            front = ahead
        return level

    def _saturate(self, level: list[int]) -> None:
        """Fill every shortest path: a blocking flow, found depth first."""
        arcs, head, room = self.arcs, self.head, self.room
        following = [0] * len(arcs)
        path: list[int] = []
        node = 0
        while True:
            if node == 1:
                node = self._send(path)
                continue
            mine, at, deeper = arcs[node], following[node], level[node] + 1
            while at < len(mine) and not (room[mine[at]] and level[head[mine[at]]] == deeper):
                at += 1
            following[node] = at
            if at < len(mine):
                path.append(mine[at])
                node = head[mine[at]]
            elif path:
                node = head[path.pop() ^ 1]
                following[node] += 1
            else:
                return

    def _send(self, path: list[int]) -> int:
        """Send what ``path`` takes and cut it back to before its first full arc. Returns the node it then ends at."""
        least = min(self.room[arc] for arc in path)
        for arc in path:
            self.room[arc] -= least
            self.room[arc ^ 1] += least
        full = next(i for i, arc in enumerate(path) if not self.room[arc])
        node = self.head[path[full] ^ 1]
        del path[full:]
        return node
