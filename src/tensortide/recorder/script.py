"""A training script as a target: its command, and the recording of a step in a process of its own."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from tensortide.errors import CaptureError, NotHere, ProgramFailed, TensortideError, WorkloadError
from tensortide.graph import Graph
from tensortide.progress import Say, silent
from tensortide.recorder.messages import Messages
from tensortide.recorder.ranks_in_turn import CaptureRank, in_turn
from tensortide.recorder.readings import Finding, Reading, ReadSite, sentences
from tensortide.recorder.script_command import Script
from tensortide.recorder.script_run import Ended, Interpreter, Runs, readings_in, runs_of
from tensortide.recorder.trials import findings, most_ops, ops_of

_OF_RANK = re.compile(r"KeyError: '(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'")
PATIENCE_S = 15.0
"""Time in which a script must end after the recorded step, unless it is given."""
IDLE_S = 120.0
"""Longest time in which a script may do nothing before its step is recorded, unless it is given."""
_MOST_PLACES = 4
"""Most lines at which a script is run with other values, one by one."""


@dataclass(frozen=True)
class ScriptOptions:
    """Options of recording a script's training step.

    ``step`` is its number, by default that of the first that repeats. ``fake`` runs the script on fake tensors, with
    values to ``assume``. A pretended ``device`` or ``machine`` implies fake tensors, and ``real`` excludes both.
    ``keep_running`` lets the script continue after the step. ``ranks`` runs it as one of that many processes: number
    ``rank``, or the first that its launcher starts here. ``compiled`` records the graphs of ``torch.compile``.
    ``compare`` runs the script again with other values, if it reads any, to tell whether its step depends on them.
    ``patience`` is the time, in seconds, in which it must end after the step, ``idle`` the longest in which it may do
    nothing before.
    """

    step: int | None = None
    real: bool = False
    fake: bool = False
    keep_running: bool = False
    assume: Mapping[str, bool | int | float] = field(default_factory=dict)
    device: str | None = None
    machine: str | None = None
    ranks: int | None = None
    compiled: bool = False
    compare: bool = False
    patience: float = PATIENCE_S
    rank: int | None = None
    idle: float = IDLE_S

    def __post_init__(self) -> None:
        """Raise WorkloadError for options that contradict each other."""
        if self.step is not None and self.step < 1:
            raise WorkloadError(f"there is no step {self.step}: training steps are counted from 1")
        if not self.patience >= 0:
            raise WorkloadError(f"--patience takes a number of seconds, not {self.patience}")
        if self.real and self.fake:
            raise WorkloadError("real and fake tensors exclude each other")
        if self.assume and not self.fake and self.device is None and self.machine is None:
            raise WorkloadError("a script runs on real tensors: values are assumed with --fake (fake=True) only")
        if self.compiled and (self.device is not None or self.machine is not None):
            raise WorkloadError("--compiled traces a step for the CPU: leave out --device and --machine")


def capture_script(
    script: Script,
    options: ScriptOptions = ScriptOptions(),
    *,
    quiet: bool = False,
    say: Say = silent,
    progress: Say = silent,
) -> Graph:
    """Run a script, and return the Graph of one of its training steps (see ``tensortide.record``).

    The script ends after that step unless it is to keep running. Its output goes to standard error; ``quiet`` discards
    its standard output. ``say`` receives remarks on how it ended, ``progress`` one now and then on how far it is.

    Raises CaptureError if the step was not reached: ProgramFailed if that is the script's fault; NotHere if the
    interpreter cannot record.
    """
    place = script.launch.place(options.ranks, options.rank)
    with script_ranks(script, options, quiet=quiet, say=say, progress=progress) as run:
        return run(0, Messages()) if place is None else in_turn(run, place.rank, say=progress)[place.rank]


@contextlib.contextmanager
def script_ranks(
    script: Script,
    options: ScriptOptions,
    *,
    quiet: bool = False,
    say: Say = silent,
    progress: Say = silent,
) -> Iterator[CaptureRank]:
    """Have what runs a script as one rank after the other while active, for the rest as ``capture_script`` does. On
    Linux they are forks of one interpreter."""
    forks = sys.platform == "linux" and script.launch.place(options.ranks, options.rank) is not None
    interpreter = Interpreter() if forks else None
    try:
        yield partial(_rank, script, options, interpreter, quiet=quiet, say=say, progress=progress)
    finally:
        if interpreter is not None:
            interpreter.close()


def _rank(
    script: Script,
    options: ScriptOptions,
    interpreter: Interpreter | None,
    rank: int,
    messages: Messages,
    *,
    quiet: bool,
    say: Say,
    progress: Say,
) -> Graph:
    """Run a script as ``rank``, which receives and sends ``messages``."""
    place = script.launch.place(options.ranks, rank)
    asked = {**asdict(options), "place": place}
    with runs_of(script.at(place), place, asked, messages, interpreter, quiet=quiet, say=progress) as runs:
        moved, ended = False, runs.run()
        if "nothing_on_gpu" in ended.outcome:
            say(f"{script.name} put nothing on cuda: it runs again with cuda as its default device")
            moved, ended = True, runs.run(moved=True)
        graph = runs.graph
        if graph is None:
            raise _failure(script, ended.status, ended.outcome, options.step or 2)
        if ended.killed:
            say(
                f"{script.name} did not end within {options.patience:g} s after the recorded step, and was killed: "
                "--patience SECONDS waits longer, --keep-running for as long as it takes"
            )
        elif ended.status:
            say(f"{script.name} {_ended(ended.status)} after the recorded step")
        if not options.compare or not graph.meta.untested:
            _tell_not_done(ended, runs, progress)
            return graph
        readings = readings_in(ended.outcome)
        tried = partial(runs.tried, moved=moved, most=most_ops(len(graph)))
        progress(f"{script.name} runs again, in silence: does its step depend on the values that it reads?")
        found = findings(ops_of(graph), readings, tried, _MOST_PLACES)
        _tell_not_done(ended, runs, progress)
        return _with_findings(graph, readings, found)


def _tell_not_done(ended: Ended, runs: Runs, say: Say) -> None:
    """Say what the runs of a script did not do."""
    tensors = f"{ended.outcome['not_done']} of tensors, which are fake" if "not_done" in ended.outcome else ""
    again = f"{runs.kept_apart} as the script ran again" if runs.kept_apart else ""
    if tensors or again:
        say(f"not done: {'; '.join(filter(None, (tensors, again)))}")


def announced(script: Script, options: ScriptOptions, size: str = "") -> str:
    """A sentence on how a script is about to run: on real tensors, or on fake ones, whose values are stand-ins.

    ``size`` is that of a GPU of which nothing else was asked for.

    Raises what ``pretended_gpu`` raises, and WorkloadError for ranks that contradict its launcher.
    """
    import torch

    from tensortide.recorder.cuda_mode import pretended_gpu

    place = script.launch.place(options.ranks, options.rank)
    name = script.name if place is None else f"{script.name} as rank {place.rank} of {place.ranks}"
    name += f" ({script.through})" if script.through else ""
    gpu = pretended_gpu(options.device, options.machine, options.real or None)
    if gpu is not None or options.fake:
        where = "" if gpu is None else f" of a pretended {f'{size} GPU' if size else gpu.name}"
        return f"running {name} on fake tensors{where}: values that it prints below (losses) are stand-ins"
    wanted = "to a step that repeats" if options.step is None else f"to its step {options.step}"
    steps = "to its end" if options.keep_running else wanted
    here = "this machine's GPU, if it uses one" if torch.cuda.is_available() else "the CPU"
    other = "" if options.compiled else "; --machine t4 records it without running its kernels"
    return f"running {name} for real on {here}, {steps}{other}"


def _with_findings(graph: Graph, readings: Sequence[Reading], found: Mapping[ReadSite, Finding]) -> Graph:
    """``graph``, whose assumptions say what was found out about the values that its script reads."""
    before, after = sentences(readings, {}), sentences(readings, found)
    others, certain = (
        [text for text in texts if text not in before.every] for texts in (graph.meta.assumptions, graph.meta.decisive)
    )
    meta = replace(
        graph.meta,
        assumptions=(*others, *after.every),
        decisive=(*certain, *after.decisive),
        untested=tuple(after.untested),
    )
    return replace(graph, meta=meta)


def _failure(script: Script, status: int, found: dict[str, Any], step: int) -> TensortideError:
    if "import" in found:
        return NotHere(
            f"{found['import']}\nInstall tensortide[torch] there, or name an interpreter that has it, as in "
            f"-- {sys.executable} {script.target}"
        )
    if (variable := _OF_RANK.search(found.get("failed") or found.get("error", ""))) is not None:
        return CaptureError(
            f"{script.name} reads {variable[1]}, which a launcher such as torchrun sets: give the whole command, as "
            "in -- torchrun --nproc_per_node 8 train.py, or --ranks N, which runs it as rank 0 of N"
        )
    if "error" in found:
        return (ProgramFailed if found.get("cannot") else CaptureError)(found["error"])
    missed = found.get("missed", f"step {step} was not reached")
    if "failed" in found:
        return ProgramFailed(f"{script.name} raised {found['failed']} (its traceback is above)\n{missed}")
    if status:
        hint = (
            "\nIf memory ran out: --fake runs it on fake tensors." if status == -getattr(signal, "SIGKILL", 9) else ""
        )
        return ProgramFailed(f"{script.name} {_ended(status)}: {missed}{hint}")
    return CaptureError(f"{script.name} ended: {missed}")


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
