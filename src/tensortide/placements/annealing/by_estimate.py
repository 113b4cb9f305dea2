"""Steps of annealing with the estimate of a placement, not its simulation, between their halves."""

from __future__ import annotations

from tensortide.compiled import entry
from tensortide.placements.annealing.chain import NUMBER, Chain, decide, propose, simulated
from tensortide.placements.annealing.estimate import OVER, TIME, Estimate, estimate


@entry
def anneal(e: Estimate, penalty: float, c: Chain, steps: int) -> int:
    """Take up to ``steps`` steps of the chain ``c``, and return how many were taken; ``penalty``: ms per byte."""
    for step in range(steps):
        if not propose(c):
            return step
        if c.counts[NUMBER] == -1:
            estimate(e, c.new)
            simulated(c, e.found[TIME] + penalty * e.found[OVER], e.found[OVER])
        decide(c)
    return steps
