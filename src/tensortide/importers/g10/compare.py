"""Comparison of a trace's own tool with our analysis of the trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tensortide.errors import TraceError
from tensortide.importers.g10.liveness import read_liveness
from tensortide.importers.g10.logs import read_active, read_clock, read_memory_log, read_periods_log
from tensortide.importers.imported import Imported
from tensortide.importers.textfile import find_file
from tensortide.timelines.compat import CompatSeries, compat_series
from tensortide.timelines.intervals import Life, liveness
from tensortide.timing.exact import Times

__all__ = ["Comparison", "compare"]

TOLERANCE = 1e-5
"""Relative, of times: the files have six digits."""


class Comparison(msgspec.Struct, frozen=True):
    """Files of a folder that were compared, and every difference as a line of text."""

    files: tuple[str, ...]
    differences: tuple[str, ...]


def compare(trace: Imported, folder: str | os.PathLike[str]) -> Comparison:
    """Compare the liveness of ``trace`` with those of these files that are in ``folder`` (each plain or ``.gz``):
    ``interval.config``, ``real_mem.config``, ``kernel_time_table.config``, ``NNMemConsumptionLog.py``,
    ``TensorPeriodLog.py``. Integers must be equal, times to 1e-5.

    Raises:
        TraceError: one of the files is damaged, or the trace has no times.
    """
    if trace.times is None:
        raise TraceError(f"{folder}: the kernels have no times")
    lives = liveness(trace.graph, "compat", trace.times.ticks)
    found = _Found(trace.times, lives, compat_series(trace.graph, lives))
    files: list[str] = []
    differences: list[str] = []
    for name, check in _CHECKS.items():
        path = find_file(folder, [name])
        if path is not None:
            files.append(path.name)
            differences.extend(f"{path.name}: {line}" for line in check(found, path))
    return Comparison(tuple(files), tuple(differences))


class _Found:
    def __init__(self, times: Times, lives: tuple[Life, ...], series: CompatSeries) -> None:
        self.times = times
        self.lives = lives
        self.series = series


def _lives(found: _Found, path: Path) -> Iterator[str]:
    stated = read_liveness(path)
    yield from _unequal("tensors", len(found.lives), len(stated))
    for life, expected in zip(found.lives, stated, strict=False):
        name = f"tensor{life.index}"
        yield from _unequal(f"{name} birth, death", (life.birth, life.death), (expected.birth, expected.death))
        periods = [(period.start, period.end) for period in life.periods]
        yield from _unequal(f"{name} periods", periods, [period[:2] for period in expected.periods])
        for number, (period, other) in enumerate(zip(life.periods, expected.periods, strict=False)):
            time = found.times.us(int(period.time or 0))
            yield from _far(f"{name} period {number}, us", time, other.time_us)


def _active(found: _Found, path: Path) -> Iterator[str]:
    yield from _rows("kernel", found.series.active, read_active(path))


def _clock(found: _Found, path: Path) -> Iterator[str]:
    stated = read_clock(path)
    yield from _unequal("kernels", len(found.times), len(stated))
    now = 0
    for index, (ticks, time) in enumerate(zip(found.times.ticks, stated, strict=False)):
        yield from _far(f"start of kernel {index}, us", found.times.us(now), time)
        now += ticks


def _memory(found: _Found, path: Path) -> Iterator[str]:
    stated, series = read_memory_log(path), found.series
    yield from _rows("active", series.active, stated.active)
    yield from _rows("active_breakdown", series.active_breakdown, stated.active_breakdown)
    yield from _rows("total", series.total, stated.total)
    yield from _unequal("global_weight", series.global_weight, stated.global_weight)
    yield from _unequal("input_size", series.input_size, stated.input_size)


def _periods(found: _Found, path: Path) -> Iterator[str]:
    """The same periods, in whatever order: those of equal bytes and start are few, and their times tell them apart."""
    stated = read_periods_log(path)
    ours = [(life.nbytes, found.times.us(int(p.time or 0))) for life in found.lives for p in life.periods]
    theirs = sorted(zip(stated.sd_size, stated.sd_time, strict=True))
    yield from _unequal("periods", len(ours), len(theirs))
    for index, (mine, other) in enumerate(zip(sorted(ours), theirs, strict=False)):
        yield from _unequal(f"period {index} by size, bytes", mine[0], other[0])
        yield from _far(f"period {index} by size, us", mine[1], other[1])


def _rows(what: str, found: tuple[object, ...], stated: tuple[object, ...]) -> Iterator[str]:
    yield from _unequal(f"{what}: rows", len(found), len(stated))
    for index, (mine, other) in enumerate(zip(found, stated, strict=False)):
        yield from _unequal(f"{what} {index}", mine, other)


def _unequal(what: str, found: object, stated: object) -> Iterator[str]:
    if found != stated:
        yield f"{what}: {found}, and the file has {stated}"


def _far(what: str, found: float, stated: float) -> Iterator[str]:
    if abs(found - stated) > TOLERANCE * abs(stated):
        yield f"{what}: {found}, and the file has {stated}"


_CHECKS: dict[str, Callable[[_Found, Path], Iterator[str]]] = {
    "interval.config": _lives,
    "real_mem.config": _active,
    "kernel_time_table.config": _clock,
    "NNMemConsumptionLog.py": _memory,
    "TensorPeriodLog.py": _periods,
}
