"""The profile beside a kernel trace of G10: times of kernels whose operands are absent, and workspace."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tensortide.errors import TraceError
from tensortide.importers.g10.results import read_profile
from tensortide.importers.textfile import find_file
from tensortide.timing.durations import UNIT_CYCLE

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
