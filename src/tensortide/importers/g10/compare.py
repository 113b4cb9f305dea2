"""Comparison of a trace's own tool with our analysis of the trace."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tensortide.errors import TraceError
from tensortide.importers.g10.analysis import TimedLives, timed_lives
from tensortide.importers.g10.results import read_active, read_clock, read_liveness, read_memory_log, read_periods_log
from tensortide.importers.imported import Imported
from tensortide.importers.textfile import find_file

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
    timed = timed_lives(trace)
    files: list[str] = []
    differences: list[str] = []
    for name, check in _CHECKS.items():
        path = find_file(folder, [name])
        if path is not None:
            files.append(path.name)
            differences.extend(f"{path.name}: {line}" for line in check(timed, path))
    return Comparison(tuple(files), tuple(differences))


def _lives(timed: TimedLives, path: Path) -> Iterator[str]:
    stated = read_liveness(path)
    yield from _unequal("tensors", len(timed.lives), len(stated))
    for life, expected in zip(timed.lives, stated, strict=False):
        name = f"tensor{life.index}"
        yield from _unequal(f"{name} birth, death", (life.birth, life.death), (expected.birth, expected.death))
        periods = [(interval.start, interval.end) for interval in life.intervals]
        yield from _unequal(f"{name} periods", periods, [period[:2] for period in expected.periods])
        for number, (interval, other) in enumerate(zip(life.intervals, expected.periods, strict=False)):
            yield from _unequal(f"{name} period {number}, us", timed.times.us(int(interval.time)), other.time_us)


def _active(timed: TimedLives, path: Path) -> Iterator[str]:
    yield from _rows("kernel", timed.series.active, read_active(path))


def _clock(timed: TimedLives, path: Path) -> Iterator[str]:
    starts = [timed.times.us(ticks) for ticks in itertools.accumulate(timed.times.ticks[:-1], initial=0)]
    yield from _rows("start of kernel", starts, read_clock(path), ", us")


def _memory(timed: TimedLives, path: Path) -> Iterator[str]:
    for name, stated in msgspec.structs.asdict(read_memory_log(path)).items():
        differences = _rows if isinstance(stated, tuple) else _unequal
        yield from differences(name, getattr(timed.series, name), stated)


def _periods(timed: TimedLives, path: Path) -> Iterator[str]:
    """The same periods, in whatever order: those of equal bytes and start are few, and their times tell them apart."""
    stated = read_periods_log(path)
    ours = sorted((life.nbytes, timed.times.us(int(interval.time))) for life, _, interval in timed.periods())
    theirs = sorted(zip(stated.sd_size, stated.sd_time, strict=True))
    yield from _unequal("periods", len(ours), len(theirs))
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        yield from _unequal(f"period {index} by size, bytes", mine[0], other[0])
        yield from _unequal(f"period {index} by size, us", mine[1], other[1])


def _rows(what: str, found: Sequence[object], stated: Sequence[object], unit: str = "") -> Iterator[str]:
    yield from _unequal(f"{what}: rows", len(found), len(stated))
    for index, (mine, other) in enumerate(zip(found, stated, strict=False)):
        yield from _unequal(f"{what} {index}{unit}", mine, other)


def _unequal(what: str, found: object, stated: object) -> Iterator[str]:
    """Yield a difference, if there is one; floats may differ by ``TOLERANCE``."""
    if isinstance(found, float) and isinstance(stated, float):
        equal = abs(found - stated) <= TOLERANCE * abs(stated)
    else:
        equal = found == stated
    if not equal:
        yield f"{what}: {found}, and the file has {stated}"


_CHECKS: dict[str, Callable[[TimedLives, Path], Iterator[str]]] = {
    "interval.config": _lives,
    "real_mem.config": _active,
    "kernel_time_table.config": _clock,
    "NNMemConsumptionLog.py": _memory,
    "TensorPeriodLog.py": _periods,
}
