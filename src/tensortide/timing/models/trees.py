"""Boosted regression trees as arrays: evaluated with NumPy alone, so that a prediction needs no learning library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int32]

_CHUNK = 512
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
            rows = np.arange(len(part))[:, None]
            node = np.broadcast_to(self.roots, (len(part), len(self.roots)))
            for _ in range(self.depth):
                node = self.left[node] + (part[rows, self.feature[node]] > self.threshold[node])
            found[start : start + _CHUNK] = self.value[node].sum(axis=1)
        return np.clip(found, self.low, self.high)
