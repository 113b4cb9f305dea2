"""State of a search: the best order and bound so far, and what is left of its limits.

Work is counted, so that answers repeat; wall-clock time and a listener are hard stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from tensortide.plans.order.problem import Problem
from tensortide.plans.order.proof import Persistent, Proof
from tensortide.search_limit import SearchLimit

Stop: TypeAlias = Literal["proved", "work", "time", "stopped"]
"""Reasons why a search ended: it is complete, its work or time is used up, or it was stopped."""

Watch: TypeAlias = Callable[[int, int], bool]
"""Called now and then with the lower bound and the best peak so far, in bytes; returns whether to go on."""

_LOOK = 20_000


class Exhausted(Exception):
    """The budget is spent: the search ends with the best so far."""


class Budget:
    """``work`` steps, each about a microsecond of plain Python, and at most ``seconds``.

    ``look`` is asked every now and then; the search ends where it answers False.
    """

    __slots__ = ("_left", "_limit", "_look", "_next", "stop")

    def __init__(self, work: int, seconds: float, look: Callable[[], bool]) -> None:
        self._left = work
        self._next = work - _LOOK
        self._limit = SearchLimit(seconds=seconds)
        self._look = look
        self.stop: Stop = "proved"

    def spend(self, work: int) -> None:
        """Account for ``work`` steps that are done now. Raises Exhausted when nothing is left."""
        self._left -= work
        if self._left < 0:
            self.stop = "work"
        elif self._left < self._next:
            self._next = self._left - _LOOK
            if self._limit.spent:
                self.stop = "time"
            elif not self._look():
                self.stop = "stopped"
        if self.stop != "proved":
            raise Exhausted


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
        self.proof: Proof = Persistent()

    @property
    def proved(self) -> bool:
        """True if no order is better."""
        return self.lower >= self.upper

    def offer(self, order: Sequence[int]) -> None:
        """Take ``order`` if it is better."""
        peak = self.problem.peak(order)
        if peak < self.upper:
            self.order, self.upper = list(order), peak

    def bound(self, lower: int, why: Proof) -> None:
        """Take the bound ``lower`` if it is better."""
        if lower > self.lower:
            self.lower, self.proof = lower, why
