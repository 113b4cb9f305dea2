"""Targets whose sizes keep the expressions that a file gives them, for verbs that show or save these."""

from __future__ import annotations

from tensortide.cli.source import CaptureOptions, opened, symbols_of
from tensortide.importers.door import File
from tensortide.importers.imported import Imported
from tensortide.recorder.script import Script
from tensortide.recorder.target import Workload


def opened_exactly(found: File | Script | Workload, options: CaptureOptions, *, quiet: bool) -> Imported:
    """Capture or read a target as ``opened`` does; the sizes of a file keep their expressions."""
    if not isinstance(found, File):
        return opened(found, options, quiet=quiet, durations=False)
    step = found.read(symbols_of(found, options), **options.of_file(), durations=False)
    step.graph.index.device(options.device)  # an error if nothing is on it
    return step
