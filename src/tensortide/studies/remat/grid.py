"""Many runs on all cores or on a cluster, saved to a file from which an interrupted study resumes. The result of a run
depends on its cell alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tensortide.errors import MissingExtra, PlanError, PlanFileError
from tensortide.executors import SERIAL, Where, run_all
from tensortide.studies.finished import FinishedFile
from tensortide.studies.remat.results import Cell, Kind, Run, Study, Trial
from tensortide.studies.remat.subject import Subject
from tensortide.units import format_bytes
from tensortide.versioned import Format

Job: TypeAlias = tuple[Subject, Cell]
Play: TypeAlias = Callable[[Sequence[Job]], list[Run]]
"""``play_all``, with options."""
_MOST_LIMIT = 1e6


def study(
    kind: Kind, panels: Sequence[str], places: Sequence[tuple[int, str, float, Subject, Cell]], play: Play
) -> Study:
    """Play the cells of ``places``, each with its panel, curve and position on it. Raises PlanError without any."""
    if not places:
        raise PlanError("there is nothing to play")
    runs = play([(subject, cell) for *_, subject, cell in places])
    trials = (
        Trial(panel, curve, at, subject.step, cell, run)
        for (panel, curve, at, subject, cell), run in zip(places, runs, strict=True)
    )
    return Study(kind, tuple(panels), tuple(trials))


def play_all(
    jobs: Sequence[Job],
    *,
    saved: FinishedFile[Run] | None = None,
    where: Where = Where(),  # noqa: B008
    progress: Callable[[str], None] | None = None,
) -> list[Run]:
    """The run of each of ``jobs``, in their order; those that ``saved`` has are taken from it, new ones are added.

    On this machine the compiled engine plays in threads, the plain one in processes. Raises PlanError for an overhead
    limit that is none, RunError as ``executors.run_all``.
    """
    for limit in {cell.overhead_limit for _, cell in jobs}:
        if not 1 <= limit <= _MOST_LIMIT:
            raise PlanError(
                f"an overhead limit is a number from 1, the step itself, to {_MOST_LIMIT:,.0f}, not {limit}"
            )
    say = progress or (lambda message: None)
    keys = [subject.key(cell) for subject, cell in jobs]
    found = {} if saved is None else {key: saved.results[key] for key in keys if key in saved.results}
    open_jobs = {key: job for key, job in zip(keys, jobs, strict=True) if key not in found}
    total = len(open_jobs)

    def finished(key: str, run: Run) -> None:
        found[key] = run
        if saved is not None:
            saved.add(key, run)
        subject, cell = open_jobs.pop(key)
        budget = format_bytes(cell.budget_bytes)
        say(f"{total - len(open_jobs)} of {total} runs; {subject.name}, {cell.policy} at {budget}")

    for workers, some in _groups(open_jobs, where):
        if workers is SERIAL:  # the first compiled run, not a single worker that the caller asked for
            say("loading the engine, which is compiled when it is first used: some 20 s, once")
        subjects = list(dict.fromkeys(subject for subject, _ in some.values()))
        numbers = {subject: number for number, subject in enumerate(subjects)}
        cells = [(numbers[subject], cell, subject.is_compiled(cell)) for subject, cell in some.values()]
        played = [*some]
        for number, run in run_all(partial(_play, subjects), cells, workers):
            finished(played[number], run)
    return [found[key] for key in keys]


def _groups(jobs: Mapping[str, Job], where: Where) -> Iterator[tuple[Where, dict[str, Job]]]:
    """Divide ``jobs`` by their workers. A cluster plays all. On this machine runs of the compiled engine are played in
    threads (the first one alone, because it may trigger compilation), runs of the plain engine in processes."""
    if where.cluster is not None:
        yield where, dict(jobs)
        return
    compiled = {key: job for key, job in jobs.items() if job[0].is_compiled(job[1])}
    plain = {key: job for key, job in jobs.items() if key not in compiled}
    if compiled:
        first = next(iter(compiled))
        yield SERIAL, {first: compiled.pop(first)}
    yield replace(where, kind="threads"), compiled
    yield replace(where, kind="processes"), plain


def _play(subjects: Sequence[Subject], job: tuple[int, Cell, bool]) -> Run:
    """Play a cell of one of ``subjects``. Raises MissingExtra if the engine is not the one that was asked for."""
    number, cell, compiled = job
    subject = subjects[number]
    if subject.is_compiled(cell) != compiled:
        raise MissingExtra(
            "a worker lacks Numba, with which runs are compiled on this machine: pip install 'tensortide[remat]' there."
        )
    return subject.play(cell)


FORMAT = Format("runs", "tensortide remat runs", (1,), PlanFileError, "give --save the name of a new file")


def finished_runs(path: str | os.PathLike[str]) -> FinishedFile[Run]:
    """The file of finished runs at ``path``, by the key of their cell."""
    return FinishedFile(path, FORMAT, Run, "run")
