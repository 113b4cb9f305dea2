"""Checkpoints at fixed nodes, with the segments between them recomputed (Chen et al. 2016, section 4); and Revolve.

The schedules are those of the baselines of Jain et al. 2020 as DTR was compared with: checkpoints stay to the end, and
while the backward pass is in a segment, all of the segment's values and gradients stay. What that wastes goes with
``tight``: then nothing stays beyond its last use.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from tensortide.errors import PlanError
from tensortide.plans.checkpointing.stages import StaticPlan, StaticStep, measured, nothing_kept, planned
from tensortide.plans.checkpointing.static import StaticGraph, chain
from tensortide.plans.model import Compute, Evict


def no_recompute(static: StaticGraph) -> StaticPlan:
    """Every node once, each value released after its last use: the reference of every overhead."""
    keep = nothing_kept(static)
    for node, read_by in enumerate(static.children):
        if read_by:
            keep[node + 1 : read_by[-1] + 1, node] = True
    return planned(static, keep, "no recomputation", tight=False)


def checkpoint_all(static: StaticGraph, *, articulation: bool = False, tight: bool = False) -> StaticPlan:
    """Every candidate is a checkpoint: all forward nodes but the loss, or the articulation points among them."""
    name = "checkpoint all" + _suffix(articulation)
    return checkpointed(static, candidates(static, articulation=articulation), name, tight=tight)


def checkpoint_last(static: StaticGraph, *, tight: bool = False) -> StaticPlan:
    """Each stage finds the node of the stage before it, and nothing else: the least memory, quadratic time."""
    keep = nothing_kept(static)
    for node in range(len(static) - 1):
        keep[node + 1, node] = True
    return planned(static, keep, "checkpoint last", tight=tight)


def chen_sqrt(static: StaticGraph, *, articulation: bool = False, tight: bool = False) -> StaticPlan:
    """Every k-th candidate is a checkpoint, k the root of their number: O(sqrt n) memory for one more forward pass."""
    nodes = candidates(static, articulation=articulation)
    every = max(1, math.isqrt(len(nodes)))
    return checkpointed(static, nodes[every - 1 :: every], "Chen sqrt n" + _suffix(articulation), tight=tight)


def chen_greedy(
    static: StaticGraph, segment_bytes: float, *, articulation: bool = False, tight: bool = False
) -> StaticPlan:
    """A candidate is a checkpoint once the forward nodes since the last one make more than ``segment_bytes``."""
    nodes = _cuts(static, segment_bytes, candidates(static, articulation=articulation))
    plan = checkpointed(static, nodes, "Chen greedy" + _suffix(articulation), tight=tight)
    return replace(plan, segment_bytes=segment_bytes)


def chen_greedy_sweep(static: StaticGraph, *, articulation: bool = False, tight: bool = False) -> Iterator[StaticPlan]:
    """``chen_greedy`` at 300 budgets from 0 to 3 times the activation bytes of ``checkpoint_all``, those of equal
    checkpoints once."""
    nodes = candidates(static, articulation=articulation)
    activation = checkpoint_all(static, articulation=articulation).activation_bytes
    seen = set[tuple[int, ...]]()
    for percent in range(300):
        segment_bytes = activation * percent / 100
        cuts = tuple(_cuts(static, segment_bytes, nodes))
        if cuts not in seen:
            seen.add(cuts)
            yield chen_greedy(static, segment_bytes, articulation=articulation, tight=tight)


def _suffix(articulation: bool) -> str:
    return " at articulation points" if articulation else ""


def _cuts(static: StaticGraph, segment_bytes: float, nodes: Collection[int]) -> list[int]:
    allowed, cuts, since = set(nodes), [], 0
    for node in static.forward:
        since += static.nbytes[node]
        if node in allowed and since > segment_bytes:
            cuts.append(node)
            since = 0
    return cuts


def loss_of(static: StaticGraph) -> int:
    """The last forward node that the backward pass reads, or else the last forward node; -1 if there is none."""
    forward = static.forward
    read = (v for v in reversed(forward) if any(static.backward[c] for c in static.children[v]))
    return next(read, forward[-1] if forward else -1)


def candidates(static: StaticGraph, *, articulation: bool = False) -> list[int]:
    """Return the nodes that may be checkpoints: the forward nodes except the loss.

    With ``articulation`` only those of them that lie on every path to the loss: nothing that comes before such a node
    is read, on the way to the loss, by what comes after it. Nodes that read nothing (constants made anew) do not count
    as a way around.
    """
    loss = loss_of(static)
    forward = [node for node in static.forward if node != loss]
    if not articulation or loss < 0:
        return forward
    leads = {loss}
    for node in range(loss, -1, -1):
        if node in leads:
            leads.update(static.parents[node])
    found, reach = [], -1
    for node in range(loss):
        if node in leads:
            if reach <= node and not static.backward[node]:
                found.append(node)
            reach = max(reach, *(child for child in static.children[node] if child in leads))
    return found


def checkpointed(
    static: StaticGraph, checkpoints: Collection[int], strategy: str = "checkpoints", *, tight: bool = False
) -> StaticPlan:
    """The schedule that keeps ``checkpoints``, forward nodes, and computes each segment between them once again.

    Retained are checkpoints, gradients until they are read, values that are read next, and the segment of each stage.
    """
    keep, cuts = nothing_kept(static), sorted(checkpoints)
    for node, read in enumerate(static.parents):
        for parent in read:
            keep[node, parent] = True
            if static.backward[parent] and static.backward[node]:
                keep[parent + 1 : node, parent] = True
    for node in cuts:
        keep[node + 1 : len(static), node] = True
    homes, end = _homes(static), max(loss_of(static) + 1, *cuts, 0)
    for start, stop in itertools.pairwise([0, *cuts, end]):
        forward = [node for node in range(start, stop) if not static.backward[node]]
        backward = [node for node, home in enumerate(homes) if start <= home < stop]
        keep[start : stop + 1, forward] = True
        for number, stage in enumerate(backward):
            keep[stage, forward + backward[:number]] = True
    return planned(static, keep, strategy, tight=tight)


def _homes(static: StaticGraph) -> list[int]:
    """For each backward node the forward node whose gradient it belongs to: the last it reads, else that of the node
    before. -1 for forward nodes."""
    homes, last = [], loss_of(static)
    for node, read in enumerate(static.parents):
        if static.backward[node]:
            last = max((u for u in read if not static.backward[u]), default=last)
        homes.append(last if static.backward[node] else -1)
    return homes


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
