"""A placement played in the order that its schedule asks for, or in the better one of two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide import play as player
from tensortide.compiled import compiled, entry_with
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.kernel.records import Order, Run, Tables
from tensortide.placements.graphs.kernel.writer import write
from tensortide.play.ready import ENDED, play_ready
from tensortide.play.tasks import MAKESPAN


class Rules(NamedTuple):
    """Orders that do not depend on the placement but for their limits, which both share.

    ``auto``: the recorded order on a single device, the critical path on several unless it is the one that exceeds
    ``capacity``; else always ``critical``. ``in_flight``: limit of micro-batches on a device by the number of stages
    from its first one on, less 1; stages are those of ``forward_units``.
    """

    critical: Order
    recorded: Order
    auto: int
    in_flight: Ints
    forward_units: Ints
    capacity: NDArray[np.float64]


@entry_with(player)
def play(t: Tables, o: Order, r: Run, place: Ints, devices: int) -> None:
    """Play one placement in the order ``o``."""
    write(t, o, r, place, devices)
    play_ready(r.tasks, r.record, r.hosts, r.shares)


@entry_with(player)
def played(t: Tables, rules: Rules, r: Run, place: Ints, devices: int) -> float:
    """Play ``place``; ``r`` has the run in the order that was chosen.

    Returns:
        The bytes by which its peaks exceed the capacities.
    """
    _limit(rules, place, devices)
    together = True
    for unit in range(len(place)):
        if place[unit] != place[0]:
            together = False
            break
    if not rules.auto or together:
        play(t, rules.recorded if rules.auto else rules.critical, r, place, devices)
        return _over(rules, r)
    play(t, rules.critical, r, place, devices)
    over, makespan = _over(rules, r), r.record.totals[MAKESPAN]
    if over == 0 or r.record.totals[ENDED] < r.tasks.queue_ends[1]:
        return over
    play(t, rules.recorded, r, place, devices)
    other = _over(rules, r)
    if over < other or (over == other and makespan < r.record.totals[MAKESPAN]):
        play(t, rules.critical, r, place, devices)
        return over
    return other


@compiled
def _limit(rules: Rules, place: Ints, devices: int) -> None:
    """Set how many micro-batches each device has in flight, at most."""
    limit, units = rules.critical.limit, rules.forward_units
    for d in range(devices):
        limit[d] = -1
    stages = 0
    for i in range(len(units)):
        if i == 0 or place[units[i]] != place[units[i - 1]]:
            stages += 1
    for i in range(len(units)):
        if i == 0 or place[units[i]] != place[units[i - 1]]:
            if limit[place[units[i]]] < 0:
                limit[place[units[i]]] = rules.in_flight[stages - 1]
            stages -= 1
    for d in range(devices):
        if limit[d] < 0:  # no forward op, nothing in flight
            limit[d] = max(1, len(rules.critical.micro_at) - 1)


@compiled
def _over(rules: Rules, r: Run) -> float:
    """The bytes by which the peaks of a run exceed the capacities."""
    total = 0.0
    for d in range(len(rules.capacity)):
        total += max(0.0, r.record.peak[d] - rules.capacity[d])
    return total
