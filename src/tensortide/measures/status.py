"""Status: the computed metrics of one subject, as data that is saved, loaded and compared."""

from __future__ import annotations

import datetime
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tensortide.errors import MetricError
from tensortide.measures.metric import Metric, Missing, Value
from tensortide.shown import Show, Shown
from tensortide.version import VERSION
from tensortide.versioned import Format
from tensortide.write import write_file

FORMAT = Format("status", "tensortide status", (1,), MetricError, "compute it again", "Profiler.save writes one")
SUFFIX = ".status.json"

Options = Mapping[str, Any]


class Entry(msgspec.Struct, frozen=True):
    """A metric with its value, or the reason why there is none, and the options that it was computed with."""

    metric: Metric
    value: Value
    options: dict[str, Any] = {}

    @property
    def known(self) -> Annotated[int | float | str | None, Show(unit="number", data=True)]:
        """The value; None where there is none."""
        return None if isinstance(self.value, Missing) else self.value

    @property
    def reason(self) -> Annotated[str, Show(data=True)]:
        """Reason for a missing value."""
        return self.value.reason if isinstance(self.value, Missing) else ""

    @property
    def number(self) -> int | float | None:
        """The value if it is a number."""
        return self.value if isinstance(self.value, int | float) else None


class Status(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one subject: its ``name``, its ``kind`` (see ``Subject``), and entries by name.

    ``of`` identifies what was measured (workload and hyperparameters); ``versions`` and ``date`` say by what and when.
    """

    SECTION = "metrics"

    format: str = FORMAT.tag
    version: Annotated[int, msgspec.Meta(ge=1)] = FORMAT.version
    name: str
    kind: Literal["step", "forward"]
    of: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    versions: dict[str, str] = {}
    date: str = ""

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def is_lower_bound(self, name: str) -> bool:
        """Return whether a value leaves out ops without a cost rule."""
        entry, unknown = self.entries.get(name), self.entries.get("unknown_ops")
        return bool(entry and entry.metric.lower_bound and unknown and unknown.number)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to ``path``, all or nothing. Raises OutputError if it cannot be written."""
        entries = {name: _written(entry) for name, entry in self.entries.items()}
        whole = msgspec.structs.replace(self, entries=entries)
        data = msgspec.json.format(msgspec.json.encode(whole, enc_hook=str), indent=2)
        return write_file(path, data + b"\n")


def _written(entry: Entry) -> Entry:
    """The entry as JSON can have it: without NaN and infinity."""
    if isinstance(entry.value, float) and not math.isfinite(entry.value):
        return msgspec.structs.replace(entry, value=Missing(f"the value was {entry.value}"))
    return entry


def load_status(path: str | os.PathLike[str]) -> Status:
    """Read a status. Raises MetricError for a file that is missing, foreign, damaged or of another version."""
    found: Status = FORMAT.load(path, Status)
    return found


def now() -> str:
    """The date and time as text, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions that a status was made with."""
    return {"python": platform.python_version(), "tensortide": VERSION}
