"""Steps of annealing with the simulator of placed steps between their halves."""

from __future__ import annotations

import numpy as np

from tensortide import play as player
from tensortide.compiled import entry_with
from tensortide.placements import annealing
from tensortide.placements.annealing.chain import NUMBER, Chain, decide, propose, simulated
from tensortide.placements.arrays import Ints
from tensortide.placements.graphs.kernel.ordered import Rules, played
from tensortide.placements.graphs.kernel.records import Run, Tables
from tensortide.play.ready import ENDED
from tensortide.play.tasks import MAKESPAN


@entry_with(annealing, player)
def anneal(
    t: Tables,
    rules: Rules,
    r: Run,
    place: Ints,
    devices: int,
    penalty: float,
    group_of: Ints,
    c: Chain,
    steps: int,
) -> int:
    """Take up to ``steps`` steps of the chain ``c``; ``group_of`` has its gene of each unit, ``place`` is scratch.

    ``penalty``: ms that a byte of over-use adds to a score.

    Returns:
        The number of steps taken.
    """
    for step in range(steps):
        if not propose(c):
            return step
        if c.counts[NUMBER] == -1:
            for unit in range(len(place)):
                place[unit] = c.new[group_of[unit]]
            over = played(t, rules, r, place, devices)
            if r.record.totals[ENDED] < r.tasks.queue_ends[1]:
                simulated(c, np.inf, 0.0)
            else:
                simulated(c, r.record.totals[MAKESPAN] / 1e6 + over * penalty, over)
        decide(c)
    return steps
