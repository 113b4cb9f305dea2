"""A training script as a target: its command, and the recording of a step in a process of its own."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tensortide.errors import CaptureError, NotHere, ProgramFailed, TensortideError, WorkloadError
from tensortide.graph import Graph
from tensortide.progress import Say, silent
from tensortide.recorder.readings import Finding, Reading, ReadSite, sentences
from tensortide.recorder.script_command import PREFIX, is_interpreter, launched
from tensortide.recorder.script_run import readings_in, runs_of
from tensortide.recorder.trials import findings, most_ops, ops_of

_OF_RANK = re.compile(r"KeyError: '(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'")
_ENTRY = Path(__file__).with_name("script_entry.py")
PATIENCE_S = 15.0
"""Time in which a script must end after the recorded step, unless it is given."""
_MOST_PLACES = 4
"""Most lines at which a script is run with other values, one by one."""


@dataclass(frozen=True)
class ScriptOptions:
    """Options of recording a script's training step.

    ``step`` is its number. ``fake`` runs the script on fake tensors, with values to ``assume``. A pretended ``device``
    or ``machine`` implies fake tensors, and ``real`` excludes both. ``keep_running`` lets the script continue after
    the step. ``ranks`` runs it as rank 0 of that many processes. ``compiled`` records the graphs of ``torch.compile``.
    ``compare`` runs the script again with other values, if it reads any, to tell whether its step depends on them.
    ``patience`` is the time, in seconds, in which it must end after the step.
    """

    step: int = 2
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

    def __post_init__(self) -> None:
        """Raise WorkloadError for options that contradict each other."""
        if self.step < 1:
            raise WorkloadError(f"there is no step {self.step}: training steps are counted from 1")
        if not self.patience >= 0:
            raise WorkloadError(f"--patience takes a number of seconds, not {self.patience}")
        if self.real and self.fake:
            raise WorkloadError("real and fake tensors exclude each other")
        if self.assume and not self.fake and self.device is None and self.machine is None:
            raise WorkloadError("a script runs on real tensors: values are assumed with --fake (fake=True) only")
        if self.compiled and (self.device is not None or self.machine is not None):
            raise WorkloadError("--compiled traces a step for the CPU: leave out --device and --machine")


@dataclass(frozen=True)
class Script:
    """A training script: the interpreter, its flags, the file or module, and the script's own arguments."""

    interpreter: str
    flags: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the script, without its folder."""
        return self.target if self.kind == "module" else Path(self.target).name

    @property
    def file(self) -> str:
        """Its file; that of a module, where it is in this folder."""
        return f"{self.target.replace('.', '/')}.py" if self.kind == "module" else self.target

    def __str__(self) -> str:
        return f"{self.target} is a script"

    def command(self, request: Path) -> list[str]:
        """The command that runs the script as the file ``request`` asks."""
        return [self.interpreter, *self.flags, str(_ENTRY), str(request), self.kind, self.target, *self.arguments]


def find_script(target: str) -> Script | None:
    """Parse ``-- python train.py --its arguments``; None for a text of another kind.

    Raises WorkloadError for a command that runs no script, or a script that does not exist.
    """
    if not target.startswith(PREFIX.rstrip()):
        return None
    words = shlex.split(target[len(PREFIX) :])
    if not words:
        raise WorkloadError("after -- comes the command of a training script: -- python train.py --its arguments")
    if (started := launched(words)) is not None:
        ranks = "" if started.ranks == 0 else f"--ranks {started.ranks or 'N'} "
        raise WorkloadError(f"{started}: {ranks}-- {shlex.join(started.command)}")
    if is_interpreter(words[0]):
        return _python(_interpreter(words[0]), words[1:])
    if words[0].endswith(".py"):
        return _python(sys.executable, words)
    raise WorkloadError(
        f"{words[0]} is no Python script: what it starts cannot be seen. Name the script itself, "
        "as in -- python train.py --its arguments"
    )


def _interpreter(word: str) -> str:
    found = shutil.which(word)
    if found is None:
        raise WorkloadError(f"there is no command {word}: this is {sys.executable}, as in -- {sys.executable} train.py")
    return found


def _python(interpreter: str, words: Sequence[str]) -> Script:
    """Split ``words`` into the interpreter's own flags, the script and its arguments, as Python does."""
    flags: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        ends = None if word.startswith(("--", "-W", "-X")) else re.fullmatch(r"(-[^cm]*)([cm])(.*)", word)
        if ends is None:
            flags.append(word)
            if word in ("-W", "-X", "--check-hash-based-pycs") and rest:
                flags.append(rest.pop(0))
            continue
        before, letter, after = ends.groups()
        flags += [before] if len(before) > 1 else []
        if letter == "c":
            raise WorkloadError("python -c has no lines to point to: put the code into a file")
        if not after and not rest:
            raise WorkloadError("python -m needs the name of a module")
        module = after or rest.pop(0)
        return Script(interpreter, tuple(flags), "module", module, tuple(rest))
    if not rest or rest[0] == "-":
        raise WorkloadError("the command runs no script: write -- python train.py --its arguments")
    if not Path(rest[0]).is_file():
        what = "a folder, no script" if Path(rest[0]).is_dir() else "not there"
        raise WorkloadError(f"{rest[0]} is {what}: write -- python train.py --its arguments")
    return Script(interpreter, tuple(flags), "file", rest[0], tuple(rest[1:]))


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
    with runs_of(script, asdict(options), patience_s=options.patience, quiet=quiet, say=progress) as runs:
        moved, ended = False, runs.run()
        if "nothing_on_gpu" in ended.outcome:
            say(f"{script.name} put nothing on cuda: it runs again with cuda as its default device")
            moved, ended = True, runs.run(moved=True)
        graph = runs.graph
        if graph is None:
            raise _failure(script, ended.status, ended.outcome, options.step)
        if ended.killed:
            say(
                f"{script.name} did not end within {options.patience:g} s after the recorded step, and was killed: "
                "--patience SECONDS waits longer, --keep-running for as long as it takes"
            )
        elif ended.status:
            say(f"{script.name} {_ended(ended.status)} after the recorded step")
        if not options.compare or not graph.meta.untested:
            return graph
        readings = readings_in(ended.outcome)
        tried = partial(runs.tried, moved=moved, most=most_ops(len(graph)))
        progress(f"{script.name} runs again, in silence: does its step depend on the values that it reads?")
        found = findings(ops_of(graph), readings, tried, _MOST_PLACES)
        return _with_findings(graph, readings, found)


def announced(script: Script, options: ScriptOptions, size: str = "") -> str:
    """A sentence on how a script is about to run: on real tensors, or on fake ones, whose values are stand-ins.

    ``size`` is that of a GPU of which nothing else was asked for.

    Raises what ``pretended_gpu`` raises.
    """
    import torch

    from tensortide.recorder.cuda_mode import pretended_gpu

    gpu = pretended_gpu(options.device, options.machine, options.real or None)
    if gpu is not None or options.fake:
        where = "" if gpu is None else f" of a pretended {f'{size} GPU' if size else gpu.name}"
        return f"running {script.name} on fake tensors{where}: values that it prints below (losses) are stand-ins"
    steps = "to its end" if options.keep_running else f"to its step {options.step}"
    here = "this machine's GPU, if it uses one" if torch.cuda.is_available() else "the CPU"
    other = "" if options.compiled else "; --machine t4 records it without running its kernels"
    return f"running {script.name} for real on {here}, {steps}{other}"


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
            f"{script.name} reads {variable[1]}, which a launcher such as torchrun sets: --ranks N runs it as rank 0 "
            "of N, in a single process"
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
