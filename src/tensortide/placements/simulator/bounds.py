"""Lower bounds on the score of every placement of a net."""

from __future__ import annotations

import numpy as np

from tensortide.placements.bounds import Bounds
from tensortide.placements.simulator.tables import Floats, Tables


def bounds(t: Tables, where: list[int]) -> Bounds:
    """Bound the makespan of all batches on the devices ``where``.

    At most ``in_flight`` batches overlap, and none takes less than its critical path; the last one of a step ends with
    updates of weights. Work: with any weights of devices that add up to 1, no makespan is below the sum over ops of the
    least weighted time; devices are weighted by their speed.
    """
    times = t.times.reshape(t.parts, t.devices)[:, where]
    times = times if t.backward else times[: t.layers]
    fastest = times.min(axis=1)
    steps = t.batches // t.step_batches
    chain = critical_path(t, fastest) * steps
    if steps == 1:
        chain = max(chain, critical_path(t, fastest[: 2 * t.layers]) * (t.batches / t.in_flight))
    batches = np.repeat([1, t.step_batches], [2 * t.layers, t.parts - 2 * t.layers])[: len(times)]
    return Bounds(chain, t.batches * _work(times / batches[:, None]))


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
