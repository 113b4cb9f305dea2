"""The Plan file: JSON that says what it is, of which version, and for which Graph."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tensortide.errors import PlanFileError
from tensortide.plans.model import Plan
from tensortide.write import write_file

FORMAT = "tensortide plan"
VERSION = 1


class _Head(msgspec.Struct, frozen=True):
    """What tells the kind of file."""

    format: str = ""
    version: int = 0


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """What is written."""

    format: str = FORMAT
    version: int = VERSION
    plan: Plan


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write ``plan`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    return write_file(path, msgspec.json.encode(_File(plan=plan)) + b"\n")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a Plan. Raises PlanFileError if the file is missing, foreign, damaged or of another version."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise PlanFileError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        head = _Head()
    if head.format != FORMAT:
        raise PlanFileError(
            f"{path} is not a tensortide plan (write one with `tensortide footprint TARGET --plan FILE`)"
        )
    if head.version != VERSION:
        raise PlanFileError(f"{path} has plan format {head.version}; this release reads {VERSION}: make it again")
    try:
        return msgspec.json.decode(data, type=_File).plan
    except msgspec.DecodeError as error:
        raise PlanFileError(f"{path} does not hold a valid plan: {error}") from error


def is_plan_file(text: str) -> bool:
    """Whether ``text``, where the name of a policy could stand, names a file instead."""
    return text.endswith(".json") or Path(text).is_file()
