"""Lower bounds on the score of every placement of a net."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.bounds import Bounds
from tensortide.placements.simulator.detours import part_times
from tensortide.placements.simulator.split_path import split_path
from tensortide.placements.simulator.tables import Tables


def bounds(t: Tables, where: Ints) -> Bounds:
    """Bound the makespan of all batches on the devices ``where``, each layer on one of them."""
    times = kind_times(t, where)
    found = of_parts(t, times.min(axis=2), weighed(t, times, speeds(t, times)).min(axis=2))
    return replace(found, split_path_ms=split_path(t, where, found.best_ms))


def of_parts(t: Tables, least: Floats, work: Floats) -> Bounds:
    """Bound the makespan by the ``least`` time of each part, ms [kinds, layers], and its least weighed ``work``.

    A batch begins only where fewer than ``in_flight`` others have not ended, and none takes less than its critical
    path: in the order in which batches begin, each ``in_flight``-th after the first one begins a further critical path
    later. The last one of a step ends with updates of weights. Work: with any weights of devices that add up to 1, no
    makespan is below the sum over ops of the least weighted time; devices are weighted by their speed.
    """
    fastest, steps = least.ravel(), t.batches // t.step_batches
    chain = critical_path(t, fastest) * steps
    chain = max(chain, critical_path(t, fastest[: 2 * t.layers]) * -(-t.batches // t.in_flight))
    return Bounds(chain, t.batches * float(work.ravel().sum()))


def kind_times(t: Tables, where: Ints) -> Floats:
    """Time of each layer on the devices ``where``, ms [kinds, layers, devices]: forward, backward, update, as far as
    they run."""
    times = part_times(t).reshape(-1, t.layers, t.devices)[:, :, where]
    return times if t.backward else times[:1]


def weighed(t: Tables, times: Floats, weights: Floats) -> Floats:
    """The share of one batch in ``times`` [kinds, layers, devices], with devices weighted by ``weights``."""
    return _per_batch(t, times) * weights


def speeds(t: Tables, times: Floats) -> Floats:
    """Weights of devices by their speed in ``times`` [kinds, layers, devices]; zeros if one takes no time at all."""
    totals = _per_batch(t, times).reshape(-1, times.shape[2]).sum(axis=0)
    if not totals.all():
        return np.zeros(len(totals))
    weights: Floats = 1 / totals / (1 / totals).sum()
    return weights


def _per_batch(t: Tables, times: Floats) -> Floats:
    return times / np.array([1, 1, t.step_batches])[: len(times), None, None]


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
