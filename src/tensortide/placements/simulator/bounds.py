"""Lower bounds on the score of every placement of a net."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensortide.placements.bounds import Bounds
from tensortide.placements.simulator.detours import part_times
from tensortide.placements.simulator.split_path import split_path
from tensortide.placements.simulator.tables import Floats, Tables


def bounds(t: Tables, where: list[int]) -> Bounds:
    """Bound the makespan of all batches on the devices ``where``.

    A batch begins only where fewer than ``in_flight`` others have not ended, and none takes less than its critical
    path: in the order in which batches begin, each ``in_flight``-th after the first one begins a further critical path
    later. The last one of a step ends with updates of weights. Work: with any weights of devices that add up to 1, no
    makespan is below the sum over ops of the least weighted time; devices are weighted by their speed.
    """
    times = part_times(t)[:, where]
    times = times if t.backward else times[: t.layers]
    fastest = times.min(axis=1)
    steps = t.batches // t.step_batches
    chain = critical_path(t, fastest) * steps
    chain = max(chain, critical_path(t, fastest[: 2 * t.layers]) * -(-t.batches // t.in_flight))
    batches = np.repeat([1, t.step_batches], [2 * t.layers, t.parts - 2 * t.layers])[: len(times)]
    found = Bounds(chain, t.batches * _work(times / batches[:, None]))
    return replace(found, split_path_ms=split_path(t, np.array(where), found.best_ms))


def critical_path(t: Tables, fastest: Floats) -> float:
    """The longest chain of dependent parts of one batch, with updates if ``fastest`` has them: the least time of each
    part, ms."""
    layers, least = t.layers, fastest.tolist()
    ends = [0.0] * (2 * layers)
    for k in range(layers):
        parents = t.successors[t.first[layers + k] : t.first[layers + k + 1]]
        ends[k] = least[k] + max((ends[parent] for parent in parents), default=0.0)
    if t.backward:
        for k in reversed(range(layers)):
            children = t.successors[t.first[k] : t.first[k + 1]]
            begun = max((ends[layers + child] for child in children), default=ends[k])
            ends[layers + k] = begun + least[layers + k]
    if len(least) > 2 * layers:
        ends += [end + update for end, update in zip(ends[layers:], least[2 * layers :], strict=True)]
    return max(ends)


def _work(times: Floats) -> float:
    """Work of one batch over devices weighted by their speed; ``times`` [parts, devices]."""
    totals = times.sum(axis=0)
    if not totals.all():
        return 0.0
    weights = 1 / totals / (1 / totals).sum()
    return float((times * weights).min(axis=1).sum())
