"""Steps of annealing of a problem that has no kernel for them."""

from __future__ import annotations

from typing import Protocol

from tensortide.placements.annealing.chain import NUMBER, Chain, decide, propose, simulated
from tensortide.placements.annealing.table import Floats, Ints, Placements


class Evaluates(Protocol):
    """Scores of placements."""

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Return scores [k], ms with the penalty of over-use, and over-use [k], bytes."""


def stepped(problem: Evaluates, chain: Chain, group_of: Ints, steps: int) -> int:
    """Take up to ``steps`` steps of ``chain`` with the scores of ``problem``, and return how many were taken.

    ``group_of``: the gene of the chain for each gene of the problem.
    """
    for step in range(steps):
        if not propose(chain):
            return step
        if chain.counts[NUMBER] == -1:
            scores, over = problem.evaluate(chain.new[group_of][None])
            simulated(chain, float(scores[0]), float(over[0]))
        decide(chain)
    return steps
