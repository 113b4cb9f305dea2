"""Options of every ``tensortide remat`` verb: the step, the durations of its ops, and the rules it is played by."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.show import Files
from tensortide.cli.source import CaptureOptions, OutputOptions, option
from tensortide.importers.door import File, resolve
from tensortide.importers.dtrlog.read import read_recording
from tensortide.importers.dtrlog.write import write_log
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Deallocation

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Recording


@Parameter(name="*")
@dataclass(frozen=True)
class StepRules:
    """Rules by which steps are played, apart from the handling of released tensors."""

    compat: Annotated[
        bool, option("--compat", "Play by the rules of DTR's own simulator, to the byte (docs/remat.md).")
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class RuleOptions(StepRules):
    """Rules by which steps are played, with the handling of released tensors."""

    deallocation: Annotated[
        Deallocation,
        Parameter(
            help="When the program drops a tensor: evict it at once (eager), leave it to the policy (none), release "
            "it for good when nothing evicted depends on it (banish), or ignore the release (ignore)."
        ),
    ] = "eager"


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Options of verbs that play one step: files, reading and rules of the step, and printing."""

    files: Files = Files()  # noqa: RUF009
    options: CaptureOptions = CaptureOptions()  # noqa: RUF009
    times: TimeOptions = TimeOptions()  # noqa: RUF009
    rules: RuleOptions = RuleOptions()
    out: OutputOptions = OutputOptions()  # noqa: RUF009

    def recording(self, target: str) -> Recording:
        return recording_of(target, self.options, self.times, self.rules, quiet=self.out.quiet)


def recording_of(
    target: str, options: CaptureOptions, times: TimeOptions, rules: StepRules, *, quiet: bool
) -> Recording:
    """The step of ``target`` with durations: those of a log, measured ones, those of a file, or estimated ones.

    DTR's simulator sees it with copy on write, which a captured step reaches by way of a log.
    """
    found = resolve(target)
    has_events = isinstance(found, File) and found.importer.has("copy_on_write")
    reading = {"copy_on_write": True} if has_events and rules.compat else {}
    step = timed(found, options, times, quiet=quiet, **reading)
    if step.events is not None:
        return step.events
    assert step.durations is not None
    recording = recorded(step.graph, step.durations.ns, step.durations.source)
    if not rules.compat:
        return recording
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(recording.graph, recording.durations_ns, Path(folder) / "step.log")
        return read_recording(path, copy_on_write=True)
