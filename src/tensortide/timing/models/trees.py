"""Boosted regression trees as tables: evaluated with NumPy alone, so that a prediction needs no learning library."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int32]
    Masks = NDArray[np.uint32]

MOST_LEAVES = 32
"""Leaves of a tree: a bit each."""
_CHUNK = 64
"""Rows that are evaluated together: their masks of all trees stay in the cache."""


class _Test(NamedTuple):
    """Leaves that the values of one ``feature`` rule out: ``masks`` has, for each count of ``thresholds`` below a
    value, the leaves that are left of each tree."""

    feature: int
    thresholds: Floats
    masks: Masks


@dataclass(frozen=True)
class Trees:
    """A sum of regression trees. A node goes ``left`` where its ``feature`` is at most its ``threshold``, else to the
    node after ``left``; a leaf is its own left. ``roots`` are the first nodes of the trees, ``low`` and ``high`` bounds
    of the sum."""

    feature: Integers
    threshold: Floats
    left: Integers
    value: Floats
    roots: Integers
    low: float
    high: float

    def predict(self, features: Floats) -> Floats:
        """The sum of the trees for each row of ``features``, between ``low`` and ``high``.

        Each node that a row passes on the right rules out the leaves on its left; the row ends in the first leaf that
        is left over. Tables say at once what a feature's value rules out in all trees.
        """
        import numpy as np

        tests, values = self._tables
        places = np.arange(0, values.size, MOST_LEAVES)
        found = np.empty(len(features))
        for start in range(0, len(features), _CHUNK):
            part = features[start : start + _CHUNK]
            leaves = np.full((len(part), len(self.roots)), ~np.uint32(0))
            for feature, thresholds, masks in tests:
                leaves &= masks.take(thresholds.searchsorted(part[:, feature]), axis=0)
            first = (leaves & (~leaves + np.uint32(1))).astype(np.float32).view(np.int32) >> 23  # exponents
            found[start : start + _CHUNK] = values.take(places + first - 127).sum(axis=1)
        return np.clip(found, self.low, self.high)

    @functools.cached_property
    def _tables(self) -> tuple[list[_Test], Floats]:
        """Return what each feature rules out, and the values of the leaves, ``MOST_LEAVES`` places for each tree."""
        import numpy as np

        count = len(self.left)
        values = np.zeros((len(self.roots), MOST_LEAVES))
        trees, masks = np.zeros(count, np.int32), np.zeros(count, np.uint32)
        for tree, root in enumerate(self.roots.tolist()):
            leaves: list[int] = []
            for node, begin in self._in_order(root, leaves):
                trees[node], masks[node] = tree, ~np.uint32((1 << len(leaves)) - (1 << begin))
            values[tree, : len(leaves)] = self.value[leaves]
        inner = np.flatnonzero(self.left != np.arange(count))
        tests = []
        for feature in np.unique(self.feature[inner]).tolist():
            nodes = inner[self.feature[inner] == feature]
            thresholds, rows = np.unique(self.threshold[nodes], return_inverse=True)
            table = np.full((len(thresholds) + 1, len(self.roots)), ~np.uint32(0))
            np.bitwise_and.at(table, (rows + 1, trees[nodes]), masks[nodes])
            tests.append(_Test(feature, thresholds, np.bitwise_and.accumulate(table, axis=0)))
        return tests, values

    def _in_order(self, node: int, leaves: list[int]) -> Iterator[tuple[int, int]]:
        """Walk the tree at ``node`` from left to right and collect its ``leaves``; yield each inner node once those on
        its left are in, with how many there were before."""
        child = int(self.left[node])
        if child == node:
            leaves.append(node)
            return
        begin = len(leaves)
        yield from self._in_order(child, leaves)
        yield node, begin
        yield from self._in_order(child + 1, leaves)
