"""A placement played in the order that its schedule asks for, or in the better one of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensortide.compiled import compiled, entry
from tensortide.placements.graphs.kernel.play import play
from tensortide.placements.graphs.kernel.records import Order, Run, Tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensortide.memory.lifetimes import Ints


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


@entry
def played(t: Tables, rules: Rules, r: Run, place: Ints, following: Ints, devices: int) -> float:
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
        play(t, rules.recorded if rules.auto else rules.critical, r, place, following, devices)
        return _over(rules, r)
    play(t, rules.critical, r, place, following, devices)
    over, makespan = _over(rules, r), r.totals[2]
    if over == 0 or r.totals[1] < len(t.unit):
        return over
    play(t, rules.recorded, r, place, following, devices)
    other = _over(rules, r)
    if over < other or (over == other and makespan < r.totals[2]):
        play(t, rules.critical, r, place, following, devices)
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
            limit[d] = rules.critical.micro_batches


@compiled
def _over(rules: Rules, r: Run) -> float:
    total = 0.0
    for d in range(len(rules.capacity)):
        total += max(0.0, r.peak[d] - rules.capacity[d])
    return total
