"""Collectives run message by message among few ranks, as independent counts of bytes and steps.

A message has 2 n parts, so that trees can divide it into halves; the part of a rank is two of them. A piece of data is
an atom (origin, part): a rank holds a set of them. Where a collective reduces, atoms of one part travel as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tensortide.graph.collectives import Collective, Held

Atom = tuple[int, int]
Round = list[tuple[int, int, list[int]]]
"""Messages that travel at a time: from, to, and the parts that they carry (-1: the token of a barrier)."""


def before(held: Held, ranks: int) -> list[set[Atom]]:
    """The atoms of each rank where all are as ``held`` says; the root and the sender are rank 0."""
    every = range(2 * ranks)
    if held is Held.OWN:
        return [{(rank, part) for part in every} for rank in range(ranks)]
    if held is Held.PART:
        return [{(rank, part) for part in own(rank)} for rank in range(ranks)]
    if held is Held.ROOT:
        return [{(0, part) for part in every}, *(set[Atom]() for _ in range(ranks - 1))]
    assert held is Held.NOTHING
    return [{(rank, -1)} for rank in range(ranks)]  # that it has come


def after(row: Collective, ranks: int) -> list[set[Atom]]:
    """The atoms that each rank needs in the end."""
    start = before(row.has, ranks)
    whole = set[Atom]().union(*start)
    if row.gets is Held.ROOT:
        return [whole, *(set[Atom]() for _ in range(ranks - 1))]
    if row.gets in (Held.PART, Held.EACH):
        return [{(origin, part) for origin, part in whole if part in own(rank)} for rank in range(ranks)]
    if row.gets is Held.OTHER:
        return [start[rank - 1] if rank or row.has is Held.OWN else set() for rank in range(ranks)]
    return [whole] * ranks


def own(rank: int) -> list[int]:
    """The parts of a rank."""
    return [2 * rank, 2 * rank + 1]


class Run(NamedTuple):
    """A run: what each rank holds in the end, the bytes that cross the busiest link over those of a message, and the
    number of rounds."""

    state: list[set[Atom]]
    sent: float
    steps: int


def run(row: Collective, algorithm: str, ranks: int) -> Run:
    """Run ``row`` by an algorithm."""
    state, rounds = before(row.has, ranks), list(_rounds(row, algorithm, ranks))
    out, into = [0] * ranks, [0] * ranks
    for messages in rounds:
        moved = []
        for source, target, parts in messages:
            atoms = {atom for atom in state[source] if atom[1] in parts}
            pieces = len({part for _, part in atoms} if row.reduces else atoms) if parts != [-1] else 0
            out[source] += pieces
            into[target] += pieces
            moved.append((target, atoms))
        for target, atoms in moved:  # all of a round at a time
            state[target] |= atoms
    return Run(state, max(*out, *into) / (2 * ranks), len(rounds))


def _rounds(row: Collective, algorithm: str, ranks: int) -> Iterator[Round]:
    every, all_ranks = list(range(2 * ranks)), range(ranks)
    if algorithm == "ring":
        yield from _ring(row, ranks)
    elif algorithm == "tree":
        yield from _tree(row, ranks)
    elif algorithm == "one-shot":
        yield [(a, b, every) for a in all_ranks for b in all_ranks if a != b]
    elif algorithm == "two-shot":
        yield [(a, b, own(b)) for a in all_ranks for b in all_ranks if a != b]
        yield [(a, b, own(a)) for a in all_ranks for b in all_ranks if a != b]
    elif row.gets is Held.EACH:
        yield from ([(a, (a + k) % ranks, own((a + k) % ranks)) for a in all_ranks] for k in range(1, ranks))
    elif row.gets is Held.ROOT:
        yield from ([(k, 0, own(k))] for k in range(1, ranks))
    elif row.gets is Held.PART:
        yield from ([(0, k, own(k))] for k in range(1, ranks))
    elif row.has is Held.OWN:
        yield [(a, (a + 1) % ranks, every) for a in all_ranks]
    else:
        yield [(0, 1, every)]


def _ring(row: Collective, ranks: int) -> Iterator[Round]:
    every, all_ranks = list(range(2 * ranks)), range(ranks)
    if row.has is Held.ROOT:
        yield from ([(rank, rank + 1, every)] for rank in range(ranks - 1))
    elif row.gets is Held.ROOT:
        yield from ([(rank, rank - 1, every)] for rank in reversed(range(1, ranks)))
    if row.reduces and row.gets is not Held.ROOT:
        yield from ([(a, (a + 1) % ranks, own((a - 1 - k) % ranks)) for a in all_ranks] for k in range(ranks - 1))
    if row.gets is Held.WHOLE and row.has is not Held.ROOT:
        yield from ([(a, (a + 1) % ranks, own((a - k) % ranks)) for a in all_ranks] for k in range(ranks - 1))


def _tree(row: Collective, ranks: int) -> Iterator[Round]:
    """Rank 0 is the root with one child, below which the others are a heap. Up and down use two: in the second, the
    order of the others is reversed."""
    every = list(range(2 * ranks))
    others = list(range(1, ranks))
    trees = [(others, [-1] if row.has is Held.NOTHING else every)]
    if row.has is Held.OWN and row.gets is Held.WHOLE:
        trees = [(others, every[:ranks]), (others[::-1], every[ranks:])]
    levels = (ranks - 1).bit_length()
    if row.gets is not Held.WHOLE or row.has is not Held.ROOT:
        yield from (_level(trees, level, up=True) for level in reversed(range(levels)))
    if row.gets is not Held.ROOT:
        yield from (_level(trees, level, up=False) for level in range(levels))


def _level(trees: Iterable[tuple[list[int], list[int]]], level: int, *, up: bool) -> Round:
    """The messages between a level of each tree and the one above."""
    found: Round = []
    for order, parts in trees:
        for place in range(2**level, min(2 ** (level + 1), len(order) + 1)):
            child, parent = order[place - 1], order[place // 2 - 1] if place > 1 else 0
            found.append((child, parent, parts) if up else (parent, child, parts))
    return found
