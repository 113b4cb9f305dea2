"""An experiment run: trials in processes of their own, results kept as they end, a page of how far it is."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import get_args

import msgspec

from tensortide.errors import ExitStatus, OutputError
from tensortide.executors import Where, run_all
from tensortide.graph.file import SUFFIX
from tensortide.progress import Say, silent
from tensortide.shown import Shown
from tensortide.studies.experiment.grammar import Experiment
from tensortide.studies.experiment.results import Outcome, ResultFile, Status
from tensortide.studies.experiment.summary import Line, lines
from tensortide.studies.experiment.supervise import Supervisor, silent_beat
from tensortide.studies.experiment.trials import NONE, Trial
from tensortide.studies.experiment.ways import Asked
from tensortide.timing.lock import only_one

LOG = logging.getLogger("tensortide")
WIDE = 160
"""Most characters of a reason in a line."""
PAGE_S = 5.0
"""Seconds from one page to the next, at the least."""
PAGE_SHARE = 0.04
"""Most of the time of a processor that pages take: those of 10,000 trials take a second, beside live ones."""
_LOGS, _CAPTURES = "logs", "captures"
Drawn = Callable[["Conducted"], None]
"""Writes the page of an experiment, which need not have ended."""


@dataclass(frozen=True, eq=False, repr=False)
class Conducted(Shown):
    """An experiment with the outcomes of its trials by key, in ``folder``: all, or those so far."""

    SECTION = "trials"

    experiment: Experiment
    folder: Path
    trials: Mapping[str, Trial]
    outcomes: Mapping[str, Outcome]
    states: Mapping[str, int] = field(default_factory=dict)
    """Repetitions that have ended of each trial that runs."""

    @property
    def lines(self) -> list[Line]:
        """The statistics of each trial."""
        return lines(self.trials, self.outcomes, self.states)

    @property
    def own(self) -> list[Outcome]:
        """The outcomes of the trials of the experiment; its folder may have those of others."""
        return [self.outcomes[key] for key in self.trials if key in self.outcomes]

    @property
    def status(self) -> ExitStatus:
        """The answer to whether all trials ran: that budgets were too small is known only if nothing else failed."""
        failures = [one.ends_with() for one in self.own if not one.is_answer]
        return ExitStatus.of_all(failures or [one.ends_with() for one in self.own])

    @property
    def summary(self) -> str:
        """Count the trials by how they ended, in a line."""
        begun = sum(key in self.trials and key not in self.outcomes for key in self.states)
        return _summed(len(self.trials), Counter(one.status for one in self.own), begun)


def _summed(trials: int, ended: Mapping[Status, int], begun: int) -> str:
    """Count ``trials`` by how they ended, in a line; ``begun`` of them run."""
    parts = [f"{count} {status}" for status in get_args(Status) if (count := ended.get(status, 0))]
    left = trials - sum(ended.values()) - begun
    parts += [f"{begun} running"] * (begun > 0) + [f"{left} not run"] * (left > 0)
    return f"{trials} trials: " + ", ".join(parts)


@dataclass
class _Run:
    """A run of an experiment: its trials and what has come of them."""

    experiment: Experiment
    folder: Path
    trials: dict[str, Trial]
    results: ResultFile
    outcomes: dict[str, Outcome]
    draw: Drawn
    say: Say
    digest: str
    supervisor: Supervisor = field(default_factory=Supervisor)
    stopped: bool = False
    changed: threading.Event = field(default_factory=threading.Event)
    ended: Counter[Status] = field(default_factory=Counter)
    """The trials that have an outcome, counted as they end: each is told in a line."""

    def __post_init__(self) -> None:
        self.ended.update(self.outcomes[key].status for key in self.trials if key in self.outcomes)

    def made(self) -> Conducted:
        """All so far."""
        return Conducted(self.experiment, self.folder, self.trials, self.outcomes, {**self.supervisor.running})

    def wave(self, keys: Iterable[str]) -> None:
        """Run the trials called ``keys`` whose baselines are known, where they need them, and keep each that ends."""
        asked = [(key, self._asked(key)) for key in keys if key not in self.outcomes]
        ready = [(key, one) for key, one in asked if one is not None]
        where = Where(self.experiment.jobs, kind="threads", cluster=self.experiment.cluster, retries=0)
        beat = self.beat if where.cluster is None else silent_beat
        logs = self.folder.resolve() / _LOGS
        work = partial(_run_one, supervisor=self.supervisor, logs=logs, folder=Path.cwd(), beat=beat)
        for index, outcome in run_all(work, ready, where, lambda: self.stopped):
            self._ended(ready[index][0], outcome)

    def _asked(self, key: str) -> Asked | None:
        """The trial with its budget in bytes; None if that depends on a baseline that failed, which is told."""
        trial = self.trials[key]
        base = self.outcomes.get(trial.baseline.key) if trial.policy != NONE else None
        peak = None if base is None or base.status != "ok" else base.peak_bytes
        if trial.budget is None or (trial.rival is not None and not trial.has_limit):
            nbytes = None
        elif trial.budget.nbytes is None and peak is None:
            self._failed_with(key, trial, base)
            return None
        else:
            nbytes = trial.budget.bytes_of(peak or 0)
        folder = self.folder.resolve()
        return Asked(
            trial=trial,
            budget_bytes=nbytes,
            baseline_bytes=peak,
            step="" if base is None else base.step,
            capture=str(folder / _CAPTURES / f"{trial.baseline.key}{SUFFIX}"),
            log=str(folder / _LOGS / f"{key}.log") if trial.save_log else "",
        )

    def _failed_with(self, key: str, trial: Trial, base: Outcome | None) -> None:
        reason = "a ratio needs the peak of its baseline, which " + ("did not run" if base is None else "failed")
        ends = ExitStatus.CANNOT if base is None else base.exit_status
        self.outcomes[key] = Outcome(trial=trial, status="failed", reason=reason, exit_status=int(ends))
        self.ended["failed"] += 1
        LOG.warning("%s: %s", trial.name, reason)

    def _ended(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome, on the disk first."""
        outcome = msgspec.structs.replace(outcome, experiment=self.digest)
        self.results.add(key, outcome)
        self.outcomes[key] = outcome
        self.ended[outcome.status] += 1
        if outcome.status != "ok":
            more = "" if outcome.is_answer else f" (more in {self.folder / _LOGS / key}.txt)"
            LOG.warning("%s: %s: %s%s", self.trials[key].name, outcome.status, shorten(outcome.reason, WIDE), more)
        self.stopped |= self.experiment.stop_on_error and not outcome.is_answer
        self.beat()

    def beat(self) -> None:
        """Say what has ended and which trial has run longest; the page follows."""
        now = [(key, count) for key, count in {**self.supervisor.running}.items() if key not in self.outcomes]
        text = _summed(len(self.trials), self.ended, len(now))
        for key, count in now[:1]:
            text += f"; {self.trials[key].name}" + (f", {count} done" if count else "")
        self.say(text)
        self.changed.set()

    @contextlib.contextmanager
    def pages(self) -> Iterator[None]:
        """Have the page follow what changes, in a thread: trials do not wait for it."""
        over = threading.Event()

        def follow() -> None:
            while self.changed.wait() and not over.is_set():
                self.changed.clear()
                began = time.thread_time()
                self.page()
                over.wait(max(PAGE_S, (time.thread_time() - began) / PAGE_SHARE))

        thread = threading.Thread(target=follow, daemon=True)
        self.page()
        thread.start()
        try:
            yield
        finally:
            over.set()
            self.changed.set()
            thread.join()
            self.page()

    def page(self) -> None:
        """Write the page; that it cannot be written is no reason to end trials."""
        try:
            self.draw(self.made())
        except OutputError as error:
            LOG.warning("%s", error)


def _run_one(
    one: tuple[str, Asked], *, supervisor: Supervisor, logs: Path, folder: Path, beat: Callable[[], None]
) -> Outcome:
    """Run a trial as the caller would, perhaps on another machine."""
    return supervisor.run(one[1], logs / f"{one[0]}.txt", folder, beat)


def conduct(
    experiment: Experiment,
    folder: Path,
    *,
    retry_failed: bool = False,
    draw: Drawn = lambda so_far: None,
    say: Say = silent,
) -> Conducted:
    """Run the trials that have no result in ``folder`` yet, baselines first, with ``retry_failed`` also those that
    failed there; ``draw`` writes the page as trials begin and end.

    What fails in a trial is told in one line, and the others go on. Raises OutputError once a result cannot be kept,
    CaptureError if another process runs trials in the folder.
    """
    held = only_one(folder / _LOGS / ".lock", f"running an experiment in {folder}")
    with held, contextlib.closing(ResultFile(folder)) as results:
        known = results.latest()
        outcomes = {key: one for key, one in known.items() if one.is_answer or not retry_failed}
        trials = {trial.key: trial for trial in experiment.trials}
        run = _Run(experiment, folder, trials, results, outcomes, draw, say, experiment.digest)
        try:
            with run.pages(), run.supervisor:
                run.wave(key for key, trial in trials.items() if trial.policy == NONE)
                run.wave(key for key, trial in trials.items() if trial.policy != NONE)
        except KeyboardInterrupt:
            LOG.info(
                "results of %d of %d trials are kept in %s: the same command runs the others",
                run.ended.total(),
                len(trials),
                folder,
            )
            raise
        return Conducted(experiment, folder, trials, run.outcomes)


def notify(found: Conducted) -> None:
    """Run the command of the user's own, which finds the folder, the summary and the status in its environment."""
    command = found.experiment.notify
    if not command:
        return
    told = {
        "TENSORTIDE_EXPERIMENT": found.experiment.name,
        "TENSORTIDE_FOLDER": str(found.folder),
        "TENSORTIDE_SUMMARY": found.summary,
        "TENSORTIDE_STATUS": str(int(found.status)),
    }
    try:
        ended = subprocess.run(command, env={**os.environ, **told}, check=False).returncode
    except OSError as error:
        LOG.warning("notify: cannot run %s: %s", command[0], error.strerror or error)
    else:
        if ended:
            LOG.warning("notify: %s ended with %d", command[0], ended)
