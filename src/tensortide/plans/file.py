"""The Plan file: JSON that says what it is, of which version, and for which Graph."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tensortide.errors import PlanFileError
from tensortide.plans.model import Plan
from tensortide.versioned import Format
from tensortide.write import write_file

FORMAT = Format(
    *("plan", "tensortide plan", (1,), PlanFileError, "make it again"),
    source="write one with `tensortide plan order TARGET --plan FILE`",
)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    format: str = FORMAT.tag
    version: int = FORMAT.version
    plan: Plan


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write ``plan`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    return write_file(path, msgspec.json.encode(_File(plan=plan)) + b"\n")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a Plan. Raises PlanFileError if the file is missing, foreign, damaged or of another version."""
    return FORMAT.load(path, _File).plan
