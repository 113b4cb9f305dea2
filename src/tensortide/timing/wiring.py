"""Wirings of a node: which devices the link of a device joins, and what part of its whole rate a group of them has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Wiring(NamedTuple):
    """One way to join the devices of a node.

    Args:
        about: the wiring in words, with a hole for the number of devices that it joins.
        part: the part of a device's whole rate between the devices numbered ``a`` and ``b``, where ``joined`` devices
            are joined. None: any group of any size has the whole rate.
        over_pcie: devices that it does not join reach each other over PCIe.
    """

    about: str
    part: Callable[[int, int, int], float] | None = None
    over_pcie: bool = False

    def share(self, members: Sequence[int], joined: int) -> float:
        """The part of its whole rate that the device which has least has to the other ``members``; 0 where the links
        between them leave some apart."""
        part = self.part
        if part is None:
            return 1.0
        reached, waiting = {members[0]}, [members[0]]
        while waiting:
            at = waiting.pop()
            new = [each for each in members if each not in reached and part(at, each, joined)]
            reached.update(new)
            waiting += new
        if len(reached) < len(members):
            return 0.0
        return min(sum(part(one, other, joined) for other in members if other != one) for one in members)


def _mesh(a: int, b: int, joined: int) -> float:
    """A link between each two of ``joined`` devices that follow each other."""
    return 1 / (joined - 1) if a // joined == b // joined else 0.0


_DOUBLE = frozenset({(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)})
"""Edges of the cube of V100s that are two links."""


def _edges(a: int, b: int, joined: int) -> int:
    """Edges between two corners of a cube, two of whose faces have their diagonals."""
    return int(a // joined == b // joined and (a // 4 == b // 4 or abs(a - b) == 4))


def _cube4(a: int, b: int, joined: int) -> float:
    return _edges(a, b, joined) / 4


def _cube6(a: int, b: int, joined: int) -> float:
    low, high = sorted((a % joined, b % joined))
    return _edges(a, b, joined) * (1 + ((low, high) in _DOUBLE)) / 6


WIRINGS: dict[str, Wiring] = {
    "switched": Wiring("any two joined by a switch, at the whole rate"),
    "mesh": Wiring("each two of {} joined by a link of their own", _mesh),
    "bridge": Wiring("{} joined by a bridge, others by PCIe", _mesh, over_pcie=True),
    "cube4": Wiring("{} joined as a cube of 4 links each, others by PCIe", _cube4, over_pcie=True),
    "cube6": Wiring("{} joined as a cube of 6 links each, others by PCIe", _cube6, over_pcie=True),
    "torus": Wiring("neighbours of a torus joined; every group is taken to have the whole rate"),
    "pcie": Wiring("joined by PCIe"),
    "": Wiring("wiring unknown; every group is taken to have the whole rate"),
}
"""Every wiring, by its name in the catalogue."""
