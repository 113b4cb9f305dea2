"""The published data that answers are checked against: all of it where it lies beside the repository, else the part
that is committed (``tests/data``). ``TENSORTIDE_REFERENCE`` names another folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

COMMITTED = Path(__file__).parent / "data"
ALL = Path(__file__).parents[2] / "shared" / "reference"


def reference_folder() -> Path:
    """The fullest folder of published data on this machine."""
    named = os.environ.get("TENSORTIDE_REFERENCE")
    return Path(named) if named else ALL if ALL.is_dir() else COMMITTED


def dtr_log(reference: Path, name: str) -> Path:
    """The file of a recorded or synthetic DTR log; a skip for a recorded one where only committed data are."""
    if name.startswith("syn"):
        return reference / "dtr" / "synthetic" / f"{name}.jsonl.gz"
    path = reference / "dtr" / "logs" / f"{name}.jsonl.gz"
    if not path.parent.is_dir():
        pytest.skip("recorded DTR logs have no licence and are not committed")
    return path


def measured_times(reference: Path) -> Path:
    """The folder of tables of measured times; a skip where only committed data are, which are other files in it."""
    folder = reference / "timing"
    if not any(folder.glob("*.csv.gz")):
        pytest.skip("the tables of measured times are not committed")
    return folder
