"""Algorithms against each other: problems x algorithms x seeds at an equal budget, side by side, resumable."""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tensortide.errors import PlacementError
from tensortide.executors import Where, run_all
from tensortide.placements.search import Search, algorithm
from tensortide.studies.placement.placed_net import PlacementRequest, place
from tensortide.write import write_file


@dataclass(frozen=True)
class Contender:
    """An algorithm with options; ``label`` is its name and the options that differ from others."""

    label: str
    search: Search


@dataclass(frozen=True)
class Task:
    """One search of a comparison."""

    problem: str
    request: PlacementRequest
    contender: Contender
    budget: int
    seed: int


class FinishedSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task, as the file of finished ones has it; ``key`` is a digest of everything it depends on.

    ``history``: proposals and score, ms, at each improvement.
    """

    key: str
    problem: str
    algorithm: str
    seed: int
    score_ms: float
    fits: bool
    bound_ms: float
    evaluations: int
    proposals: int
    cpu_s: float
    placement: tuple[int, ...]
    history: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class SeedRuns:
    """All seeds of one algorithm on one problem."""

    problem: str
    algorithm: str
    outcomes: tuple[FinishedSearch, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.scores)

    @property
    def scores(self) -> list[float]:
        """Scores of all seeds, ms."""
        return [outcome.score_ms for outcome in self.outcomes]

    @property
    def gap(self) -> float | None:
        """Share by which the best score may exceed the optimum; None without a bound, or if the best does not fit."""
        best = min(self.outcomes, key=lambda outcome: outcome.score_ms)
        bound = self.outcomes[0].bound_ms
        return best.score_ms / bound - 1 if bound and best.fits else None


def contenders(names: Sequence[str], grid: Sequence[str] = ()) -> tuple[Contender, ...]:
    """The algorithms ``names``, each with every combination of the values in ``grid``: ``population=20,50``.

    Raises PlacementError for an algorithm, option or value that there is not.
    """
    axes = []
    for text in grid:
        name, equals, values = text.partition("=")
        if not equals:
            raise PlacementError(f"options to compare are written name=value,value, not {text!r}.")
        axes.append([(name.strip(), value.strip()) for value in values.split(",")])
    found = []
    for name in names:
        for combination in itertools.product(*axes):
            label = " ".join([name, *(f"{key}={value}" for key, value in combination)])
            found.append(Contender(label, algorithm(name, dict(combination))))
    return tuple(found)


def compare(
    tasks: Sequence[Task],
    where: Where = Where(),  # noqa: B008
    *,
    saved: Path | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[SeedRuns, ...]:
    """Carry out ``tasks``; those in the file ``saved`` are not repeated, and new ones are appended as they end.

    ``watch`` is told how many of how many have ended.
    """
    keys = [_key(task) for task in tasks]
    known = {outcome.key: outcome for outcome in _read(saved)} if saved else {}
    new = [number for number, key in enumerate(keys) if key not in known]
    for count, (place_, outcome) in enumerate(run_all(_carried_out, [tasks[number] for number in new], where)):
        key = keys[new[place_]]
        known[key] = msgspec.structs.replace(outcome, key=key)
        if saved:
            _append(saved, known[key])
        watch(len(keys) - len(new) + count + 1, len(keys))
    return tuple(_lines([known[key] for key in keys], tasks))


def _carried_out(task: Task) -> FinishedSearch:
    placed = place(task.request, task.contender.search, task.budget, task.seed)
    found = placed.found
    return FinishedSearch(
        key="",
        problem=task.problem,
        algorithm=task.contender.label,
        seed=task.seed,
        score_ms=found.score_ms,
        fits=placed.run.fits,
        bound_ms=found.bound_ms if found.proved else placed.request.problem()[1].bounds().best_ms,
        evaluations=found.evaluations,
        proposals=found.proposals,
        cpu_s=found.cpu_s,
        placement=placed.placement,
        history=tuple((one.proposals, one.score_ms) for one in found.history),
    )


def _key(task: Task) -> str:
    problem = task.request.problem()[1]
    parts = (problem.digest, repr(task.contender.search), task.budget, task.seed)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _read(path: Path) -> Iterator[FinishedSearch]:
    """Read finished tasks. A stopped program leaves its last line cut off: that task is carried out again."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines):
        try:
            yield msgspec.json.decode(line, type=FinishedSearch)
        except msgspec.MsgspecError as error:
            if number < len(lines) - 1:
                raise PlacementError(f"{path}:{number + 1} is no finished search: {error}") from error
            write_file(path, b"".join(whole + b"\n" for whole in lines[:-1]))


def _append(path: Path, outcome: FinishedSearch) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(outcome) + b"\n")


def _lines(outcomes: Sequence[FinishedSearch], tasks: Sequence[Task]) -> Iterator[SeedRuns]:
    groups: dict[tuple[str, str], list[FinishedSearch]] = {}
    for task, outcome in zip(tasks, outcomes, strict=True):
        groups.setdefault((task.problem, task.contender.label), []).append(outcome)
    for (problem, label), found in groups.items():
        yield SeedRuns(problem, label, tuple(found))
