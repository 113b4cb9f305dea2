"""The difference of two Timelines of one step, such as predicted and measured: figures, and every op beside itself."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tensortide.errors import GraphError
from tensortide.shown import Shown

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints
    from tensortide.timelines.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Figures:
    """A Timeline in numbers: its peak, how often storages were evicted and ops recomputed, the time of the step's own
    ops and of recomputed ones."""

    peak_bytes: int
    evictions: int
    recomputations: int
    base_ns: int
    recompute_ns: int

    @property
    def slowdown(self) -> float:
        """Time of all ops divided by that of the step's own."""
        return (self.base_ns + self.recompute_ns) / self.base_ns if self.base_ns else 1.0


def mean_figures(rows: Sequence[Figures]) -> Figures:
    """The means of several steps, and their highest peak."""
    means = {field.name: round(statistics.fmean(getattr(row, field.name) for row in rows)) for field in fields(Figures)}
    return Figures(**{**means, "peak_bytes": max(row.peak_bytes for row in rows)})


EARLIER = "ops of an earlier step"
"""Name of recomputed ops that the recorded step does not have."""


def mean_times(lines: Sequence[Timeline]) -> dict[str, int]:
    """The time of each kind of op in several Timelines of one step, recomputation included: means of a step."""
    sums = Counter[str]()
    for line in lines:
        for op, ns in zip(line.run_op.tolist(), line.run_ns.tolist(), strict=True):
            sums[line.recorded[op].name if op >= 0 else EARLIER] += ns
    return {name: round(ns / len(lines)) for name, ns in sums.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Shown):
    """Two Timelines ``a`` and ``b`` side by side.

    ``a_run`` and ``b_run`` are positions among the op runs of each (``Timeline.runs``) that correspond: the n-th run of
    an op in one and its n-th run in the other. ``only_a`` and ``only_b`` are the runs that have no counterpart.
    """

    SECTION = "difference"

    a: Timeline
    b: Timeline
    a_run: Ints
    b_run: Ints
    only_a: Ints
    only_b: Ints

    @property
    def duration_ns(self) -> Ints:
        """For each pair, the time in ``b`` minus that in ``a``."""
        return self.b.run_ns[self.b_run] - self.a.run_ns[self.a_run]

    @property
    def resident_bytes(self) -> Ints:
        """For each pair, the bytes resident in ``b`` minus those in ``a``."""
        return self.b.resident[self.b_run] - self.a.resident[self.a_run]

    @property
    def peak_bytes(self) -> int:
        """Peak of ``b`` minus that of ``a``."""
        return self.b.peak_bytes - self.a.peak_bytes

    @property
    def makespan_ns(self) -> int:
        """Makespan of ``b`` minus that of ``a``."""
        return self.b.makespan_ns - self.a.makespan_ns


def diff(a: Timeline, b: Timeline) -> Difference:
    """Match the op runs of ``a`` and ``b``, two Timelines of one recorded step.

    Raises GraphError if they are of different steps.
    """
    import numpy as np

    if a.recorded is not b.recorded and a.recorded.index.digest != b.recorded.index.digest:
        raise GraphError("two timelines of different steps cannot be compared op by op")
    in_a, in_b = _occurrences(a), _occurrences(b)
    pairs = [(position, in_b[key]) for key, position in in_a.items() if key in in_b]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    only_a = [position for key, position in in_a.items() if key not in in_b]
    only_b = [position for key, position in in_b.items() if key not in in_a]
    return Difference(a, b, both[:, 0], both[:, 1], np.array(only_a, np.int64), np.array(only_b, np.int64))


def _occurrences(line: Timeline) -> dict[tuple[int, int], int]:
    """Positions of the op runs by their op and how often it ran before."""
    seen = Counter[int]()
    found = {}
    for position, op in enumerate(line.run_op.tolist()):
        found[op, seen[op]] = position
        seen[op] += 1
    return found
