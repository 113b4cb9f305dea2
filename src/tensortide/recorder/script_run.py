"""The process of a script as its parent sees it: started, waited for, ended; and the files that it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensortide.graph import Graph, load
from tensortide.progress import Say, silent
from tensortide.recorder.forked_runs import GRACE_S, Fork, Forks, signal_of
from tensortide.recorder.idle import Idle
from tensortide.recorder.messages import Messages
from tensortide.recorder.not_reached import times
from tensortide.recorder.readings import Reading, ReadSite, Use
from tensortide.recorder.trials import Ran, Trial, ops_of

if TYPE_CHECKING:
    from tensortide.recorder.script_command import Script
    from tensortide.recorder.script_launch import Place

_EAGER = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
"""Environment variables that disable ``torch.compile``, so that the ops of eager execution are recorded."""
_NO_TRACKERS = {"WANDB_MODE": "disabled", "COMET_MODE": "DISABLED", "SWANLAB_MODE": "disabled"}
"""Environment variables that keep trackers of experiments from recording stand-ins."""
_LONGER, _MORE_S = 3, 15
"""A trial may take so many times as long as the recorded run, and so many seconds more."""
_POLL_S = 0.2
"""Seconds from one look at a running script to the next."""
LIFE_S = 30.0
"""Seconds from one sign of life of a script to the next."""


@dataclass(frozen=True)
class Ended:
    """A script that has ended: its exit status, whether it had to be killed, and the outcome that it wrote."""

    status: int
    killed: bool
    outcome: dict[str, Any]


class Interpreter:
    """The interpreter that ranks of a launch are forked from, which the first of them starts."""

    def __init__(self) -> None:
        self._forks: Forks | None = None
        self.imports: list[str] = []
        """Modules that a rank has imported, for those after it."""

    def start(
        self, script: Script, request: dict[str, Any], file: Path, environment: dict[str, str], out: int
    ) -> subprocess.Popen[bytes] | Fork:
        """Run ``script`` as ``request`` asks; the interpreter itself stands for a run if it has ended."""
        if self._forks is None:
            self._forks = Forks(script, file, environment, outcome=request["outcome"], out=out, err=None)
        own = {"imports": self.imports, "environment": environment, "command": script.words}
        return self._forks.start({**request, **own}) or self._forks.process

    def close(self) -> None:
        """End the interpreter."""
        if self._forks is not None:
            self._forks.close()


class Runs:
    """Runs a script, any number of times, and keeps the files of the last run in a folder of its own.

    ``messages`` are those of ranks that ran before. ``asked`` are the options of the request: ``patience`` is the time
    in which it must end after the recorded step, ``idle`` that in which it may do nothing before. ``say`` shows now and
    then how far the script is. ``interpreter`` is the one to fork runs from (None: each has its own).
    """

    def __init__(
        self,
        script: Script,
        place: Place | None,
        asked: dict[str, Any],
        messages: Messages,
        folder: Path,
        interpreter: Interpreter | None,
        *,
        quiet: bool,
        say: Say,
    ) -> None:
        self.script, self._quiet, self._say = script, quiet, say
        self._who = script.name if place is None else f"{script.name}, rank {place.rank}"
        self._messages = messages
        self._interpreter = interpreter
        self._request, self._graph, self._outcome, self._progress, self._stack, self._sent = (
            folder / name for name in ("request.json", "step.tide", "outcome.json", "progress", "stack", "messages")
        )
        files = {"graph": self._graph, "outcome": self._outcome, "progress": self._progress, "stack": self._stack}
        files["messages"] = self._sent
        self._hangs = ""
        self._asked = {**asked, **{name: str(file) for name, file in files.items()}, "name": script.name}
        self._started = self._said = time.monotonic()
        self._environment = {
            **os.environ,
            **script.launch.variables(place),
            **({} if asked["compiled"] else _EAGER),
            **(_NO_TRACKERS if asked["fake"] or (asked["device"] or "cpu") != "cpu" or asked["machine"] else {}),
        }
        self._longest_s = 0.0
        self._forks: Forks | None = None
        self._imports: list[str] = []
        self._made: list[str] = []
        self._apart: tuple[set[str], set[str]] = set(), set()

    @property
    def kept_apart(self) -> str:
        """Files that runs after the first did not write, and hosts that they did not connect to, in numbers."""
        numbers = zip(map(len, self._apart), ("write", "connection"), strict=True)
        return ", ".join(times(number, what) for number, what in numbers if number)

    @property
    def graph(self) -> Graph | None:
        """The step that the last run recorded, if it did."""
        return load(self._graph) if self._graph.exists() else None

    def run(self, *, moved: bool = False) -> Ended:
        """Run the script. ``moved``: with everything on the pretended GPU."""
        began = time.monotonic()
        status, killed = self._process(self._begun(moved), None)
        self._longest_s = time.monotonic() - began
        found = self._found()
        self._messages.update(self._sent)
        if self._hangs:
            found |= {"error": self._hangs, "cannot": True}
        self._imports = found.get("imports", [])
        if self._interpreter is not None:
            self._interpreter.imports = self._imports
        self._made = found.get("made", self._made)
        return Ended(status, killed, found)

    def tried(self, trial: Trial, *, moved: bool, most: int) -> Ran:
        """Run the script with other values, until its step is recorded or has over ``most`` ops."""
        self._live("runs again with other values")
        tried = {**trial._asdict(), "places": list(trial.places)}
        request = {**self._begun(moved), "trial": tried, "most": most}
        longest_s = _LONGER * self._longest_s + _MORE_S
        if sys.platform == "linux":
            self._forks = self._forks or Forks(self.script, self._request, self._environment, self._imports)
            self._forks.run(request, longest_s)
        else:
            self._process(request, longest_s)
        found, graph = self._found(), self.graph
        if graph is None and "read" not in found:
            return Ran()
        compared, reached = ({ReadSite(*each) for each in places} for places in found["read"])
        error = found.get("failed", "") or found.get("error", "").partition("\n")[0]
        if graph is not None:
            return Ran(ops_of(graph), compared=compared, reached=reached)
        other = found.get("other", "") or (error if found.get("needs_value") else "")
        return Ran(None, "" if other else error or "it ends before the step does", other, compared, reached)

    def close(self) -> None:
        """End the interpreter that trials are forked from, if one runs."""
        if self._forks is not None:
            self._forks.close()

    def _begun(self, moved: bool) -> dict[str, Any]:
        """Remove the files of the last run. Returns the request of another one."""
        self._outcome.unlink(missing_ok=True)
        self._progress.unlink(missing_ok=True)
        self._stack.unlink(missing_ok=True)
        self._graph.unlink(missing_ok=True)
        self._messages.save(self._sent)
        return {**self._asked, "moved": moved, "trial": None, "made": self._made}

    def _live(self, what: str = "") -> None:
        """Say how far the script is, if nothing was said for long."""
        now = time.monotonic()
        if now - self._said < LIFE_S:
            return
        self._said = now
        if not what and self._graph.exists():
            what = "its step is recorded; it goes on"
        if not what:
            step, ops = self._far()
            which = max(step, self._asked["step"] or 2)
            what = f"in step {step}; step {which} is recorded" + (f", {ops:,} ops so far" if ops else "")
        self._say(f"{self._who}: {now - self._started:.0f} s, {what}")

    def _far(self) -> tuple[int, int]:
        """The step that the script is in, and the number of its ops so far."""
        words = self._progress.read_text().split() if self._progress.exists() else []
        return (int(words[0]), int(words[1])) if len(words) == 2 else (1, 0)  # else it is being written

    def _hang(self, idle: Idle, process: subprocess.Popen[bytes] | Fork) -> tuple[int, bool]:
        """End a script that hangs, and keep what is said about it. Returns its exit status, and True."""
        place, longest_s = idle.place(self._stack), self._asked["idle"]
        self._hangs = (
            f"{self.script.name} hangs in step {self._far()[0]}{f' at {place}' if place else ''} (it did nothing for "
            f"{longest_s:g} s, and was ended; --patience SECONDS waits longer)"
        )
        _end(process, KeyboardInterrupt())
        return process.wait(), True

    def _found(self) -> dict[str, Any]:
        """Read the outcome of the last run; empty if it wrote none."""
        found: dict[str, Any] = json.loads(self._outcome.read_text("utf-8")) if self._outcome.exists() else {}
        for kept, more in zip(self._apart, found.get("kept_apart", ((), ())), strict=True):
            kept.update(more)
        return found

    def _start(self, request: dict[str, Any], *, silent: bool) -> subprocess.Popen[bytes] | Fork:
        """Start the script's process."""
        sys.stdout.flush()
        out = subprocess.DEVNULL if self._quiet or silent else 2
        if self._interpreter is not None and not silent:
            return self._interpreter.start(self.script, request, self._request, self._environment, out)
        self._request.write_text(json.dumps(request), "utf-8")
        return subprocess.Popen(
            self.script.command(self._request),
            stdout=out,
            stderr=subprocess.DEVNULL if silent else None,
            env=self._environment,
            cwd=self.script.folder,
        )

    def _process(self, request: dict[str, Any], longest_s: float | None) -> tuple[int, bool]:
        """Run the script's process. Returns its exit status, and True if it had to be killed."""
        waits, silent = self._asked["keep_running"], longest_s is not None
        ends = None if longest_s is None else time.monotonic() + longest_s
        with self._start(request, silent=silent) as process:
            idle = Idle(process, self._asked["idle"])
            try:
                while True:
                    try:
                        return process.wait(_POLL_S), False
                    except subprocess.TimeoutExpired:
                        if self._graph.exists() and not (silent or waits) and ends is None:
                            ends = time.monotonic() + self._asked["patience"]
                        self._live()
                    if ends is None and not self._graph.exists() and idle.hangs(str(self._far())):
                        return self._hang(idle, process)
                    if ends is not None and time.monotonic() > ends:
                        process.kill()
                        return process.wait(), True
            except BaseException as error:
                _end(process, error)
                raise


def _end(process: subprocess.Popen[bytes] | Fork, why: BaseException) -> None:
    """End a process as this one is ended: by the signal that ``why`` names, and after a while for certain."""
    until = time.monotonic() + GRACE_S
    with contextlib.suppress(OSError):
        process.send_signal(signal_of(why))
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(KeyboardInterrupt):  # it is raised again and again
            time.sleep(0.05)
    process.kill()


@contextlib.contextmanager
def runs_of(
    script: Script,
    place: Place | None,
    asked: dict[str, Any],
    messages: Messages,
    interpreter: Interpreter | None = None,
    *,
    quiet: bool,
    say: Say = silent,
) -> Iterator[Runs]:
    """Have a folder for runs of ``script``, at its ``place`` among several processes, while active. They receive
    ``messages``, and the first sends some; they are forks of ``interpreter``, if there is one."""
    with tempfile.TemporaryDirectory(prefix="tensortide-") as folder:
        runs = Runs(script, place, asked, messages, Path(folder), interpreter, quiet=quiet, say=say)
        try:
            yield runs
        finally:
            runs.close()


def readings_in(outcome: dict[str, Any]) -> list[Reading]:
    """The values that a script read, as its ``outcome`` has them."""
    return [
        Reading(**each | {"place": ReadSite(*each["place"]), "use": Use(each["use"])}) for each in outcome["readings"]
    ]
