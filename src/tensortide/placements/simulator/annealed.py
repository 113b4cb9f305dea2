"""Steps of annealing with the simulator of nets between their halves."""

from __future__ import annotations

from tensortide.compiled import entry_with
from tensortide.placements import annealing
from tensortide.placements.annealing.chain import NUMBER, Chain, decide, propose, simulated
from tensortide.placements.arrays import Ints
from tensortide.placements.simulator.kernel import over_use, run
from tensortide.placements.simulator.state import State
from tensortide.placements.simulator.tables import Tables


@entry_with(annealing)
def anneal(t: Tables, s: State, record: object, place: Ints, where: Ints, c: Chain, steps: int) -> int:
    """Take up to ``steps`` steps of the chain ``c``, whose gene of each layer is in ``place``.

    Returns:
        The number of steps taken.
    """
    for step in range(steps):
        if not propose(c):
            return step
        if c.counts[NUMBER] == -1:
            for layer in range(t.layers):
                s.device[layer] = where[c.new[place[layer]]]
            makespan = run(t, s, record)
            over = over_use(t, s)
            simulated(c, makespan + over * t.penalty, over)
        decide(c)
    return steps
