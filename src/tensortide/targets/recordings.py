"""A target as planners and policies take it: one step with durations of its ops, and its events if a log has them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tensortide.importers.door import File, resolve
from tensortide.importers.dtrlog.read import read_recording
from tensortide.importers.dtrlog.write import write_log
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.progress import Say, silent
from tensortide.targets.durations import timed
from tensortide.targets.requests import TimedRequest


def recorded_step(target: str, asked: TimedRequest, say: Say = silent, *, compat: bool = False) -> Recording:
    """The step of ``target`` with durations: those of a log, measured ones, those of a file, or estimated ones.

    With ``compat`` it has copy on write, as DTR's simulator sees it; a captured step gets that by way of a log.
    """
    found = resolve(target)
    has_events = isinstance(found, File) and found.importer.has("copy_on_write")
    reading = {"copy_on_write": True} if has_events and compat else {}
    step = timed(found, asked, say=say, **reading)
    if step.events is not None:
        return step.events
    assert step.durations is not None
    recording = recorded(step.graph, step.durations.ns, step.durations.source)
    if not compat:
        return recording
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(recording.graph, recording.durations_ns, Path(folder) / "step.log")
        return read_recording(path, copy_on_write=True)
