"""Chains reversed with few checkpoints (Griewank & Walther 2000, "Revolve")."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.errors import PlanError
from tensortide.plans.checkpointing.stages import StaticPlan, StaticStep, measured
from tensortide.plans.checkpointing.static import StaticGraph, chain
from tensortide.plans.model import Compute, Evict


def revolve(static: StaticGraph, slots: int) -> StaticPlan:
    """The schedule of a training chain that computes the fewest forward nodes with ``slots`` checkpoints.

    ``slots`` values may be stored at a time, beside what a node just reads and makes; the input of the chain is always
    there. To reverse a segment one of its nodes is stored, the part above it is reversed with one slot less, then the
    part below with all of them. Which node is best follows from the fewest evaluations of shorter segments: optimal if
    all forward nodes cost the same. Raises PlanError if ``static`` is no ``chain``, or if ``slots`` is negative.
    """
    length = len(static) // 2
    if not is_chain(static):
        raise PlanError("Revolve reverses chains: forward nodes, a loss, and a gradient for each forward node")
    if slots < 0:
        raise PlanError(f"{slots} slots are too few")
    slots = min(slots, length)
    steps = _reversed(_evaluations(length, slots), length, -1, length - 1, slots) if length else iter([Compute(0)])
    return measured(static, steps, f"Revolve, {slots} slots")


def is_chain(static: StaticGraph) -> bool:
    """Return whether ``static`` has the shape that ``chain`` builds, at any costs and bytes, and may be recomputed."""
    count = len(static)
    free = not static.kept and all(last == count - 1 for last in static.until)
    return count % 2 == 1 and free and static.parents == chain(count // 2).parents


def _evaluations(length: int, slots: int) -> list[list[int]]:
    """The fewest forward evaluations that reverse so many nodes with so many checkpoints, the first pass included: by
    slots and length, up to these."""
    table = [[count * (count + 1) // 2 for count in range(length + 1)]]
    for _ in range(slots):
        fewer, row = table[-1], [0]
        for count in range(1, length + 1):
            row.append(min(split + fewer[count - split] + row[split - 1] for split in range(1, count + 1)))
        table.append(row)
    return table


def _reversed(table: list[list[int]], length: int, before: int, last: int, slots: int) -> Iterator[StaticStep]:
    """Reverse the nodes after ``before``, which is resident (-1: the input), up to ``last``."""
    while last > before:
        count, row = last - before, table[slots]
        split = count
        if slots:
            fewer = table[slots - 1]
            split = next(m for m in range(1, count + 1) if m + fewer[count - m] + row[m - 1] == row[count])
        stored = before + split
        for node in range(before + 1, stored + 1):
            yield Compute(node)
            if node - 1 > before:
                yield Evict(node - 1)
        if stored < last:
            yield from _reversed(table, length, stored, last, slots - 1)
        if stored == length - 1:
            yield Compute(length)
        yield Compute(2 * length - stored)
        yield Evict(2 * length - stored - 1)
        yield Evict(stored)
        last = stored - 1
