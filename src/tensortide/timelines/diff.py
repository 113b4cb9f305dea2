"""The difference of two Timelines of one step, such as predicted and measured: figures, and every op beside itself."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from tensortide.differences import Amounts, Node, flat, match
from tensortide.errors import GraphError
from tensortide.shown import Show, Shown

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints
    from tensortide.timelines.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TimelineFigures:
    """A Timeline in numbers: its peak, how often storages were evicted and ops recomputed, the time of the step's own
    ops and of recomputed ones."""

    peak_bytes: Annotated[int, Show("Peak")]
    evictions: Annotated[int, Show("Evictions")]
    recomputations: Annotated[int, Show("Recomputed ops")]
    base_ns: Annotated[int, Show("Time of the step's own ops")]
    recompute_ns: Annotated[int, Show("Time of recomputed ops")]

    @property
    def slowdown_factor(self) -> Annotated[float, Show("Slowdown")]:
        """Time of all ops divided by that of the step's own."""
        return (self.base_ns + self.recompute_ns) / self.base_ns if self.base_ns else 1.0


def mean_figures(rows: Sequence[TimelineFigures]) -> TimelineFigures:
    """The means of several steps, and their highest peak."""
    means = {
        field.name: round(statistics.fmean(getattr(row, field.name) for row in rows))
        for field in fields(TimelineFigures)
    }
    return TimelineFigures(**{**means, "peak_bytes": max(row.peak_bytes for row in rows)})


EARLIER = "ops of an earlier step"
"""Name of recomputed ops that the recorded step does not have."""


class KindTime(Amounts, frozen=True):
    """The time of ops of one kind."""

    ns: Annotated[int, Show()] = 0


def mean_times(lines: Sequence[Timeline]) -> Node[KindTime]:
    """The time of each kind of op in several Timelines of one step, recomputation included: means of a step."""
    sums = Counter[str]()
    for line in lines:
        for op, ns in zip(line.run_op.tolist(), line.run_ns.tolist(), strict=True):
            sums[line.recorded[op].name if op >= 0 else EARLIER] += ns
    return flat({name: KindTime(round(ns / len(lines))) for name, ns in sums.items()}, KindTime())


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
    runs = match(enumerate(a.run_op.tolist()), enumerate(b.run_op.tolist()), lambda run: run[1])
    both = np.array(sorted((x[0], y[0]) for x, y in runs if x and y), np.int64).reshape(-1, 2)
    only_a, only_b = sorted(x[0] for x, y in runs if x and not y), sorted(y[0] for x, y in runs if y and not x)
    return Difference(a, b, both[:, 0], both[:, 1], np.array(only_a, np.int64), np.array(only_b, np.int64))
