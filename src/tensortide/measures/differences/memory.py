"""Memory of two steps beside each other: the tensors at both peaks, and the bytes resident over one axis."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensortide.differences import Amounts, Matcher, Node, Pair, diff
from tensortide.measures.differences.side import Held, ModulePair, Side
from tensortide.shown import Show

POINTS = 480
"""Most entries of the curves."""


class HeldAmounts(Amounts, frozen=True):
    """Bytes of a tensor at the peak."""

    bytes: Annotated[int, Show(sum=True)] = 0


PeakTensor: TypeAlias = Pair[HeldAmounts]
"""A tensor resident at the peak of ``a``, of ``b``, or of both; a node is ``of`` a ``Held``."""


def peak_tensors(a: Side, b: Side, root: ModulePair) -> tuple[PeakTensor, ...]:
    """Match the tensors at both peaks, the largest difference first; each side sums to its peak.

    Tensors are matched by role, by module as joined, and by name, or those without one by the op that made them and
    the order of those.
    """
    keys: dict[Node[HeldAmounts], Hashable] = {}

    def tree(side: Side, at: int) -> Node[HeldAmounts]:
        modules = ((pair.a, pair.b)[at] for pair in root.walk())
        places = {node.path: number for number, node in enumerate(modules) if node is not None}
        nodes = {Node(one.name, HeldAmounts(one.size_bytes), of=one): one for one in side.at_peak}
        keys.update((node, (one.role, places.get(one.module, -1), one.name, one.phase)) for node, one in nodes.items())
        return Node("", HeldAmounts(), tuple(nodes))

    found = diff(tree(a, 0), tree(b, 1), Matcher(keys.__getitem__)).children
    return tuple(sorted(found, key=lambda one: (-abs(one.difference.bytes), -max(side.bytes for side in one.whole))))


def held(tensor: PeakTensor) -> Held:
    """Return what is known of a tensor in ``b``, or else in ``a``."""
    found: Held = tensor.node.of
    return found


# -- over time --------------------------------------------------------------------------------------


class Curves(msgspec.Struct, frozen=True):
    """Bytes resident in both steps. Entry ``i`` is the most from ``x[i]`` to ``x[i + 1]``, so the peaks are exact.

    ``x`` is in ns; in ``op`` it numbers the ops of the first step, and the second is stretched to its length. ``ops``
    are the ops of the first step that run, or after it its last one.
    """

    unit: Literal["ns", "op"]
    x: tuple[int, ...]
    ops: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]


def curves(a: Side, b: Side) -> Curves | None:
    """Align the memory of two steps; None if one has no ops."""
    if not len(a.graph) or not len(b.graph):
        return None
    timed = all(side.durations is not None and sum(side.durations.ns) for side in (a, b))
    ends = [_ends(side) if timed else np.linspace(0, len(a.graph), len(side.graph) + 1)[1:] for side in (a, b)]
    whole = int(max(ends[0][-1], ends[1][-1]))
    edges = np.unique(np.linspace(0, whole, min(POINTS, whole) + 1).astype(np.int64))
    series = [_highest(side.memory.resident, one, edges) for side, one in zip((a, b), ends, strict=True)]
    ops = np.minimum(np.searchsorted(ends[0], edges[:-1], "right"), len(a.graph) - 1)
    return Curves("ns" if timed else "op", tuple(edges.tolist()), tuple(ops.tolist()), *series)


def _ends(side: Side) -> NDArray[np.float64]:
    assert side.durations is not None
    return np.cumsum(np.array(side.durations.ns, np.float64))


def _highest(resident: NDArray[np.int64], ends: NDArray[np.float64], edges: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the most bytes of the ops that run between two edges; 0 after the last op has ended."""
    starts = np.concatenate([[0.0], ends[:-1]])
    first = np.searchsorted(ends, edges[:-1], "right")
    last = np.searchsorted(starts, edges[1:], "left")
    return tuple(int(resident[i:j].max()) if i < j else 0 for i, j in zip(first.tolist(), last.tolist(), strict=True))
