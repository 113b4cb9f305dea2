"""Times of ops that are no whole nanoseconds, kept exactly: whole ticks of a clock, and how long a tick is."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from tensortide.graph.model import Graph
from tensortide.timing.durations import Durations, identity

__all__ = ["NANOSECOND", "UNIT_CYCLE", "Times", "times_of"]

NANOSECOND = Fraction(1)
UNIT_CYCLE = Fraction(5, 6)
"""Nanoseconds of a cycle at 1.2 GHz, the unit of G10's traces."""


class Times(msgspec.Struct, frozen=True):
    """Durations of a step's ops: ``ticks`` of ``tick_ns`` nanoseconds each. Sums of ticks are exact."""

    ticks: tuple[int, ...]
    tick_ns: Fraction = NANOSECOND

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def total_ns(self) -> Fraction:
        """The time of the whole step, one op after the other."""
        return self.ns(sum(self.ticks))

    def ns(self, ticks: int) -> Fraction:
        """``ticks`` in nanoseconds, exactly."""
        return ticks * self.tick_ns

    def us(self, ticks: int) -> float:
        """``ticks`` in microseconds: the nearest number that a float can be."""
        return ticks * self.tick_ns.numerator / (1000 * self.tick_ns.denominator)

    def durations(self, graph: Graph, source: str) -> Durations:
        """The same in whole nanoseconds: the time from any op to any other is right to within 1 ns."""
        durations: list[int] = []
        past = reported = 0
        for ticks in self.ticks:
            past += ticks
            now = round(self.ns(past))
            durations.append(now - reported)
            reported = now
        return Durations(tuple(durations), source, "recorded", graph=identity(graph))


def times_of(durations: Durations) -> Times:
    """``durations`` as Times: a tick is a nanosecond."""
    return Times(durations.ns)
