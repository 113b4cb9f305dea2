"""Pieces of a path: what a device keeps for each, and what a layer reads from a piece beside its last output."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensortide.compiled import compiled
from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.simulator.tables import Tables


class Joins(NamedTuple):
    """Layers of a path that a later layer reads beside the one before it.

    ``at[first[edge]:first[edge + 1]]`` are the places of those that the layer after ``edge`` reads, the last first;
    ``nbytes`` of their outputs.
    """

    first: Ints
    at: Ints
    nbytes: Ints


class Rates(NamedTuple):
    """Least times of transfers between classes of devices.

    ``there_ms_per_byte`` and ``back_ms_per_byte`` [classes, classes]: that of a byte more from a device of one class to
    one of another, and of a byte back. ``cycle_ms``: the longest time that a transfer takes at the least, whatever its
    size.
    """

    there_ms_per_byte: Floats
    back_ms_per_byte: Floats
    cycle_ms: float


class Pieces(NamedTuple):
    """Tables of the pieces of a path: ``peaks`` in bytes, see ``least_peaks``, ``joins`` and ``rates``.

    ``late_ms`` [classes]: scratch, see ``delay``.
    """

    peaks: Floats
    joins: Joins
    rates: Rates
    late_ms: Floats


@compiled
def delay(pieces: Pieces, k: int, joined_bytes: float, since_ms: float) -> None:
    """Raise ``late_ms``, the time that a join waits longer than for the layer before it, which is on class ``k``.

    It reads ``joined_bytes`` from the same device besides. They pass before on the same lane, the first of them
    ``since_ms`` earlier or less; gradients of all go back in one transfer.
    """
    rates, late_ms = pieces.rates, pieces.late_ms
    for other in range(len(late_ms)):
        waits = max(0.0, joined_bytes * rates.there_ms_per_byte[k, other] - since_ms)
        returns = max(0.0, joined_bytes * rates.back_ms_per_byte[k, other] - rates.cycle_ms)
        late_ms[other] = max(late_ms[other], waits + returns)


def rates_between(t: Tables, where: Ints, group: Ints) -> Rates:
    """Return the rates between the devices ``where`` of the classes ``group``."""
    classes = int(group.max()) + 1
    there = np.full((classes, classes), np.inf)
    for one, two in itertools.permutations(range(len(where)), 2):
        pair = where[one] * t.devices + where[two]
        if t.route[pair] < t.route[pair + 1]:
            rate = t.gigabyte * t.hop_rate[t.route[pair]] * t.network
            at = group[one], group[two]
            there[at] = min(there[at], 1000 / rate)
    back = there.T.copy() if t.backward else np.zeros_like(there)
    return Rates(there, back, float(t.cycle.max()))


def joins(t: Tables, path: Sequence[int]) -> Joins:
    """Find the joins of ``path``."""
    place = {layer: number for number, layer in enumerate(path)}
    at = [
        sorted({place[parent] for parent in _parents(t, layer) if parent in place} - {edge}, reverse=True)
        for edge, layer in enumerate(path[1:])
    ]
    read = np.array([one for of in at for one in of], np.int64)
    first = np.cumsum([0, *map(len, at), 0]).astype(np.int64)
    return Joins(first, read, t.nbytes[np.array(path, np.int64)[read]])


def least_peaks(t: Tables, path: Sequence[int]) -> Floats:
    """The least peak of a device that has a piece of ``path``, bytes [first layer, last layer]; infinite for none.

    Weights are resident throughout. Before the backward part of a layer runs, so is what it and those before it in the
    piece read, once for all of them, and a gradient from each of its own readers: their backward parts have run, those
    of layers before it have not. Gradients are weighed for each layer of the piece, and the largest peak counts.
    """
    layers = len(path)
    peaks, read, most = np.full((layers, layers), np.inf), np.zeros(layers), np.zeros(layers)
    weights = np.concatenate([[0], np.cumsum(t.resident[np.array(path)])])
    last_reader: dict[int, int] = {}
    for end, layer in enumerate(path):
        begins = slice(0, end + 1)
        if t.backward:
            for parent in _parents(t, layer):
                read[last_reader.get(parent, -1) + 1 : end + 1] += t.nbytes[parent]
                last_reader[parent] = end
            readers = t.first[layer + 1] - t.first[layer]
            most[begins] = np.maximum(most[begins], read[begins] + readers * t.nbytes[layer])
        peaks[begins, end] = most[begins] + weights[end + 1] - weights[begins]
    return peaks


def _parents(t: Tables, layer: int) -> list[int]:
    found: list[int] = t.successors[t.first[t.layers + layer] : t.first[t.layers + layer + 1]].tolist()
    return found
