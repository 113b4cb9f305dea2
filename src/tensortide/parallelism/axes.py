"""Axes of a step: dimensions of different tensors that are one dimension of the mathematics, joined and split apart.

A dimension of a tensor is an ordered list of axes, the outermost first: rows of a batch of sequences are
(batch, sequence), the columns of a fused projection (3, heads, head size). Ops tie axes of their tensors together; an
axis that meets a finer list of axes is split like it. To shard a step is to choose axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

Axis: TypeAlias = int
"""A number of an axis in its ``Axes``."""

GIVEN = -1
"""In the place of the index of an op: what is given before the first."""


class _Note(NamedTuple):
    """The reason ``why`` an axis stays whole, and the op that needs it."""

    axis: Axis
    why: str
    op: int


class Axes:
    """A union-find over axes, in which an axis may be split into a list of finer ones.

    ``size`` is by axis. ``cut``: the reason why an axis cannot be divided at all; ``whole``: the reason why an op
    needs all of it in one place, though every part of it could be computed as a step of its own. ``follow``: an axis of
    a capacity, which is divided as another one is, and rounded up. ``at`` is the op that ties or notes: of its index.
    """

    def __init__(self) -> None:
        self.size: list[int] = []
        self.at = GIVEN
        self._same: list[Axis] = []
        self._parts: dict[Axis, tuple[Axis, Axis]] = {}
        self._cut: list[_Note] = []
        self._whole: list[_Note] = []
        self._following: list[tuple[Axis, Axis]] = []

    def new(self, size: int) -> Axis:
        """A fresh axis."""
        self.size.append(size)
        self._same.append(len(self._same))
        return len(self._same) - 1

    def find(self, axis: Axis) -> Axis:
        """The representative of all axes that are the same."""
        same = self._same
        while same[axis] != axis:
            same[axis] = same[same[axis]]
            axis = same[axis]
        return axis

    def leaves(self, axes: Iterable[Axis]) -> list[Axis]:
        """The finest axes of a list, the outermost first; those of size 1 are left out."""
        # Analyses spend much of their time here: ``find`` is written out.
        size, same, parts = self.size, self._same, self._parts
        found: list[Axis] = []
        for axis in axes:
            root = axis
            while (parent := same[root]) != root:
                same[root] = root = same[parent]
            if root in parts:
                found += self.leaves(parts[root])
            elif size[root] != 1:
                found.append(root)
        return found

    def split(self, axes: Sequence[Axis], inner: int) -> tuple[list[Axis], list[Axis]] | None:
        """The list as an outer part and an inner part of ``inner`` elements; None if it cannot be split there."""
        outer, found, left = self.leaves(axes), list[Axis](), inner
        while left != 1:
            if not outer:
                return None
            last = outer.pop()
            size = self.size[last]
            if left % size == 0:
                found.insert(0, last)
                left //= size
            elif size % left == 0:
                out, inside = self._split_leaf(last, left)
                outer.append(out)
                found.insert(0, inside)
                left = 1
            else:
                return None
        return outer, found

    def _split_leaf(self, leaf: Axis, inner: int) -> tuple[Axis, Axis]:
        """The two axes that a finest one becomes, the second of ``inner`` elements."""
        parts = self._parts[leaf] = self.new(self.size[leaf] // inner), self.new(inner)
        return parts

    def tie(self, one: Iterable[Axis], other: Iterable[Axis], why: str = "") -> None:
        """Make two lists of axes the same; where their sizes do not allow it, cut what is left."""
        left, right = self.leaves(one), self.leaves(other)
        while left and right:
            a, b = left[-1], right[-1]
            size, other_size = self.size[a], self.size[b]
            if size == other_size:
                self._same[b] = a
                left.pop(), right.pop()
            elif max(size, other_size) % min(size, other_size) == 0:
                self._split_leaf(*((a, other_size) if size > other_size else (b, size)))
            else:
                break
            # What has become another axis, or was split, is met when its turn comes.
            for rest in (left, right):
                if rest:
                    rest[-1:] = self.leaves(rest[-1:])
        for axis in self.leaves((*left, *right)):
            self.cut(axis, why or "it is grouped in two ways that do not agree")

    def cut(self, axis: Axis, why: str) -> None:
        """Note that ``axis`` cannot be divided."""
        self._cut.append(_Note(axis, why, self.at))

    def whole(self, axis: Axis, why: str) -> None:
        """Note that an op needs the whole of ``axis``."""
        self._whole.append(_Note(axis, why, self.at))

    def follow(self, capacity: Axis, axis: Axis) -> None:
        """Note that ``capacity`` counts a share of ``axis``: so many are taken of so many."""
        self._following.append((capacity, axis))

    def followers(self, chosen: set[Axis]) -> set[Axis]:
        """The axes that are divided as one of ``chosen`` is, the outermost of each."""
        found: set[Axis] = set()
        for capacity, axis in self._following:
            outermost = self.leaves([capacity])[:1]
            if not chosen.isdisjoint(self.leaves([axis])):
                found.update(outermost)
        return found - chosen

    @property
    def cuts(self) -> dict[Axis, str]:
        """The first reason why each finest axis cannot be divided."""
        return {axis: notes[0].why for axis, notes in self._by_leaf(self._cut).items()}

    @property
    def wholes(self) -> dict[Axis, str]:
        """The first reason why each finest axis is needed whole."""
        return {axis: notes[0].why for axis, notes in self._by_leaf(self._whole).items()}

    def needs(self, axis: Axis) -> dict[int, str]:
        """The ops that a finest axis cannot be divided or is needed whole for, each with its first reason."""
        return self.all_needs.get(axis, {})

    @property
    def all_needs(self) -> dict[Axis, dict[int, str]]:
        """``needs`` of every finest axis that has any."""
        found: dict[Axis, dict[int, str]] = {}
        for axis, notes in self._by_leaf([*self._cut, *self._whole]).items():
            of_op = found.setdefault(axis, {})
            for note in notes:
                of_op.setdefault(note.op, note.why)
        return found

    def _by_leaf(self, notes: list[_Note]) -> dict[Axis, list[_Note]]:
        found: dict[Axis, list[_Note]] = {}
        for note in notes:
            for leaf in self.leaves([note.axis]):
                found.setdefault(leaf, []).append(note)
        return found
