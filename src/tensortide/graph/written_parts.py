"""Storages that are written in parts: which of their elements have been written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

_Box: TypeAlias = tuple[range, ...]
"""The elements at these places along each dimension."""


class WrittenParts:
    """The parts of a storage that have been written since a tensor was allocated in it.

    A part is a slice along any dimensions of the tensor, with any steps, and no two have an element in common: then the
    storage is written once they have as many elements. ``missing`` is the number of those that are left.

    Examples:
        >>> parts = WrittenParts((2, 6), (6, 1), itemsize=4, nbytes=48)
        >>> parts.add((2, 4), (6, 1), 0, itemsize=4), parts.missing  # [:, :4]
        (True, 4)
        >>> parts.add((2, 2), (6, 1), 4, itemsize=4), parts.missing  # [:, 4:]
        (True, 0)
    """

    def __init__(self, shape: Sequence[int], strides: Sequence[int], itemsize: int, nbytes: int) -> None:
        self._dimensions = _outermost_first(shape, strides)
        inside = [
            math.prod(size for _, size in self._dimensions[place + 1 :]) for place in range(len(self._dimensions))
        ]
        self._dense = inside == [stride for stride, _ in self._dimensions] and math.prod(shape) * itemsize == nbytes
        self._itemsize = itemsize
        self._boxes: list[_Box] = []
        self.elements = self.missing = nbytes // itemsize

    def add(self, shape: Sequence[int], strides: Sequence[int], offset: int, itemsize: int) -> bool:
        """Note that this view is written. False if it is no part, or has an element of an earlier one."""
        box = self._box(shape, strides, offset) if self._dense and itemsize == self._itemsize else None
        if box is None or not all(_apart(box, other) for other in self._boxes):
            return False
        self._boxes.append(box)
        self.missing -= math.prod(map(len, box))
        return True

    def add_all(self) -> None:
        """Note that the whole storage is written."""
        self.missing = 0

    def _box(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> _Box | None:
        """The places of a view along the dimensions, outermost first; None if it is no slice along them."""
        left, rest = _outermost_first(shape, strides), offset
        box: list[range] = []
        # A dimension of the view is a slice of the one whose stride it is a multiple of; what the offset leaves over
        # starts the next. A dimension of the storage that the view has none of is a single place.
        for unit, length in self._dimensions:
            start, rest = divmod(rest, unit)
            own = [(stride, size) for stride, size in left if unit <= stride < unit * length]
            stride, size = own[0] if own else (unit, 1)
            place = range(start, start + (stride // unit) * size, stride // unit)
            if len(own) > 1 or stride % unit or (size and place[-1] >= length):
                return None
            left = [each for each in left if each not in own]
            box.append(place)
        return None if left else tuple(box)


def _outermost_first(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Stride and size of the dimensions that have other than one element."""
    return sorted(((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1), reverse=True)


def _apart(one: _Box, other: _Box) -> bool:
    """True if the boxes have no element in common. False may also mean that this cannot be seen from ends and steps of
    one dimension."""
    return any(
        not a or not b or a[-1] < b[0] or b[-1] < a[0] or (a[0] - b[0]) % math.gcd(a.step, b.step)
        for a, b in zip(one, other, strict=True)
    )
