"""Sums of ops' times with their intervals: of a step, a phase, a module, or one kind of op."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tensortide.timing.durations import Durations
from tensortide.timing.estimates import Bound, Estimate, Provenance
from tensortide.timing.forecast import ForecastRow
from tensortide.timing.intervals import FLOOR_MEASURED


def total(durations: Durations, ops: Iterable[int], trips: Sequence[int] | Mapping[int, int] | None = None) -> Estimate:
    """The sum of the times of ``ops``, each as often as ``trips`` says. Ops without a known time are counted.

    Recorded and measured times have the interval of what was measured.
    """
    runs = Counter[tuple[int, int]]()
    forecast = durations.forecast
    unknown = set() if durations.measurement is None else set(durations.measurement.stand_ins)
    for op in ops:
        row = forecast.index[op] if forecast is not None else -2 if op in unknown else -1
        runs[row, durations.ns[op]] += 1 if trips is None else trips[op]
    rows = forecast.rows if forecast is not None else ()
    return _summed((rows[row] if row >= 0 else None, ns, times, row == -2) for (row, ns), times in runs.items())


def unpredicted_ns(
    durations: Durations, ops: Iterable[int], trips: Sequence[int] | Mapping[int, int] | None = None
) -> int:
    """Nanoseconds that ops of unknown time have in ``durations``: of their bytes alone, without an interval."""
    if durations.forecast is None:
        return 0
    rows, index = durations.forecast.rows, durations.forecast.index
    missing = (op for op in ops if rows[index[op]].provenance is Provenance.UNKNOWN)
    return sum(durations.ns[op] * (1 if trips is None else trips[op]) for op in missing)


def by_bound(
    durations: Durations, ops: Iterable[int], trips: Sequence[int] | Mapping[int, int] | None = None
) -> dict[Bound, int]:
    """Nanoseconds of predicted ``ops`` by what bounds them; empty for other durations."""
    found = Counter[Bound]()
    if durations.forecast is not None:
        rows, index = durations.forecast.rows, durations.forecast.index
        for op in ops:
            found[rows[index[op]].bound] += durations.ns[op] * (1 if trips is None else trips[op])
    return dict(found)


def _summed(runs: Iterable[tuple[ForecastRow | None, int, int, bool]]) -> Estimate:
    """As ``Estimate`` adds, in one pass."""
    time = low_squares = high_squares = 0.0
    below, above = defaultdict[str, float](float), defaultdict[str, float](float)
    kinds = defaultdict[Provenance, float](float)
    unknown = 0
    for row, ns, times, missing in runs:
        if missing or (row is not None and row.provenance is Provenance.UNKNOWN):
            unknown += times
            continue
        key, low, high, provenance = "", FLOOR_MEASURED, FLOOR_MEASURED, Provenance.MEASURED
        if row is not None:
            key, low, high, provenance = row.common, row.below, row.above, row.provenance
        whole = float(ns * times)
        time += whole
        below[key] += whole * low
        above[key] += whole * high
        low_squares += (whole * low) ** 2
        high_squares += (whole * high) ** 2
        kinds[provenance] += whole
    return Estimate(time, dict(below), dict(above), (low_squares, high_squares), dict(kinds), unknown)
