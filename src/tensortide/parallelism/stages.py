"""Stages of a pipeline: which consecutive modules each has, so that the slowest takes as little time as it can."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from tensortide.cost import count
from tensortide.errors import DegreesError
from tensortide.graph.model import OUTSIDE, Graph, Phase
from tensortide.parallelism.gathered import unit_of

FLOPS_PER_BYTE = 100
"""Operational intensity at which computing and moving take equal time: the weight of an op without a known duration is
its FLOPs over this, plus its bytes."""


class Stages(NamedTuple):
    """Forward and backward ops by stage (None: an op of the update, or one that comes before), and the first module of
    each stage."""

    of: tuple[int | None, ...]
    firsts: tuple[str, ...]


def staged(graph: Graph, number: int, weights: Sequence[float] | None = None) -> Stages:
    """Cut ``graph`` into ``number`` stages at boundaries of modules.

    ``weights`` are durations of its ops, in any unit. Raises DegreesError if there are too few boundaries.
    """
    weights = _weights(graph) if weights is None else weights
    forward = [i for i, op in enumerate(graph.ops) if op.phase is Phase.FORWARD and not op.recompute]
    starts = _segments(graph, forward, number)
    segment_of = {i: bisect.bisect_right(starts, position) - 1 for position, i in enumerate(forward)}
    loads = _loads(graph, segment_of, len(starts), weights)
    cuts = balanced(loads, number)
    stage_of_segment = [bisect.bisect_right(cuts, segment) - 1 for segment in range(len(starts))]
    of: list[int | None] = [None] * len(graph.ops)
    for index, segment in segment_of.items():
        of[index] = stage_of_segment[segment]
    _stage_backward(graph, of, number)
    firsts = tuple(graph.module_path(graph.ops[forward[starts[cut]]].module) for cut in cuts)
    return Stages(tuple(of), firsts)


def _weights(graph: Graph) -> list[float]:
    costs = count(graph).costs
    known = [(cost.cost, cost.nbytes) for cost in costs]
    return [float(n) if cost is None else cost.flops / FLOPS_PER_BYTE + cost.bytes for cost, n in known]


def _segments(graph: Graph, forward: list[int], number: int) -> list[int]:
    """Positions in the forward pass where a stage may begin: where a repeated block begins or ends; if those are too
    few, where any module does."""
    paths = ["" if graph.ops[i].module == OUTSIDE else graph.modules[graph.ops[i].module].path for i in forward]
    starts = [0]
    for key in (unit_of, str):
        keys = list(map(key, paths))
        seen: set[str] = set()
        starts = [0]
        for position in range(1, len(forward)):
            seen.add(keys[position - 1])
            if keys[position] != keys[position - 1] and (keys[position] not in seen or not keys[position]):
                starts.append(position)
        if len(starts) >= number:
            return starts
    raise DegreesError(f"pipeline={number}: the forward pass has {len(starts)} parts between boundaries of modules")


def _loads(graph: Graph, segment_of: dict[int, int], number: int, weights: Sequence[float]) -> list[float]:
    """Time of each segment, with that of the backward ops of its modules."""
    loads = [0.0] * number
    last: dict[int, int] = {}
    for index, segment in segment_of.items():
        loads[segment] += weights[index]
        last[graph.ops[index].module] = segment
    for index, op in enumerate(graph.ops):
        if index not in segment_of and op.phase in (Phase.BACKWARD, Phase.FORWARD):
            loads[last.get(op.module, number - 1)] += weights[index]
    return loads


def balanced(loads: Sequence[float], number: int) -> list[int]:
    """The start of each of ``number`` runs of consecutive loads, so that the largest sum of a run is the least; by
    dynamic programming over prefixes."""
    import numpy as np

    sums = np.concatenate([[0.0], np.cumsum(np.array(loads, float))])
    count_of = len(loads)
    of_run = sums[:, None] - sums[None, :]  # by end and start
    of_run[np.triu_indices(count_of + 1)] = np.inf
    best = np.full(count_of + 1, np.inf)
    best[0] = 0.0
    came = []
    for _ in range(number):
        worst = np.maximum(best[None, :], of_run)
        came.append(worst.argmin(axis=1))  # of equal ones the first
        best = worst.min(axis=1)
    cuts, end = list[int](), count_of
    for starts in reversed(came):
        end = int(starts[end])
        cuts.insert(0, end)
    return cuts


def _stage_backward(graph: Graph, of: list[int | None], number: int) -> None:
    """Give backward ops, and recomputed ones, the stage of their module. The backward pass goes through the stages
    from the last to the first; ops of no module, or of one that several stages call, are where it has got to."""
    homes: dict[int, set[int]] = {}
    for index, op in enumerate(graph.ops):
        stage = of[index]
        if stage is not None and op.module != OUTSIDE and graph.modules[op.module].path:
            homes.setdefault(op.module, set()).add(stage)
    current = number - 1
    for index, op in enumerate(graph.ops):
        if of[index] is None and (op.phase is Phase.BACKWARD or op.recompute):
            here = homes.get(op.module, {current})
            reached = [stage for stage in here if stage <= current]
            if reached:
                current = max(reached)
            of[index] = max(reached) if reached else min(here)
