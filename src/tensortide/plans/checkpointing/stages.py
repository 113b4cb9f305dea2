"""Stages of a step, their completion from a retention matrix, and execution (Jain et al. 2020, section 3).

A step of n nodes is cut into n *stages*. In stage t node t is computed for the first time, and before it whatever nodes
below t are recomputed, in the order of their numbers. A retention matrix says what stage t finds resident:
``keep[t, v]``. Its last row, n, is what the step leaves behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tensortide.errors import PlanError
from tensortide.plans.checkpointing.static import StaticGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Retention: TypeAlias = NDArray[np.bool_]


class Make(msgspec.Struct, frozen=True, array_like=True, tag="make", gc=False):
    """Compute a node: again, if it was computed before."""

    node: int


class Free(msgspec.Struct, frozen=True, array_like=True, tag="free", gc=False):
    """Release what a node made."""

    node: int


StaticStep: TypeAlias = Make | Free


class StaticPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a StaticGraph.

    ``cost_ns``: time of all its ``Make`` steps. ``peak_bytes``: most bytes resident while a node is computed, what it
    reads and what it makes included; ``activation_bytes`` without what is resident throughout. ``overhead``:
    ``cost_ns`` over the cost of computing every node once. ``segment_bytes``: the setting of Chen's greedy strategy.
    """

    strategy: str
    steps: tuple[StaticStep, ...]
    cost_ns: int
    activation_bytes: int
    peak_bytes: int
    overhead: float
    segment_bytes: float = 0.0

    @property
    def made(self) -> Iterator[int]:
        """The nodes in the order in which they are computed."""
        return (step.node for step in self.steps if isinstance(step, Make))


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """``rows[t]``: nodes computed in stage t, ascending. ``keep``: what each stage finds resident."""

    rows: list[list[int]]
    keep: Retention


def nothing_kept(static: StaticGraph) -> Retention:
    """A retention matrix that says nothing but what the step leaves behind: that stays from when it is made."""
    import numpy as np

    keep = np.zeros((len(static) + 1, len(static)), bool)
    for node in static.kept:
        keep[node + 1 :, node] = True
    return keep


def complete(static: StaticGraph, keep: Retention) -> Stages:
    """Complete ``keep`` with the fewest computations.

    Only nodes before a stage can be kept for it. A node that the next stage keeps and this one lacks is computed, and
    so is, from later nodes to earlier ones, every node that is read and absent. A node that may no longer be computed
    in a stage that asks for it is retained instead, from the last stage that had it.
    """
    import numpy as np

    keep, rows = np.tril(keep, -1), list[list[int]]()
    for stage in range(len(static)):
        row = {stage}
        todo = [-stage]

        def ask(node: int, stage: int = stage, row: set[int] = row, todo: list[int] = todo) -> None:
            if keep[stage, node] or node in row:
                return
            if stage > static.until[node]:
                _retain(node, stage, rows, keep)
            else:
                row.add(node)
                heapq.heappush(todo, -node)

        for node in (keep[stage + 1] & ~keep[stage]).nonzero()[0].tolist():
            ask(node)
        while todo:
            for parent in static.parents[-heapq.heappop(todo)]:
                ask(parent)
        rows.append(sorted(row))
    return Stages(rows, keep)


def _retain(node: int, stage: int, rows: list[list[int]], keep: Retention) -> None:
    """Let ``stage`` find ``node``, from the last stage before it that has it."""
    last = next(t for t in range(stage - 1, -1, -1) if keep[t, node] or node in rows[t])
    keep[last + 1 : stage + 1, node] = True


def tightened(static: StaticGraph, stages: Stages) -> Stages:
    """``stages`` without what is of no use: nothing is retained beyond its last use, nothing computed for none."""
    keep = stages.keep.copy()
    rows: list[list[int]] = [[] for _ in stages.rows]
    for stage in range(len(static) - 1, -1, -1):
        needed = set(keep[stage + 1].nonzero()[0].tolist())
        row = []
        for node in reversed(stages.rows[stage]):
            if node == stage or node in needed:
                row.append(node)
                needed.discard(node)
                needed.update(static.parents[node])
        rows[stage] = row[::-1]
        keep[stage] = False
        keep[stage, list(needed)] = True
    return Stages(rows, keep)


def execute(static: StaticGraph, stages: Stages, strategy: str, segment_bytes: float = 0.0) -> StaticPlan:
    """Run the stages. A value goes once the stage does not read it any more and the next does not find it."""
    steps: list[StaticStep] = []
    resident: set[int] = set()

    def free(nodes: Iterable[int], stage: int, wanted: dict[int, int], done: int) -> None:
        for node in nodes:
            if node in resident and not stages.keep[stage + 1, node] and wanted.get(node, -1) <= done:
                resident.discard(node)
                steps.append(Free(node))

    for stage, row in enumerate(stages.rows):
        last = {parent: node for node in row for parent in static.parents[node]}
        free(sorted(resident), stage, last, -1)
        for node in row:
            resident.add(node)
            steps.append(Make(node))
            free((*static.parents[node], node), stage, last, node)
    return measured(static, steps, strategy, segment_bytes)


def measured(static: StaticGraph, steps: Iterable[StaticStep], strategy: str, segment_bytes: float = 0.0) -> StaticPlan:
    """``steps`` with what they cost. Raises PlanError if they do not execute ``static``."""
    steps = tuple(steps)
    resident: set[int] = set()
    made: set[int] = set()
    held = peak = cost = 0
    for number, step in enumerate(steps):
        node = step.node
        if isinstance(step, Free):
            if node not in resident:
                raise PlanError(f"step {number} frees node {node}, which is not resident")
            resident.discard(node)
            held -= static.nbytes[node]
            continue
        if node in resident or (node not in made and node != len(made)):
            raise PlanError(f"step {number} computes node {node}, whose turn it is not")
        absent = next((u for u in static.parents[node] if u not in resident), None)
        if absent is not None:
            raise PlanError(f"step {number} computes node {node}, which reads node {absent}; it is not resident")
        if node in made and len(made) > static.until[node]:
            raise PlanError(f"step {number} recomputes node {node} after node {static.until[node]}")
        made.add(node)
        resident.add(node)
        held += static.nbytes[node]
        peak = max(peak, held)
        cost += static.cost_ns[node]
    if len(made) < len(static) or not resident >= static.kept:
        raise PlanError("the plan does not compute every node, or loses what the step leaves behind")
    base = static.base_ns
    return StaticPlan(
        strategy=strategy,
        steps=steps,
        cost_ns=cost,
        activation_bytes=peak,
        peak_bytes=peak + static.fixed_bytes,
        overhead=cost / base if base else 1.0,
        segment_bytes=segment_bytes,
    )
