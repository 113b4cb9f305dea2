"""Results of trials, and the file of a folder that keeps them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from tensortide.errors import ExitStatus, RequestError
from tensortide.shown import Show
from tensortide.studies.experiment.trials import Trial
from tensortide.studies.finished import FinishedFile
from tensortide.versioned import Format

Status: TypeAlias = Literal["ok", "infeasible", "failed", "timeout", "killed"]
"""``infeasible``: the budget is too small; ``failed``: an error; ``timeout``: it took longer than it may, or its
heartbeat failed to come; ``killed``: its process ended by itself, perhaps by a signal."""
RESULTS = "results.jsonl"
"""The file of finished trials in the folder of results."""
FORMAT = Format("trials", "tensortide trials", (1,), RequestError, "give --out another folder")


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition: the times of its steps, their peak, and under a budget what eviction did in a step; of a
    simulation where its durations of ops are from."""

    times_ns: tuple[int, ...]
    peak_bytes: Annotated[int, Show("Peak")]
    evictions: Annotated[int | None, Show("evictions")] = None
    recomputations: Annotated[int | None, Show("recomputed ops")] = None
    evaluations: Annotated[int | None, Show("candidates looked at")] = None
    base_ns: Annotated[int | None, Show("ops of the program")] = None
    recomputation_ns: Annotated[int | None, Show("recomputation")] = None
    search_ns: Annotated[int | None, Show("making room")] = None
    durations: Annotated[str, Show("durations of ops")] = ""

    @property
    def step_ns(self) -> Annotated[int, Show("Step")]:
        """The median of its steps."""
        return int(statistics.median(self.times_ns))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a trial, and its figures.

    ``process_peak_bytes``: the most memory that its process had, as its parent saw it; ``process_start_bytes``: that
    before the first repetition. ``exit_status``: that of its error. ``experiment``: digest of all trials of the
    experiment that it was run for. ``step``: of a simulated baseline the digest of its step, by ``digest_of``.
    """

    trial: Trial
    status: Annotated[Status, Show("Status")]
    reason: Annotated[str, Show("Reason", fold=True)] = ""
    exit_status: int = 0
    budget_bytes: Annotated[int | None, Show("Budget")] = None
    batch: Annotated[int | None, Show("batch")] = None
    repetitions: tuple[Repetition, ...] = ()
    process_start_bytes: Annotated[int | None, Show("process before")] = None
    process_peak_bytes: Annotated[int | None, Show("process")] = None
    attempts: Annotated[int, Show("attempts")] = 1
    began: str = ""
    took_s: Annotated[float, Show("took")] = 0.0
    experiment: str = ""
    step: str = ""

    @property
    def is_answer(self) -> bool:
        """True if running it again would bring nothing else: it ran, or its budget is too small."""
        return self.status in ("ok", "infeasible")

    @property
    def peak_bytes(self) -> int | None:
        """The highest peak of all repetitions; None without any."""
        return max((one.peak_bytes for one in self.repetitions), default=None)

    def ends_with(self) -> ExitStatus:
        """The status that stands for it."""
        return ExitStatus(self.exit_status)


class ResultFile:
    """The finished trials of a folder, each by its key. A trial that was repeated because it had failed has several
    results, of which the last counts."""

    def __init__(self, folder: Path) -> None:
        self._file = FinishedFile(folder / RESULTS, FORMAT, Outcome, "outcome", sync=True)
        self._numbers: dict[str, int] = {}
        for known in self._file.results:
            key, _, number = known.partition("#")
            self._numbers[key] = max(int(number or 0), self._numbers.get(key, 0))

    def latest(self) -> dict[str, Outcome]:
        """The last result of each trial, by its key."""
        return {key.partition("#")[0]: outcome for key, outcome in self._file.results.items()}

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep the result of a trial, on the disk. Raises OutputError."""
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        self._file.add(f"{key}#{number}" if number else key, outcome)

    def close(self) -> None:
        """Release the file."""
        self._file.__exit__(None, None, None)


class _Entry(msgspec.Struct):
    """A line of the file."""

    key: str
    outcome: Outcome


def read_results(folder: Path) -> Mapping[str, Outcome]:
    """The last result of each trial in a folder that is left as it is. Raises RequestError if there are none."""
    path = folder / RESULTS
    if not path.is_file():
        raise RequestError(f"{folder} has no results of an experiment: there is no {RESULTS} in it")
    lines = FORMAT.read(path).split(b"\n")
    FORMAT.check_head(path, lines[0])
    found: dict[str, Outcome] = {}
    for line in lines[1:-1]:
        one = FORMAT.decode(path, lambda line=line: msgspec.json.decode(line, type=_Entry))  # type: ignore[misc]
        found[one.key.partition("#")[0]] = one.outcome
    return found
