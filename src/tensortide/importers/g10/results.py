"""Files that liveness tools write: the lives of all tensors and series of bytes; and the profiles that G10 reads.

Python files are literals, and never executed.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tensortide.errors import TraceError
from tensortide.importers.g10.kernels import TensorLine, tensor_line
from tensortide.importers.textfile import Cursor, TextFile, find_file, read_text
from tensortide.timing.durations import UNIT_CYCLE

BLOCK_RULE = "_" * 77
"""What opens and closes a block of ``liveness_analysis.config``."""
MIDDLE_RULE = "_ " * 36
"""What stands between life and periods there, with the space at its end."""


class StatedPeriod(NamedTuple):
    """Kernels ``start`` to ``end - 1`` (around the end of the step if ``end <= start``), and their time in us."""

    start: int
    end: int
    time_us: float


class StatedLife(NamedTuple):
    """The life of a tensor. ``birth`` and ``death`` are None for what is global."""

    tensor: TensorLine
    birth: int | None
    death: int | None
    periods: tuple[StatedPeriod, ...]


class _Layout(NamedTuple):
    """Layout of the lines of a block."""

    opening: str
    middle: str
    title: str
    period: str
    unit: str
    closing: str


_G10 = _Layout("", "_" * 60, "Hidding Intervals:", "interval", "", "_" * 63)
_LATER = _Layout(BLOCK_RULE, MIDDLE_RULE.rstrip(), "Inactive Periods:", "Period", "us", BLOCK_RULE)
_LIFE = re.compile(r"Liveness: Birth: (-?\d{1,18}), Death: (-?\d{1,18})\.", re.ASCII)
_PERIOD = re.compile(r"(\w+) (\d{1,9}): (\d{1,9})-{8}(\d{1,9})", re.ASCII)
_TIME = re.compile(r"Estimated Time:(-?\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)(us|)", re.ASCII)


def read_liveness(path: str | os.PathLike[str]) -> tuple[StatedLife, ...]:
    """The lives of all tensors in an ``interval.config`` or ``liveness_analysis.config``, in the order of the file.

    Raises:
        TraceError: it cannot be read, or a line is not what its place asks for.
    """
    cursor = Cursor(read_text(path))
    layout = _LATER if cursor.line == BLOCK_RULE else _G10
    lives: list[StatedLife] = []
    while not cursor.done:
        lives.append(_life(cursor, layout, len(lives)))
    return tuple(lives)


def _life(cursor: Cursor, layout: _Layout, number: int) -> StatedLife:
    if layout.opening:
        cursor.skip(layout.opening)
    first = cursor.at
    tensor = tensor_line(cursor)
    if tensor.id != number:
        raise cursor.file.error(first, f"tensor{number}, as ids are dense and ascend")
    birth = death = None
    if tensor.is_global:
        cursor.skip("Global!")
    else:
        birth, death = map(int, cursor.take(_LIFE, "'Liveness: Birth: <n>, Death: <n>.'").groups())
    cursor.skip(layout.middle)
    if tensor_line(cursor) != tensor:
        raise cursor.file.error(cursor.at - 1, f"the same tensor as in line {first + 1}")
    cursor.skip(layout.title)
    periods: list[StatedPeriod] = []
    while cursor.line != layout.closing:
        periods.append(_period(cursor, layout, len(periods)))
    cursor.at += 1
    return StatedLife(tensor, birth, death, tuple(periods))


def _period(cursor: Cursor, layout: _Layout, number: int) -> StatedPeriod:
    expected = f"'{layout.period} {number}: <start>--------<end>' or a rule of {len(layout.closing)} characters"
    kernels = cursor.take(_PERIOD, expected, lambda found: (found[1], int(found[2])) == (layout.period, number))
    time = cursor.take(_TIME, f"'Estimated Time:<us>{layout.unit}'", lambda found: found[2] == layout.unit)
    return StatedPeriod(int(kernels[3]), int(kernels[4]), float(time[1]))


# -- series -----------------------------------------------------------------------------------------

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*) = (.+)", re.ASCII)


class MemoryLog(msgspec.Struct, frozen=True):
    """Bytes of ``*NNMemConsumptionLog.py``.

    ``active``: what each kernel touches. ``active_breakdown``: the same as input (what the first kernel of the step
    makes), weights (what lives across steps) and the rest. ``total``: all weights, whatever else is live, and tensor 0
    once more, which G10 counts twice. ``global_weight``: all weights. ``input_size``: tensor 0.
    """

    active: tuple[int, ...]
    active_breakdown: tuple[tuple[int, int, int], ...]
    total: tuple[int, ...]
    global_weight: int
    input_size: int


class PeriodsLog(msgspec.Struct, frozen=True):
    """All inactive periods of ``*TensorPeriodLog.py``: bytes, microseconds and start kernel of each."""

    sd_size: tuple[int, ...]
    sd_time: tuple[float, ...]
    starts: tuple[int, ...] = ()


def read_memory_log(path: str | os.PathLike[str]) -> MemoryLog:
    """A ``*NNMemConsumptionLog.py``.

    Raises:
        TraceError: it cannot be read, a line is no ``name = literal``, a name is missing, unknown or there twice, a
            literal is of another type, the lists are not of one length.
    """
    file = read_text(path)
    log: MemoryLog = _filled(file, MemoryLog, {})
    if not len(log.active) == len(log.active_breakdown) == len(log.total):
        raise file.error(0, "active, active_breakdown and total of one length")
    return log


def read_periods_log(path: str | os.PathLike[str]) -> PeriodsLog:
    """A ``*TensorPeriodLog.py``; the comment in its third line has the starts, and may be missing.

    Raises:
        TraceError: as for ``read_memory_log``.
    """
    file = read_text(path)
    starts: tuple[int, ...] = ()
    comments = [index for index, line in enumerate(file.lines) if line.startswith("#")]
    for index in comments[:1]:
        words = file.lines[index][1:].split()
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
            raise file.error(index, "'# ' and the start kernels")
        starts = tuple(map(int, words))
    if len(comments) > 1:
        raise file.error(comments[1], "one comment")
    log: PeriodsLog = _filled(file, PeriodsLog, {"starts": starts})
    if len(log.sd_size) != len(log.sd_time) or (comments and len(starts) != len(log.sd_size)):
        raise file.error(0, f"lists of one length, not {len(log.sd_size)}, {len(log.sd_time)} and {len(starts)}")
    return log


def _filled(file: TextFile, kind: type[Any], values: dict[str, object]) -> Any:
    """A ``kind`` of ``values`` and the assignments in ``file``."""
    missing = {field.name: field.type for field in msgspec.structs.fields(kind) if field.name not in values}
    expected = ", ".join(missing)
    for index, line in enumerate(file.lines):
        if line.startswith("#"):
            continue
        found = _ASSIGNMENT.fullmatch(line)
        if found is None or found[1] not in missing:
            raise file.error(index, f"'<name> = <literal>' with each of {expected} once")
        try:
            values[found[1]] = msgspec.convert(_literal(found[2]), missing.pop(found[1]))
        except msgspec.ValidationError as error:
            raise file.wrong(index, f"{found[1]}: {error}") from None
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise file.wrong(index, f"{found[1]}: no literal") from None
    for name in missing:
        raise file.error(len(file.lines), f"'{name} = <literal>'")
    return kind(**values)


def _literal(text: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parser, about the text
        return ast.literal_eval(text)


# -- a value per kernel -----------------------------------------------------------------------------

_ACTIVE = re.compile(r"Kernel (\d{1,9}): (\d{1,18})", re.ASCII)
_MILLISECONDS = re.compile(r"(\d{1,9}) (\d{1,18}(?:\.\d{1,18})?) ms", re.ASCII)
_BYTES = re.compile(r"(\d{1,9}) (\d{1,18}) B", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?", re.ASCII)


def read_active(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Active bytes per kernel of a ``real_mem.config``. Raises TraceError."""
    return tuple(map(int, _numbered(Cursor(read_text(path)), _ACTIVE, "'Kernel {}: <bytes>'")))


def read_clock(path: str | os.PathLike[str]) -> tuple[float, ...]:
    """Read the start of each kernel, in microseconds, from a ``kernel_time_table.config``. Raises TraceError."""
    cursor = Cursor(read_text(path))
    return tuple([float(cursor.take(_NUMBER, "a time in microseconds")[0]) for _ in cursor.file.lines])


def read_profile(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Per kernel its cycles at 1.2 GHz (of a profile in ms, with G10's own rounding) or its workspace in bytes.

    Raises:
        TraceError: it cannot be read, or a line is not ``<kernel> <number> ms`` or ``<kernel> <bytes> B``, as the first
            line is.
    """
    cursor = Cursor(read_text(path))
    if cursor.line.endswith(" B"):
        return tuple(map(int, _numbered(cursor, _BYTES, "whole bytes: '{} <bytes> B'")))
    expected = "'{} <number> ms'" + " or '0 <bytes> B'" * (not cursor.line.endswith(" ms"))
    return tuple([int(1.2e9 * float(ms) / 1000) for ms in _numbered(cursor, _MILLISECONDS, expected)])


def _numbered(cursor: Cursor, pattern: re.Pattern[str], expected: str) -> Iterator[str]:
    """The value in each line after the number of the line, which is that of the kernel."""
    while not cursor.done:
        yield cursor.take(pattern, expected.format(cursor.at), lambda found: int(found[1]) == cursor.at)[2]


# --- the profile beside a trace ------------------------------------------------------------------------

_FOLDER = "profile"


class Profile(msgspec.Struct, frozen=True):
    """Per kernel, the nanoseconds it takes with its outputs absent and with all operands absent; empty if unknown."""

    outputs_absent_ns: tuple[int, ...] = ()
    all_absent_ns: tuple[int, ...] = ()


def profile_of(trace: str | os.PathLike[str]) -> Profile:
    """Read ``profile/T10.txt`` and ``T00.txt`` beside the trace in a folder, or of a file in it.

    Raises:
        TraceError: one of them is damaged, or they are not of one length.
    """
    path = Path(trace)
    folder = (path if path.is_dir() else path.parent) / _FOLDER
    columns = [_column(folder, name) for name in ("T10.txt", "T00.txt")]
    if all(columns) and len(columns[0]) != len(columns[1]):
        raise TraceError(f"{folder}: T10 has {len(columns[0])} kernels, T00 {len(columns[1])}")
    return Profile(*columns)


def _column(folder: Path, name: str) -> tuple[int, ...]:
    found = find_file(folder, [name]) if folder.is_dir() else None
    return () if found is None else tuple(int(cycles * UNIT_CYCLE) for cycles in read_profile(found))
