"""An estimate of a placement's time and over-use from tables: much faster than a simulation, and close to it.

Layers start in order of depth, as soon as their device is free and what they read has arrived; transfers wait for their
lane. That is one batch, forward and backward as one. Each batch more takes as long as the busiest device or lane, or
its share of the batches in flight. Memory adds up, copies included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.compiled import compiled, entry
from tensortide.placements.arrays import Floats, Ints, Placements

TIME, OVER = range(2)
"""Places of ``Estimate.found``: ms of all batches, and bytes of over-use."""


class Estimate(NamedTuple):
    """Tables of a problem, layers in order of depth, and scratch that every estimate overwrites.

    ``gene`` of each layer. ``first`` [layers + 1]: where the edges into each layer begin. By edge: ``parent``, the
    layer that is read from; ``took`` [edges, devices, devices], there and back, ms; ``copied``, bytes that stay on the
    reader's device. ``work`` [layers, devices], ms.
    ``lane`` [devices, devices]: the queue of a transfer. ``memory``, ``activations``, ``capacity``: bytes.
    ``in_flight`` [devices + 1]: batches in flight on a device with so many stages from its own on; ``drains``: see
    ``Problem``.
    """

    gene: Ints
    first: Ints
    parent: Ints
    took: Floats
    copied: Floats
    work: Floats
    lane: Ints
    memory: Floats
    activations: Floats
    capacity: Floats
    in_flight: Floats
    drains: bool
    batches: int
    end: Floats
    free: Floats
    load: Floats
    used: Floats
    kept: Floats
    late: Floats
    stage: Ints
    sent: Ints
    stamp: Ints
    lane_free: Floats
    lane_load: Floats
    found: Floats


def fresh(e: Estimate) -> Estimate:
    """Return the same tables with scratch of their own, for another thread."""
    scratch = (
        "end",
        "free",
        "load",
        "used",
        "kept",
        "late",
        "stage",
        "sent",
        "stamp",
        "lane_free",
        "lane_load",
        "found",
    )
    return e._replace(**{name: np.zeros_like(getattr(e, name)) for name in scratch})


@compiled
def estimate(e: Estimate, row: Placements) -> None:
    """Write the time and over-use of the placement ``row`` [genes] to ``found``."""
    layers, devices = e.work.shape
    stages, last = 0, 0.0
    e.stamp[0] += 1
    for device in range(devices):
        e.free[device] = e.load[device] = e.used[device] = e.kept[device] = e.late[device] = 0.0
        e.stage[device] = -1
    for lane in range(len(e.lane_load)):
        e.lane_free[lane] = e.lane_load[lane] = 0.0
    for layer in range(layers):
        device = row[e.gene[layer]]
        if e.stage[device] < 0:
            e.stage[device] = stages
            stages += 1
        start = max(e.free[device], _arrival(e, row, layer, device))
        e.end[layer] = e.free[device] = start + e.work[layer, device]
        e.load[device] += e.work[layer, device]
        e.used[device] += e.memory[layer]
        e.kept[device] += e.activations[layer]
        e.late[device] += e.activations[layer] * e.end[layer]
        last = max(last, e.end[layer])
    busiest = over = 0.0
    for device in range(devices):
        busiest = max(busiest, e.load[device])
        if e.stage[device] >= 0:
            over += max(0.0, e.used[device] + _of_others(e, device, stages, last) - e.capacity[device])
    for lane in range(len(e.lane_load)):
        busiest = max(busiest, e.lane_load[lane])
    last = max(last, busiest)
    e.found[TIME], e.found[OVER] = last, over
    if e.batches > 1:  # no device may be able to run a layer: 0 times infinity is no number
        e.found[TIME] += (e.batches - 1) * max(busiest, last / e.in_flight[stages])


@compiled
def _of_others(e: Estimate, device: int, stages: int, last: float) -> float:
    """Bytes on ``device`` of batches in flight beyond the first; ``last``: when one batch ends.

    Where pipelines drain, a batch keeps what it stores for the rest of its time.
    """
    kept, batches = e.kept[device], e.in_flight[stages - e.stage[device]]
    if not e.drains or last <= 0.0:
        return float((batches - 1.0) * kept)
    return float(max(0.0, batches * (kept - e.late[device] / last) - kept))


@compiled
def _arrival(e: Estimate, row: Placements, layer: int, device: int) -> float:
    """The time at which all that ``layer`` reads is on ``device``, ms; half of a transfer is the way back."""
    arrived = 0.0
    for edge in range(e.first[layer], e.first[layer + 1]):
        parent = e.parent[edge]
        source, at = row[e.gene[parent]], e.end[parent]
        if source != device:
            took, out, back = e.took[edge, source, device], e.lane[source, device], e.lane[device, source]
            e.lane_load[out] += took / 2
            e.lane_load[back] += took / 2
            at = max(at, e.lane_free[out]) + took
            e.lane_free[out] = at
            if e.sent[parent * len(e.free) + device] != e.stamp[0]:  # several readers share a copy
                e.sent[parent * len(e.free) + device] = e.stamp[0]
                e.used[device] += e.copied[edge]
                e.kept[device] += e.copied[edge]
                e.late[device] += e.copied[edge] * e.end[parent]
        arrived = max(arrived, at)
    return arrived


@entry
def score(e: Estimate, penalty: float, rows: Placements, scores: Floats, over: Floats) -> None:
    """Write the estimated scores, ms with ``penalty`` for a byte of over-use, and over-use of ``rows`` [k, genes]."""
    for number in range(len(rows)):
        estimate(e, rows[number])
        scores[number], over[number] = e.found[TIME] + penalty * e.found[OVER], e.found[OVER]
