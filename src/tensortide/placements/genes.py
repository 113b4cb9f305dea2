"""Genes as numbers: that of a device, or of a set of devices which share the layers of the gene."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensortide.placements.bounds import Bounds

OnDevices: TypeAlias = "int | tuple[int, ...]"
"""The device of a layer, or the devices that share it."""
MOST_DEVICES = 14
"""Devices of which every set has a number of 16 bits, as tables and files of searches keep it."""


class Sharing(NamedTuple):
    """The sharing of genes: by how many devices each may be shared, at most, and the bounds that hold with it."""

    most: NDArray[np.int64]
    """[genes]"""
    bounds: Bounds


def devices_of(number: int, devices: int) -> tuple[int, ...]:
    """The devices, of ``devices`` in all, for which a gene's ``number`` stands, in ascending order.

    >>> devices_of(2, 3), devices_of(3 + 0b101, 3)
    ((2,), (0, 2))
    """
    if number < devices:
        return (number,)
    return tuple(device for device in range(devices) if (number - devices) >> device & 1)


def number_of(shared: Iterable[int], devices: int) -> int:
    """The number of a gene on the devices ``shared``, of ``devices`` in all.

    >>> number_of([2, 2], 3), number_of([2, 0], 3)
    (2, 8)
    """
    own = {*shared}
    return own.pop() if len(own) == 1 else devices + sum(1 << device for device in own)


def text_of(placement: Iterable[OnDevices]) -> str:
    """The devices of layers as text, a ``+`` between those that share one.

    >>> text_of([1, (0, 2)])
    '1 0+2'
    """
    return " ".join("+".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in placement)


def are_numbers(rows: NDArray[np.int64], devices: int, *, shared: bool) -> bool:
    """True if all of ``rows`` are numbers of devices, or if they may be ``shared`` of sets of them."""
    most = devices + (1 << devices) if shared else devices
    below, sets = rows < devices, rows >= devices + 0b11  # the least set of two
    return bool(((rows >= 0) & (below | sets) & (rows < most)).all())
