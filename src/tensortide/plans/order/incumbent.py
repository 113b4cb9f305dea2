"""State of a search: the best order and the best lower bound so far, each with its proof."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.plans.order import proof
from tensortide.plans.order.cuts import Cut
from tensortide.plans.order.problem import Problem


class Incumbent:
    """The best order of ``problem`` and its peak ``upper``; the best bound ``lower`` and its proof. Both in bytes.

    Starts with the captured order, and keeps it unless an order is better.
    """

    __slots__ = ("lower", "order", "problem", "proof", "upper")

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.order: list[int] = list(range(len(problem)))
        self.upper = problem.peak(self.order)
        self.lower = problem.base
        self.proof: proof.Proof = proof.Persistent()

    @property
    def proved(self) -> bool:
        """True if no order is better."""
        return self.lower >= self.upper

    def offer(self, order: Sequence[int]) -> None:
        """Take ``order`` if it is better."""
        peak = self.problem.peak(order)
        if peak < self.upper:
            self.order, self.upper = list(order), peak

    def bound(self, lower: int, why: proof.Proof) -> None:
        """Take the bound ``lower`` if it is better."""
        if lower > self.lower:
            self.lower, self.proof = lower, why


def as_proof(problem: Problem, op: int, cut: Cut) -> proof.Cut:
    """``cut`` of ``op`` in terms of the graph's storages."""
    storages = tuple((problem.storage[block], user, nbytes) for block, user, nbytes in cut.blocks)
    return proof.Cut(op, storages, cut.waits)
