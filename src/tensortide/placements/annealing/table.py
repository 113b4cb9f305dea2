"""Placements with their scores, found again by their devices: a hash table over flat arrays."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensortide.compiled import compiled, entry
from tensortide.placements.arrays import Floats, Ints, Placements

Rows: TypeAlias = NDArray[np.int16]

_PRIME = 2_147_483_647
_FACTOR = 1_000_003


class Table(NamedTuple):
    """Placements in the order in which they were added, as many as ``size[0]`` says.

    ``slots``: numbers of placements by hash (-1: none), a power of two of them, at least twice the room.
    """

    slots: Ints
    rows: Rows
    """[room, genes]"""
    scores: Floats
    """ms with the penalty of over-use [room]"""
    over: Floats
    """bytes [room]"""
    size: Ints


def new_table(genes: int, room: int = 256) -> Table:
    """Make an empty table with room for ``room`` placements."""
    slots = 1 << (2 * room - 1).bit_length()
    return Table(
        np.full(slots, -1, np.int64),
        np.zeros((room, genes), np.int16),
        np.zeros(room),
        np.zeros(room),
        np.zeros(1, np.int64),
    )


def with_room(table: Table, more: int) -> Table:
    """Return ``table``, or a larger one with the same contents, with room for ``more`` placements."""
    size, room = int(table.size[0]), len(table.scores)
    if size + more <= room:
        return table
    found = new_table(table.rows.shape[1], max(size + more, 2 * room))
    append(found, table)
    return found


def first_of(table: Table, count: int) -> Table:
    """Return a table with the first ``count`` placements of ``table``."""
    found = new_table(table.rows.shape[1], len(table.scores))
    append(found, table._replace(size=np.array([count], np.int64)))
    return found


@entry
def append(table: Table, other: Table) -> None:
    """Add the placements of ``other`` that ``table`` lacks; it must have room for all."""
    for number in range(other.size[0]):
        row = other.rows[number]
        if find(table, row) < 0:
            add(table, row, other.scores[number], other.over[number])


@entry
def merge(table: Table, other: Table, known: Table, added: Ints) -> int:
    """Add the placements of ``other`` that ``table`` lacks; it must have room for all.

    ``added`` [k + 1] becomes how many were added of the first 0, 1, ... of them.

    Returns:
        How many of those added are in ``known``.
    """
    found = 0
    for number in range(other.size[0]):
        row = other.rows[number]
        added[number + 1] = added[number]
        if find(table, row) < 0:
            add(table, row, other.scores[number], other.over[number])
            added[number + 1] += 1
            if find(known, row) >= 0:
                found += 1
    return found


@entry
def number_all(table: Table, rows: Placements, numbers: Ints, most: int) -> int:
    """Write the number of each row [k, genes] to ``numbers``; those that are new are added, ``most`` of them.

    Returns:
        The number of rows before the first one that would have been too many.
    """
    start = table.size[0]
    for k in range(len(rows)):
        found = find(table, rows[k])
        if found < 0:
            if table.size[0] - start == most:
                return k
            found = add(table, rows[k], np.nan, np.nan)
        numbers[k] = found
    return len(rows)


@entry
def find(table: Table, row: Placements) -> int:
    """The number of a placement; -1 if the table does not have it."""
    last = len(table.slots) - 1
    slot = _hashed(row) & last
    while table.slots[slot] >= 0:
        number = table.slots[slot]
        same = True
        for gene in range(len(row)):
            if table.rows[number, gene] != row[gene]:
                same = False
                break
        if same:
            return number
        slot = (slot + 1) & last
    return -1


@entry
def add(table: Table, row: Placements, score: float, over: float) -> int:
    """Add a placement that the table does not have, and return its number."""
    number, last = table.size[0], len(table.slots) - 1
    slot = _hashed(row) & last
    while table.slots[slot] >= 0:
        slot = (slot + 1) & last
    table.slots[slot] = number
    for gene in range(len(row)):
        table.rows[number, gene] = row[gene]
    table.scores[number] = score
    table.over[number] = over
    table.size[0] = number + 1
    return number


@compiled
def _hashed(row: Placements) -> int:
    found = 1
    for gene in range(len(row)):
        found = (found * _FACTOR + int(row[gene]) + 1) % _PRIME
    return found
