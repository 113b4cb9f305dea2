"""The record of launches that passed: ``passed.csv`` has the last time of each."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SITE = HERE.parent.parent / ".launches" / "site"
RECORD = HERE / "passed.csv"
FIELDS = ("launch", "command", "seconds", "date", "versions")

Passed = Callable[[str, str, str, float], None]


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder with the stacks."""
    if not SITE.is_dir():
        pytest.skip("the stacks are not installed: make test-launches")
    return SITE


@pytest.fixture(scope="session")
def passed() -> Passed:
    """Write down that a launch passed: its name, its stack, its command and the seconds that it took."""

    def write(name: str, stack: str, command: str, seconds: float) -> None:
        before = RECORD.read_text().splitlines() if RECORD.exists() else []
        rows = {row["launch"]: row for row in csv.DictReader(before)}
        found = {each.name.lower().replace("-", "_"): each.version for each in distributions(path=[str(SITE)])}
        versions = " ".join(f"{each}=={found[each]}" for each in stack.split() if each in found)
        today = time.strftime("%Y-%m-%d")
        rows[name] = dict(zip(FIELDS, (name, command, f"{seconds:.0f}", today, versions), strict=True))
        with RECORD.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[each] for each in sorted(rows))

    return write
