"""DTR logs as a row of the table of importers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head

_LINE = re.compile(rb'^[ \t]*\{[^{}\n]*"INSTRUCTION"[ \t]*:[ \t]*"[A-Z_]+"', re.MULTILINE)


@dataclass(frozen=True)
class LogOptions(Options):
    """``copy_on_write``: an op in place makes a new tensor, as in DTR's own simulator."""

    copy_on_write: bool = False


def _sniff(path: Path) -> bool:
    return _LINE.search(head(path)) is not None


def _read(path: Path, options: LogOptions) -> Imported:
    from tensortide.importers.dtrlog.read import read_recording
    from tensortide.timing import Durations, identity

    events = read_recording(path, copy_on_write=options.copy_on_write)
    if not options.durations:
        return Imported(events.graph, events=events)
    durations = Durations(events.durations_ns, events.source, "recorded", graph=identity(events.graph))
    return Imported(events.graph, durations, events)


IMPORTER = Importer("dtrlog", "a DTR log (.log, .jsonl, also .gz)", _sniff, _read, LogOptions)
