"""Boosted regression trees as arrays: evaluated with NumPy alone, so that a prediction needs no learning library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int32]

_CHUNK = 64
"""Rows that are evaluated together: their paths through all trees stay in the cache."""


class Trees(msgspec.Struct, frozen=True):
    """A sum of regression trees. A node goes ``left`` where its ``feature`` is at most its ``threshold``, else to the
    node after ``left``; a leaf is its own left, with a threshold of infinity. ``roots`` are the first nodes of the
    trees, ``depth`` the most steps from one to a leaf, ``low`` and ``high`` bounds of the sum."""

    feature: Integers
    threshold: Floats
    left: Integers
    value: Floats
    roots: Integers
    depth: int
    low: float
    high: float

    def predict(self, features: Floats) -> Floats:
        """The sum of the trees for each row of ``features``, between ``low`` and ``high``."""
        import numpy as np

        found = np.empty(len(features))
        for start in range(0, len(features), _CHUNK):
            part = features[start : start + _CHUNK]
            found[start : start + _CHUNK] = self.value[self._leaves(part)].sum(axis=1)
        return np.clip(found, self.low, self.high)

    def _leaves(self, features: Floats) -> Integers:
        """The leaf of each row in each tree, of shape (rows, trees). Rows that have reached one are left alone."""
        import numpy as np

        flat, width = features.ravel(), features.shape[1]
        leaves = np.tile(self.roots, len(features))
        places = np.arange(len(leaves), dtype=np.int32)
        nodes, rows = leaves, np.repeat(np.arange(0, len(flat), width, dtype=np.int32), len(self.roots))
        for _ in range(self.depth):
            right = flat.take(rows + self.feature.take(nodes)) > self.threshold.take(nodes)
            nodes = self.left.take(nodes) + right
            going = np.flatnonzero(self.left.take(nodes) != nodes)
            leaves[places] = nodes
            places, nodes, rows = places.take(going), nodes.take(going), rows.take(going)
        found: Integers = leaves.reshape(len(features), -1)
        return found
