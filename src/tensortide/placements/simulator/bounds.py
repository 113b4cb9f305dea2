"""Lower bounds on the score of every placement of a net."""

from __future__ import annotations

from tensortide.placements.bounds import Bounds
from tensortide.placements.simulator.tables import Floats, Tables


def bounds(t: Tables, where: list[int]) -> Bounds:
    """Bound the makespan of all batches on the devices ``where``.

    At most ``in_flight`` batches overlap, and none takes less than its critical path. Work: with any weights of devices
    that add up to 1, no makespan is below the sum over ops of the least weighted time; devices are weighted by their
    speed.
    """
    times = t.times.reshape(2 * t.layers, t.devices)[:, where]
    times = times if t.backward else times[: t.layers]
    rounds = t.batches / t.in_flight
    return Bounds(critical_path(t, times.min(axis=1)) * max(1.0, rounds), t.batches * _work(times))


def critical_path(t: Tables, fastest: Floats) -> float:
    """The longest chain of dependent parts of one batch; ``fastest`` is the least time of each part, ms."""
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
    return max(ends)


def _work(times: Floats) -> float:
    """Work of one batch over devices weighted by their speed; ``times`` [parts, devices]."""
    totals = times.sum(axis=0)
    if not totals.all():
        return 0.0
    weights = 1 / totals / (1 / totals).sum()
    return float((times * weights).min(axis=1).sum())
