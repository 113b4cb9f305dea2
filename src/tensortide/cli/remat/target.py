"""What the verbs of ``tensortide remat`` share: the step, the durations of its ops, and the rules it is played by."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.capture.dtrlog import is_log_file, read_recording, write_log
from tensortide.cli.source import CaptureOptions, graph_of, option, progress, resolver
from tensortide.errors import WorkloadError
from tensortide.graph import unrolled
from tensortide.plan.remat.schedule import recorded
from tensortide.replay.remat import Deallocation, Simulator
from tensortide.timing import device, estimate, load_durations

if TYPE_CHECKING:
    from tensortide.plan.remat.recording import Recording

Target = Annotated[
    str,
    Parameter(
        help="file.py:function, package.module:function, an example, a saved graph, a TensorFlow graph, or a DTR log "
        "(.log, .jsonl, also .gz)."
    ),
]
DEFAULT_MACHINE = "A100-SXM-80GB"


@Parameter(name="*")
@dataclass(frozen=True)
class TimeOptions:
    """How long ops take."""

    machine: Annotated[
        str | None, option("--machine", f"Device that durations are estimated for (default: {DEFAULT_MACHINE}).")
    ] = None
    times: Annotated[Path | None, option("--times --durations", "File of durations instead of an estimate.")] = None
    measure: Annotated[
        bool, option("--measure", "Run the workload here and measure its ops instead of an estimate.")
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class RuleOptions:
    """By which rules the step is played."""

    deallocation: Annotated[
        Deallocation,
        Parameter(
            help="When the program drops a tensor: evict it at once (eager), leave it to the policy (none), drop it "
            "for good when nothing evicted is made of it (banish), or never hear of it (ignore)."
        ),
    ] = "eager"
    compat: Annotated[
        bool, option("--compat", "Play by the rules of DTR's own simulator, to the byte (docs/remat.md).")
    ] = False
    device: Annotated[
        str | None, option("--device", "Device whose memory is limited (default: that of the most bytes).")
    ] = None


def simulator_of(
    target: str, options: CaptureOptions, times: TimeOptions, rules: RuleOptions, *, quiet: bool
) -> Simulator:
    """The step of ``target``, ready to be played."""
    recording = recording_of(target, options, times, quiet=quiet, copy_on_write=rules.compat)
    return Simulator(recording, compat=rules.compat, deallocation=rules.deallocation, device=rules.device or "")


def recording_of(
    target: str, options: CaptureOptions, times: TimeOptions, *, quiet: bool, copy_on_write: bool = False
) -> Recording:
    """The step of ``target`` with durations: those of a log, measured ones, those of a file, or estimated ones.

    ``copy_on_write``: as DTR's simulator sees it, which a captured step reaches by way of a log.
    """
    if sum((times.machine is not None, times.times is not None, times.measure)) > 1:
        raise WorkloadError("--machine, --times and --measure exclude each other")
    if is_log_file(target):
        if options != CaptureOptions() or times != TimeOptions():
            raise WorkloadError(f"{target} is a log: it has its own settings and durations")
        return read_recording(target, copy_on_write=copy_on_write)
    recording = _timed(target, options, times, quiet=quiet)
    if not copy_on_write:
        return recording
    with tempfile.TemporaryDirectory() as folder:
        path = write_log(recording.graph, recording.durations_ns, Path(folder) / "step.log")
        return read_recording(path, copy_on_write=True)


def _timed(target: str, options: CaptureOptions, times: TimeOptions, *, quiet: bool) -> Recording:
    if times.measure:
        from tensortide.capture.measure import measure
        from tensortide.capture.target import find, parse_settings

        if options.real or options.first_step:
            raise WorkloadError("--measure runs the steady step for real: leave out --real and --first-step")
        workload = find(target)
        with progress(quiet) as say:
            settings = parse_settings(options.set, workload, target)
            graph, durations = measure(workload, hyperparameters=settings, name=target, progress=say)
        return recorded(graph, durations.ns, durations.source)
    graph = unrolled(graph_of(target, options, quiet=quiet))
    if times.times is not None:
        durations = load_durations(times.times, graph)
    else:
        durations = estimate(graph, device(times.machine or DEFAULT_MACHINE), resolver=resolver)
    return recorded(graph, durations.ns, durations.source)
