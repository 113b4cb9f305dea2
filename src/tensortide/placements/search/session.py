"""One run of a search: its budget, its counts, the best placement ever seen, and what a later run can resume from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from tensortide.compiled import compiling_s
from tensortide.errors import PlacementError
from tensortide.placements.annealing.table import Table, find, first_of, new_table, number_all, with_room
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.bounds import Bounds
from tensortide.placements.genes import Sharing, devices_of
from tensortide.placements.problem import Problem
from tensortide.placements.search.checkpoint import Checkpoint
from tensortide.search_limit import SearchLimit
from tensortide.shown import Show

_WORTH_A_THREAD_S = 0.0005
"""Time of an evaluation above which it is shared out among threads."""


@dataclass(frozen=True)
class Budget:
    """Limits of a search; the first that is reached ends it.

    ``proposals``: candidates that the algorithm proposes, repeated ones too. ``evaluations``: distinct placements that
    are simulated (None: as many as proposals). ``wall_s`` does not count the time in which functions are compiled, once
    on a machine. A run that ends by ``wall_s`` or ``cpu_s`` depends on the speed of the machine; others do not.
    """

    proposals: int = 20_000
    evaluations: int | None = None
    wall_s: float | None = None
    cpu_s: float | None = None

    def __post_init__(self) -> None:
        if self.proposals < 1 or (self.evaluations is not None and self.evaluations < 1):
            raise PlacementError("a search needs a budget of at least one placement.")
        if min(self.wall_s or 0, self.cpu_s or 0) < 0:
            raise PlacementError("a time limit of a search is not below 0 s.")

    @property
    def is_timed(self) -> bool:
        """True if time may end the search."""
        return self.wall_s is not None or self.cpu_s is not None


class Ended(Exception):
    """The search is over. The message says by what: "budget", "time", "interrupted" or "proved"."""


@dataclass(frozen=True)
class Improvement:
    """A placement better than all before: after how many proposals and evaluations, and its score."""

    proposals: int
    evaluations: int
    score_ms: float


@dataclass(frozen=True)
class Progress:
    """State of a running search, for whoever watches it."""

    proposals: int
    evaluations: int
    score_ms: float
    over_bytes: float
    bound_ms: float
    improved: bool


@dataclass(frozen=True)
class Generation:
    """One generation of a population: best and mean score, mean share of genes that differ, and the best placement."""

    proposals: int
    best_ms: float
    mean_ms: float
    diversity: float
    best: tuple[int, ...]


@dataclass(frozen=True)
class Elite:
    """The best placement of one cell of an archive."""

    cell: tuple[float, ...]
    score_ms: float
    placement: tuple[int, ...]


@dataclass
class Notes:
    """Results of an algorithm besides its best placement.

    ``last`` state and its score; ``generations``, and the last ``population``; the last ``archive``, and earlier
    ``archives`` after so many steps; ``proved``: the best is optimal.
    """

    last: tuple[tuple[int, ...], float] | None = None
    generations: list[Generation] = field(default_factory=list)
    archive: tuple[Elite, ...] = ()
    archives: list[tuple[int, tuple[Elite, ...]]] = field(default_factory=list)
    population: tuple[tuple[int, ...], ...] = ()
    proved: bool = False


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    ``evaluations`` are distinct simulations, ``proposals`` all candidates. ``bound_ms`` is a lower bound on every
    placement's score, ``gap_share`` the share by which the score may exceed the optimum: 0 where it is ``proved``.
    ``single_ms`` is the best score of a single device, None if none fits the memory. ``none_fits``: every placement was
    simulated, and none fits. ``unsaved`` says why the file to resume from could not be written; "" if it was, or none
    is kept.
    """

    placement: tuple[int, ...]
    score_ms: float
    over_bytes: float
    evaluations: Annotated[int, Show("Simulated")]
    proposals: int
    resumed: Annotated[int, Show("read from the file of an earlier run", level=1)]
    seed: int
    ended: str
    bound_ms: float
    gap_share: float
    proved: bool
    single_ms: float | None
    history: tuple[Improvement, ...]
    notes: Notes
    cpu_s: float
    none_fits: bool = False
    unsaved: str = ""

    @property
    def bound_ns(self) -> Annotated[int, Show("No placement takes less than", level=1)]:
        """The lower bound in nanoseconds."""
        return round(self.bound_ms * 1e6)


class Session:
    """Everything an algorithm may ask while it runs.

    A placement is simulated once, however often it is proposed: ``seen`` has all of them, ``known`` those of the file.
    ``allowed`` are the devices that placements may use, ``pins`` [k, 2] genes with their device, ``free`` the others.
    ``sharing``: that of genes among devices, None if the search shares none.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        seed: int,
        *,
        allowed: Sequence[int] | None = None,
        threads: int = 1,
        watch: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        checkpoint: Checkpoint | None = None,
        shares: bool = False,
    ) -> None:
        if threads < 1:
            raise PlacementError(f"a search in {threads} threads: at least one is needed.")
        self.problem, self.budget, self.seed = problem, budget, seed
        self.genes = len(problem.names)
        self.allowed: Ints = np.array(range(problem.devices) if allowed is None else sorted(set(allowed)), np.int64)
        if not len(self.allowed) or self.allowed[0] < 0 or self.allowed[-1] >= problem.devices:
            raise PlacementError(
                f"the devices of a search are of 0 to {problem.devices - 1}, not {list(self.allowed)}."
            )
        self._pinned = np.array([*problem.pins], np.int64), np.array([*problem.pins.values()], np.int64)
        if not np.isin(self._pinned[1], self.allowed).all():
            raise PlacementError(f"a gene is pinned to a device that is not of those allowed, {list(self.allowed)}.")
        self.pins: Ints = np.stack(self._pinned, axis=1)
        self.free: Ints = np.setdiff1d(np.arange(self.genes), self._pinned[0])
        self.rng = np.random.default_rng(seed)
        self.sharing: Sharing | None = problem.sharing if shares else None
        if shares and self.sharing is None:
            raise PlacementError("devices share layers of networks alone: set sharing_rate to 0 for any other target.")
        self.bounds: Bounds = self.sharing.bounds if self.sharing else problem.bounds
        self.proposals = self.evaluations = 0
        self.best: Placements = np.full(self.genes, self.allowed[0])
        self.best_ms, self.best_over = float("inf"), 0.0
        self.notes = Notes()
        self.history: list[Improvement] = []
        self.single_ms: float | None = None
        self.seen = new_table(self.genes)
        self.known = new_table(self.genes, 1)
        if checkpoint:
            self.known = checkpoint.read(self.genes, problem.devices, shared=self.sharing is not None)
        self._checkpoint, self._watch, self._stop = checkpoint, watch, stop
        self.resumed = 0
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.threads = threads
        self._row_s = 0.0
        self._began, self._cpu_began = self._clock_s(), time.process_time()

    def score(self, placements: Placements) -> Floats:
        """Return the scores [k] of ``placements`` [k, genes], ms with penalty. Raises Ended as ``measure``."""
        return self.measure(placements)[0]

    def measure(self, placements: Placements) -> tuple[Floats, Floats]:
        """Return the scores [k] and over-use [k], bytes, of ``placements`` [k, genes], pins kept.

        Raises Ended when the budget is spent: those of ``placements`` that it still covered have counted.
        """
        self.check()
        rows = np.ascontiguousarray(self.pinned(placements[: self.left]), np.int64)
        numbers = np.empty(len(rows), np.int64)
        self.seen = with_room(self.seen, len(rows))
        most = self.budget.evaluations
        first, room = int(self.seen.size[0]), len(rows) if most is None else most - self.evaluations
        rows = rows[: number_all(self.seen, rows, numbers, room)]
        numbers = numbers[: len(rows)]
        self._simulate(first)
        self._note(rows, numbers, first)
        if len(rows) < len(placements):
            raise Ended("budget")
        return self.seen.scores[numbers], self.seen.over[numbers]

    def pinned(self, placements: Placements) -> Placements:
        """Return ``placements`` [k, genes] with the device of every pinned gene."""
        genes, devices = self._pinned
        if not len(genes):
            return placements
        found = placements.copy()
        found[:, genes] = devices
        return found

    def result(self, ended: str) -> SearchResult:
        """Make the result, and write what a later run resumes from: all of the file, and what this run added."""
        if self._checkpoint:
            self._checkpoint.write([self.known, self.seen])
        self._take_best_known()
        if self.pool:
            self.pool.shutdown()
        proved = self.notes.proved or self._is_at_bound
        return SearchResult(
            placement=tuple(map(int, self.best)),
            score_ms=self.best_ms,
            over_bytes=self.best_over,
            evaluations=self.evaluations,
            proposals=self.proposals,
            resumed=self.resumed,
            seed=self.seed,
            ended="proved" if proved else ended,
            bound_ms=self.best_ms if proved else self.bounds.best_ms,
            gap_share=0.0 if proved else self.bounds.gap(self.best_ms),
            proved=proved,
            single_ms=self.single_ms,
            history=tuple(self.history),
            notes=self.notes,
            cpu_s=time.process_time() - self._cpu_began,
            none_fits=self._none_fits,
            unsaved=self._checkpoint.unsaved if self._checkpoint else "",
        )

    def end_at_bound(self) -> None:
        """Raise Ended if the best placement is as good as the bound: none is better."""
        if self._is_at_bound:
            raise Ended("proved")

    @property
    def _none_fits(self) -> bool:
        """True if every placement was simulated and none fits. A proof that the best is optimal is not enough: another
        one may fit and have a larger score."""
        simulated = int(self.seen.size[0])
        every = len(self.allowed) ** len(self.free)
        return self.sharing is None and simulated >= every and bool((self.seen.over[:simulated] > 0).all())

    @property
    def _is_at_bound(self) -> bool:
        return self.best_ms <= self.bound_ms

    @property
    def bound_ms(self) -> float:
        """Score at which a placement counts as optimal: the bound, and what rounding may add."""
        return self.bounds.best_ms * (1 + 1e-12)

    def random(self, count: int) -> Placements:
        """Draw ``count`` placements [count, genes], each gene uniform over the devices allowed."""
        return self.allowed[self.rng.integers(len(self.allowed), size=(count, self.genes))]

    def uniform(self) -> Placements:
        """The placements [devices allowed, genes] with everything on one device."""
        return np.repeat(self.allowed[:, None], self.genes, axis=1)

    @property
    def left(self) -> int:
        """Proposals that the budget still covers."""
        return self.budget.proposals - self.proposals

    def check(self) -> None:
        """Raise Ended where the budget, the time or the patience of the user is at its end."""
        budget = self.budget
        if self._stop is not None and self._stop():
            raise Ended("interrupted")
        if self.proposals >= budget.proposals:
            raise Ended("budget")
        if budget.evaluations is not None and self.evaluations >= budget.evaluations:
            raise Ended("budget")
        if budget.wall_s is not None and self._clock_s() - self._began >= budget.wall_s and self.proposals:
            raise Ended("time")
        if budget.cpu_s is not None and time.process_time() - self._cpu_began >= budget.cpu_s and self.proposals:
            raise Ended("time")

    def limit(self, work: float = math.inf) -> SearchLimit:
        """The time that is left as a limit, with so much ``work``."""
        wall_s = self.budget.wall_s
        seconds = math.inf if wall_s is None else wall_s - (self._clock_s() - self._began)
        return SearchLimit(work=work, seconds=seconds, clock=self._clock_s)

    @staticmethod
    def _clock_s() -> float:
        """A clock that stands still while functions are compiled."""
        return time.monotonic() - compiling_s()

    def _simulate(self, first: int) -> None:
        """Score the placements from number ``first`` on, which were not seen before."""
        seen, last = self.seen, int(self.seen.size[0])
        rows = seen.rows[first:last].astype(np.int64)
        known = np.full(len(rows), -1)
        if self.known.size[0]:
            known = np.array([find(self.known, row) for row in rows], np.int64)
        taken, missing = first + np.flatnonzero(known >= 0), first + np.flatnonzero(known < 0)
        seen.scores[taken], seen.over[taken] = (
            self.known.scores[known[known >= 0]],
            self.known.over[known[known >= 0]],
        )
        if not len(missing):
            self.resumed += len(taken)
            return
        try:
            seen.scores[missing], seen.over[missing] = self._evaluated(rows[known < 0])
        except BaseException:  # Ctrl-C: what was not simulated was not seen
            self.seen = first_of(seen, first)
            raise
        self.resumed += len(taken)
        self.keep([])

    def keep(self, more: Sequence[Table]) -> None:
        """Write what was simulated, ``more`` included, if a file is kept and the last time was long ago."""
        if self._checkpoint:
            self._checkpoint.write_sometimes([self.known, self.seen, *more])

    def _take_best_known(self) -> None:
        """Take over the best placement of an earlier run, where this one ended before it came as far."""
        known = self.known
        for number in np.argsort(known.scores[: int(known.size[0])], kind="stable").tolist():
            row, score = known.rows[number].astype(np.int64), float(known.scores[number])
            if score >= self.best_ms:
                return
            if np.isin(
                [one for gene in row.tolist() for one in devices_of(gene, self.problem.devices)], self.allowed
            ).all():
                self.take(row, score, float(known.over[number]), self.proposals, self.evaluations)
                return

    def _evaluated(self, rows: Placements) -> tuple[Floats, Floats]:
        """Evaluate ``rows``, in threads where there is a pool; the result does not depend on their number."""
        if self.pool is None or len(rows) < 2 or len(rows) * self._row_s < _WORTH_A_THREAD_S:
            began = time.perf_counter()
            found = self.problem.evaluate(rows)
            self._row_s = (time.perf_counter() - began) / len(rows)
            return found
        parts = [*self.pool.map(self.problem.evaluate, np.array_split(rows, min(self.threads, len(rows))))]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _note(self, rows: Placements, numbers: Ints, first: int) -> None:
        """Count ``rows`` and take over the best of them."""
        improved, before = False, self.evaluations
        for row, number in zip(rows, numbers.tolist(), strict=True):
            self.proposals += 1
            self.evaluations = max(self.evaluations, before + number + 1 - first)
            score = float(self.seen.scores[number])
            if score < self.best_ms:
                self.take(row.copy(), score, float(self.seen.over[number]), self.proposals, self.evaluations)
                improved = True
        self.report(improved, self.proposals, self.evaluations, self.best_ms, self.best_over)

    def take(self, row: Placements, score: float, over: float, proposals: int, evaluations: int) -> None:
        """Take over a placement that is better than all before, and the counts at which it was found."""
        self.best, self.best_ms, self.best_over = row, score, over
        self.history.append(Improvement(proposals, evaluations, score))

    def report(self, improved: bool, proposals: int, evaluations: int, score: float, over: float) -> None:
        """Tell whoever watches how far the search is."""
        if self._watch is not None:
            self._watch(Progress(proposals, evaluations, score, over, self.bounds.best_ms, improved))
