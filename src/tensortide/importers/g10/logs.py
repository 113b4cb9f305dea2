"""The series that both tools write, and the profiles that G10 reads: Python literals (never executed) and tables."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec

from tensortide.importers.textfile import TextFile, read_text

__all__ = [
    "MemoryLog",
    "PeriodsLog",
    "read_active",
    "read_clock",
    "read_memory_log",
    "read_periods_log",
    "read_profile",
]

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*) = (.+)", re.ASCII)
_ACTIVE = re.compile(r"Kernel (\d{1,9}): (\d{1,18})", re.ASCII)
_PROFILE = re.compile(r"(\d{1,9}) (\d{1,18}(?:\.\d{1,18})?) (ms|B)", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?", re.ASCII)


class MemoryLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of ``*NNMemConsumptionLog.py``: per kernel, and in all."""

    active: tuple[int, ...]
    active_breakdown: tuple[tuple[int, int, int], ...]
    total: tuple[int, ...]
    global_weight: int
    input_size: int


class PeriodsLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    expected = ", ".join(name for name in fields if name not in values)
    for index, line in enumerate(file.lines):
        if line.startswith("#"):
            continue
        found = _ASSIGNMENT.fullmatch(line)
        if found is None or found[1] not in fields or found[1] in values:
            raise file.error(index, f"'<name> = <literal>' with each of {expected} once")
        try:
            values[found[1]] = msgspec.convert(_literal(found[2]), fields[found[1]])
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, msgspec.ValidationError) as error:
            reason = str(error) if isinstance(error, msgspec.ValidationError) else "no literal"
            raise file.wrong(index, f"{found[1]}: {reason}") from None
    missing = [name for name in fields if name not in values]
    if missing:
        raise file.error(len(file.lines), f"'{missing[0]} = <literal>'")
    return kind(**values)


def _literal(text: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parser, about the text
        return ast.literal_eval(text)


def read_active(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Active bytes per kernel of a ``real_mem.config``. Raises TraceError."""
    file = read_text(path)
    active: list[int] = []
    for index, line in enumerate(file.lines):
        found = _ACTIVE.fullmatch(line)
        if found is None or int(found[1]) != index:
            raise file.error(index, f"'Kernel {index}: <bytes>'")
        active.append(int(found[2]))
    return tuple(active)


def read_clock(path: str | os.PathLike[str]) -> tuple[float, ...]:
    """Read the start of each kernel, in microseconds, from a ``kernel_time_table.config``. Raises TraceError."""
    file = read_text(path)
    for index, line in enumerate(file.lines):
        if _NUMBER.fullmatch(line) is None:
            raise file.error(index, "a time in microseconds")
    return tuple(map(float, file.lines))


def read_profile(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Per kernel its cycles at 1.2 GHz (of a profile in ms, with G10's own rounding) or its workspace in bytes.

    Raises:
        TraceError: it cannot be read, or a line is not ``<kernel> <number> ms`` or ``<kernel> <bytes> B``, as the first
            line is.
    """
    file = read_text(path)
    return tuple(_profile(file))


def _profile(file: TextFile) -> Iterator[int]:
    unit = ""
    for index, line in enumerate(file.lines):
        found = _PROFILE.fullmatch(line)
        if found is None or int(found[1]) != index or found[3] != (unit or found[3]):
            raise file.error(index, f"'{index} <number> {unit or 'ms'}'" + ("" if unit else f" or '{index} <bytes> B'"))
        unit = found[3]
        if unit == "B" and "." in found[2]:
            raise file.error(index, "whole bytes")
        yield int(1.2e9 * float(found[2]) / 1000) if unit == "ms" else int(found[2])
