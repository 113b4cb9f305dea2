"""Many runs on all cores, kept in a file, so that an interrupted study goes on where it was. What comes of each depends
on nothing but its cell."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import TypeAlias

import msgspec

from tensortide.errors import OutputError, PlanError, PlanFileError
from tensortide.studies.remat.results import Cell, Run, Study, Trial
from tensortide.studies.remat.subject import Subject
from tensortide.units import format_bytes
from tensortide.versioned import Format, Head
from tensortide.write import check_writable, write_file

Job: TypeAlias = tuple[Subject, Cell]
Play: TypeAlias = Callable[[Sequence[Job]], list[Run]]
"""``play_all``, with options."""
_MOST_LIMIT = 1e6
Submit: TypeAlias = Callable[[Subject, Cell], "Future[Run]"]


def study(
    kind: str, panels: Sequence[str], places: Sequence[tuple[int, str, float, Subject, Cell]], play: Play
) -> Study:
    """Play the cells of ``places``, each with its panel, curve and place there. Raises PlanError if there are none."""
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
    saved: Saved | None = None,
    workers: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Run]:
    """The run of each of ``jobs``, in their order; those that ``saved`` has are taken from it, new ones are added.

    ``workers`` (default: one per core) at a time: the compiled engine in threads, the plain one, where there are
    several such runs, in processes; 1 plays everything here.

    Raises PlanError for an overhead limit that is none, and when a process is ended from outside.
    """
    for limit in {cell.overhead_limit for _, cell in jobs}:
        if not 1 <= limit <= _MOST_LIMIT:
            raise PlanError(
                f"an overhead limit is a number from 1, the step itself, to {_MOST_LIMIT:,.0f}, not {limit}"
            )
    say = progress or (lambda message: None)
    keys = [subject.key(cell) for subject, cell in jobs]
    found = {} if saved is None else {key: saved.runs[key] for key in keys if key in saved.runs}
    open_jobs = {key: job for key, job in zip(keys, jobs, strict=True) if key not in found}
    total = len(open_jobs)

    def finished(key: str, run: Run) -> None:
        found[key] = run
        if saved is not None:
            saved.add(key, run)
        subject, cell = open_jobs.pop(key)
        budget = format_bytes(cell.budget_bytes)
        say(f"{total - len(open_jobs)} of {total} runs; {subject.name}, {cell.policy} at {budget}")

    compiled = {key: job for key, job in open_jobs.items() if job[0].is_compiled(job[1])}
    plain = {key: job for key, job in open_jobs.items() if key not in compiled}
    cores = _cores() if workers is None else workers
    if compiled:
        say("loading the engine, which is compiled when it is first used: some 20 s, once")
        first, (subject, cell) = next(iter(compiled.items()))
        finished(first, subject.play(cell))
        del compiled[first]
    for some, pool in ((compiled, _threads), (plain, _processes)):
        if min(cores, len(some)) < 2:
            for key, (subject, cell) in some.items():
                finished(key, subject.play(cell))
            continue
        subjects = list(dict.fromkeys(subject for subject, _ in some.values()))
        with pool(min(cores, len(some)), subjects) as submit:
            futures = {submit(*job): key for key, job in some.items()}
            for future in as_completed(futures):
                finished(futures[future], future.result())
    return [found[key] for key in keys]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _threads(count: int, subjects: list[Subject]) -> Iterator[Submit]:
    del subjects
    executor = ThreadPoolExecutor(count)
    try:
        yield lambda subject, cell: executor.submit(subject.play, cell)
    finally:  # all is done, or the user has had enough
        executor.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _processes(count: int, subjects: list[Subject]) -> Iterator[Submit]:
    before = set(multiprocessing.active_children())
    numbers = {subject: number for number, subject in enumerate(subjects)}
    executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _enter, (subjects,))
    done = False
    try:
        yield lambda subject, cell: executor.submit(_play, numbers[subject], cell)
        done = True
    except BrokenProcessPool:
        raise PlanError(
            "a process that played runs was ended from outside, perhaps for want of memory.\n"
            "Run again with fewer --jobs; with --save, finished runs are kept."
        ) from None
    finally:
        executor.shutdown(wait=done, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()


_subjects: list[Subject] = []
"""The subjects whose runs this process plays."""


def _enter(subjects: list[Subject]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is for all: no words from each
    _subjects[:] = subjects


def _play(number: int, cell: Cell) -> Run:
    return _subjects[number].play(cell)


FORMAT = Format("runs", "tensortide remat runs", (1,), PlanFileError, "give --save the name of a new file")
_HEAD = Head(FORMAT.tag, FORMAT.version)


class _Entry(msgspec.Struct, frozen=True):
    """A line after the head."""

    key: str
    run: Run


class Saved:
    """Runs by the key of their cell, in a file of one JSON object per line; each is written as soon as it is there.

    A file that ends amid a line was cut off there: the line is dropped. Raises PlanFileError for a file of something
    else, and for a damaged one; OutputError where it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_writable(path)
        if self.path.exists() and not self.path.is_file():
            raise PlanFileError(f"{self.path} cannot hold runs: it is no ordinary file")
        self.runs: dict[str, Run] = {}
        data = FORMAT.read(self.path) if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and _line(_HEAD).startswith(data):
            whole = _line(_HEAD)
        self._read(whole)
        if whole != data:
            write_file(self.path, whole)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def _read(self, data: bytes) -> None:
        lines = data.split(b"\n")[:-1]
        FORMAT.check_head(self.path, lines[0] if lines else b"")
        decoder = msgspec.json.Decoder(_Entry)
        for number, line in enumerate(lines[1:], 2):
            try:
                entry = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise PlanFileError(
                    f"{self.path} is damaged in line {number}: {error}.\nDelete the line, or the file, and run again."
                ) from None
            self.runs[entry.key] = entry.run

    def add(self, key: str, run: Run) -> None:
        """Remember ``run``, here and in the file."""
        self.runs[key] = run
        try:
            os.write(self._file, _line(_Entry(key, run)))
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}.") from error

    def __enter__(self) -> Saved:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def _line(entry: Head | _Entry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"
