"""Tensors at the peaks of two steps beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tensortide.metrics.differences.join import Pair
from tensortide.metrics.differences.side import Held, Side


class PeakTensor(msgspec.Struct, frozen=True):
    """A tensor resident at the peak of ``a``, of ``b``, or of both: matched by role, by module as joined, and by name,
    or if it has none by the op that made it and the order of those."""

    a: Held | None
    b: Held | None

    @property
    def held(self) -> Held:
        """The tensor in ``b``, or else in ``a``."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def nbytes(self) -> tuple[int, int]:
        """Its bytes on both sides."""
        return (self.a.nbytes if self.a else 0, self.b.nbytes if self.b else 0)

    @property
    def difference(self) -> int:
        return self.nbytes[1] - self.nbytes[0]


def peak_tensors(a: Side, b: Side, root: Pair) -> tuple[PeakTensor, ...]:
    """Match the tensors at both peaks, the largest difference first. Each side sums to its peak."""
    places: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for number, pair in enumerate(root.walk()):
        for node, known in zip((pair.a, pair.b), places, strict=True):
            if node is not None:
                known[node.path] = number
    left, right = (_by_key(side.at_peak, known) for side, known in zip((a, b), places, strict=True))
    found = []
    for key in dict.fromkeys([*left, *right]):
        these, those = left.get(key, []), right.get(key, [])
        both = min(len(these), len(those))
        found += [PeakTensor(one, other) for one, other in zip(these, those, strict=False)]
        found += [PeakTensor(one, None) for one in these[both:]]
        found += [PeakTensor(None, other) for other in those[both:]]
    return tuple(sorted(found, key=lambda one: (-abs(one.difference), -max(one.nbytes))))


def _by_key(tensors: Iterable[Held], places: dict[str, int]) -> dict[tuple[str, int, str, str], list[Held]]:
    found: defaultdict[tuple[str, int, str, str], list[Held]] = defaultdict(list)
    for one in tensors:
        found[one.role, places.get(one.module, -1), one.name, one.phase].append(one)
    return found
