"""Classes of evicted storages, by union-find, whose work h_DTR_eq sums instead of walking the graph."""

from __future__ import annotations

from collections.abc import Iterable


class Classes:
    """For each storage that is not resident the class that it is in, with the work of its members.

    A storage that becomes resident leaves its class, which is not split. Storages that were never resident are
    classes of their own without work, until an eviction next to them draws them in.
    """

    def __init__(self, storages: int) -> None:
        self._node: list[int] = list(range(storages))
        self._above: list[int] = list(range(storages))
        self._value: list[int] = [0] * storages
        self.lists = self._node, self._above, self._value
        """The node of each storage; of each node the one above, itself at the top, and the work below."""

    def root(self, storage: int) -> int:
        """The class of ``storage``, which is not resident."""
        node, above = self._node[storage], self._above
        root = node
        while above[root] != root:
            root = above[root]
        while above[node] != root:
            above[node], node = root, above[node]
        return root

    def value(self, storages: Iterable[int]) -> int:
        """Work of the distinct classes of ``storages``, which are not resident."""
        return sum(self._value[root] for root in {self.root(storage) for storage in storages})

    def evict(self, storage: int, work_ns: int, neighbours: Iterable[int]) -> None:
        """``storage`` leaves memory: it joins the classes of its evicted ``neighbours``."""
        node = self.reset(storage, work_ns)
        for near in neighbours:
            root = self.root(near)
            if root != node:
                self._above[root] = node
                self._value[node] += self._value[root]

    def add(self) -> None:
        """One storage more."""
        self._node.append(0)
        self.reset(len(self._node) - 1)

    def reset(self, storage: int, work_ns: int = 0) -> int:
        """``storage`` is a class of its own; returns its node."""
        if len(self._above) > 4 * len(self._node) + 1024:
            self._tidy()
        node = self._node[storage] = len(self._above)
        self._above.append(node)
        self._value.append(work_ns)
        return node

    def _tidy(self) -> None:
        """Forget the nodes that no storage is in any more."""
        tops = {root: number for number, root in enumerate({self.root(s): None for s in range(len(self._node))})}
        self._node[:] = [tops[self.root(s)] for s in range(len(self._node))]
        self._value[:] = [self._value[root] for root in tops]
        self._above[:] = range(len(tops))

    def materialize(self, storage: int, work_ns: int) -> None:
        """``storage`` is resident (again)."""
        self._value[self.root(storage)] -= work_ns
