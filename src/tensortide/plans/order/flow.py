"""Maximum flow on exact integers: Dinic's algorithm (Soviet Mathematics Doklady 11, 1970) on plain lists."""

from __future__ import annotations

from tensortide.plans.order.budget import Budget


class Network:
    """A flow network from node 0 to node 1. Arcs come in pairs: arc ``a ^ 1`` is the reverse of ``a``.

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
