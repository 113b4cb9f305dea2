"""A training script as a target: its command, and the recording of a step in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tensortide.errors import CaptureError, WorkloadError
from tensortide.graph import Graph, load

PREFIX = "-- "
"""Beginning of a text that is the command of a script."""
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*(\.exe)?", re.IGNORECASE)
_ENTRY = Path(__file__).with_name("script_entry.py")
_EAGER = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
"""Environment variables that disable ``torch.compile``, so that the ops of eager execution are recorded."""
_GRACE_S = 15.0
"""Time in which a script must end after the recorded step."""


@dataclass(frozen=True)
class ScriptOptions:
    """Options of recording a script's training step.

    ``step`` is its number. ``fake`` runs the script on fake tensors, with values to ``assume``. A pretended ``device``
    or ``machine`` implies fake tensors, and ``real`` excludes both. ``keep_running`` lets the script continue after
    the step. ``ranks`` runs it as rank 0 of that many processes. ``compiled`` records the graphs of ``torch.compile``.
    ``compare`` runs the script once more with other values, if it reads any, to tell whether its step depends on them.
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

    def __post_init__(self) -> None:
        """Raise WorkloadError for options that contradict each other."""
        if self.step < 1:
            raise WorkloadError(f"there is no step {self.step}: training steps are counted from 1")
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

    def __str__(self) -> str:
        return f"{self.target} is a script"

    def command(self, request: Path) -> list[str]:
        """The command that runs the script as the file ``request`` asks."""
        return [self.interpreter, *self.flags, str(_ENTRY), str(request), self.kind, self.target, *self.arguments]


def script_text(command: Sequence[str]) -> str:
    """The target text of a script, from the words of its command."""
    return PREFIX + shlex.join(command)


def find_script(target: str) -> Script | None:
    """Parse ``-- python train.py --its arguments``; None for a text of another kind.

    Raises WorkloadError for a command that runs no script, or a script that does not exist.
    """
    if not target.startswith(PREFIX.rstrip()):
        return None
    words = shlex.split(target[len(PREFIX) :])
    if not words:
        raise WorkloadError("after -- comes the command of a training script: -- python train.py --its arguments")
    if _INTERPRETER.fullmatch(Path(words[0]).name):
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
    say: Callable[[str], None] = lambda message: None,
) -> Graph:
    """Run a script, and return the Graph of one of its training steps (see ``tensortide.record``).

    The script ends after that step unless it is to keep running. Its output goes to standard error; ``quiet`` discards
    its standard output. ``say`` receives remarks on how it ended.

    Raises CaptureError if the step was not reached.
    """
    with tempfile.TemporaryDirectory(prefix="tensortide-") as folder:
        request, graph, outcome = (Path(folder, name) for name in ("request.json", "step.tide", "outcome.json"))
        asked = {"graph": str(graph), "outcome": str(outcome), "name": script.name, **asdict(options)}

        def run(*, moved: bool) -> tuple[int, bool, dict[str, Any]]:
            outcome.unlink(missing_ok=True)
            request.write_text(json.dumps({**asked, **others, "moved": moved}), "utf-8")
            environment = {**os.environ, **({} if options.compiled else _EAGER)}
            command = script.command(request)
            status, slow = _run(command, environment, graph, waits=options.keep_running, quiet=quiet or bool(others))
            return status, slow, json.loads(outcome.read_text("utf-8")) if outcome.exists() else {}

        moved, others = False, dict[str, Any]()
        status, slow, found = run(moved=False)
        if "nothing_on_gpu" in found:
            say(f"{script.name} put nothing on cuda: it ran again with cuda as its default device")
            moved = True
            status, slow, found = run(moved=True)
        if not graph.exists():
            raise CaptureError(_failure(script, status, found, options.step))
        if slow:
            say(f"{script.name} did not end within {_GRACE_S:.0f} s after the recorded step, and was killed")
        elif status:
            say(f"{script.name} {_ended(status)} after the recorded step")
        made = load(graph)
        if not options.compare or not made.meta.untested:
            return made
        graph.unlink()
        others["other"] = True
        run(moved=moved)
        return _compared(made, load(graph) if graph.exists() else None)


def _compared(made: Graph, other: Graph | None) -> Graph:
    """``made``, which says what its ops depend on, by a step of ``other`` values: None if there was none."""

    def ops(graph: Graph) -> list[object]:
        return [(op.name, [t.shape for t in op.inputs], [t.shape for t in op.outputs]) for op in graph]

    meta = made.meta
    decides = other is None or ops(made) != ops(other)
    decisive = (*meta.decisive, *meta.untested) if decides else meta.decisive
    return replace(made, meta=replace(meta, decisive=decisive, untested=()))


def _run(command: list[str], environment: dict[str, str], graph: Path, *, waits: bool, quiet: bool) -> tuple[int, bool]:
    """Run the script's process. Returns its exit status, and True if it had to be killed."""
    sys.stdout.flush()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL if quiet else 2, env=environment) as process:
        try:
            recorded_s: float | None = None
            while True:
                try:
                    return process.wait(None if waits else 0.2), False
                except subprocess.TimeoutExpired:
                    if recorded_s is None and graph.exists():
                        recorded_s = time.monotonic()
                if recorded_s is not None and time.monotonic() - recorded_s > _GRACE_S:
                    process.kill()
                    return process.wait(), True
        except BaseException:
            process.kill()
            raise


def _failure(script: Script, status: int, found: dict[str, Any], step: int) -> str:
    if "import" in found:
        return (
            f"{found['import']}\nInstall tensortide[torch] there, or name an interpreter that has it, as in "
            f"-- {sys.executable} {script.target}"
        )
    if "error" in found:
        return str(found["error"])
    missed = found.get("missed", f"step {step} was not reached")
    if "failed" in found:
        return f"{script.name} raised {found['failed']} (its traceback is above)\n{missed}"
    if status:
        hint = (
            "\nIf memory ran out: --fake runs it on fake tensors." if status == -getattr(signal, "SIGKILL", 9) else ""
        )
        return f"{script.name} {_ended(status)}: {missed}{hint}"
    return f"{script.name} ended: {missed}"


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
