"""Chains of annealing side by side: run in pieces, so that time limits, files and Ctrl-C are heeded meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import wait

import numpy as np

from tensortide.placements.annealing.chain import (
    BEST_MS,
    BEST_OVER,
    BOUND,
    COLD,
    DRAWN,
    ENERGY,
    EVALUATED,
    HOT,
    IMPROVED,
    MOST,
    PENALTY,
    REDRAWS,
    ROOM,
    SCREENS,
    SOFTENING,
    STATE_ESTIMATE,
    STEP,
    STEPS,
    Chain,
    estimated_energy,
)
from tensortide.placements.annealing.estimate import Estimate, fresh
from tensortide.placements.annealing.moves import Neighbourhood
from tensortide.placements.annealing.table import Table, append, merge, new_table, with_room
from tensortide.placements.arrays import Placements
from tensortide.placements.search.groups import base_of
from tensortide.placements.search.session import Session

SCREENINGS = 3
"""Draws of a chain that screens, as a multiple of those of others."""
_PIECE_S = 0.05
"""Seconds that a piece of a chain takes, about."""
_FIRST = 16
"""Steps of the first piece."""
_LARGEST = 1 << 16
_POOL = 8192
"""Random numbers drawn at a time."""


class Walk:
    """A chain with its random numbers and what it has improved so far."""

    def __init__(self, session: Session, near: Neighbourhood, table: Estimate, number: int) -> None:
        genes = session.genes
        self.session, self.rng = session, np.random.default_rng([session.seed, number])
        self.improved: list[tuple[int, int, float]] = []
        self.chain = Chain(
            row=np.zeros(genes, np.int64),
            new=np.zeros(genes, np.int64),
            least=np.zeros(genes, np.int64),
            best=np.zeros(genes, np.int64),
            numbers=np.zeros(13),
            counts=np.zeros(9, np.int64),
            draws=self.rng.random(_POOL),
            near=near,
            estimate=fresh(table),
            own=new_table(genes),
            shared=session.seen,
            known=session.known,
            others=new_table(genes, 1),
            improvements=np.zeros((ROOM, 2), np.int64),
            improved_ms=np.zeros(ROOM),
        )
        self.chain.numbers[PENALTY] = session.problem.penalty_ms_per_byte
        self.base, self.group_of = base_of(session.problem)
        self.piece = _FIRST

    def screen(self, redraws: int, screens: bool) -> None:
        """Draw known placements again up to ``redraws`` times; with ``screens`` more often, and by estimates."""
        self.chain.counts[[REDRAWS, SCREENS]] = redraws * (SCREENINGS if screens else 1), screens

    def start(
        self, row: Placements, energy: float, steps: int, hot_ms: float, cold_ms: float, softening: float
    ) -> None:
        """Begin a round of ``steps`` steps from ``row``; see ``chain`` for temperatures and ``softening``."""
        session, numbers, counts = self.session, self.chain.numbers, self.chain.counts
        nothing = new_table(session.genes, 1)
        self.chain = self.chain._replace(own=new_table(session.genes), shared=session.seen, others=nothing)
        self.chain.row[:], self.chain.best[:] = row, session.best
        numbers[[ENERGY, HOT, COLD, SOFTENING]] = energy, hot_ms, cold_ms, softening
        numbers[[BEST_MS, BEST_OVER, BOUND]] = session.best_ms, session.best_over, session.bound_ms
        numbers[STATE_ESTIMATE] = estimated_energy(self.chain, self.chain.row)
        counts[[STEP, STEPS, EVALUATED, IMPROVED]] = 0, steps, 0, 0
        counts[MOST] = np.iinfo(np.int64).max
        self.improved = []
        self.quota = steps

    @property
    def is_over(self) -> bool:
        """True if the chain has taken its steps, spent its evaluations, or reached the bound."""
        counts = self.chain.counts
        return bool(counts[STEP] >= self.quota or counts[EVALUATED] >= counts[MOST] or self.is_at_bound)

    @property
    def is_at_bound(self) -> bool:
        """True if no placement is better than the best of the chain."""
        return bool(self.chain.numbers[BEST_MS] <= self.chain.numbers[BOUND])

    def advance(self) -> None:
        """Take the steps of one piece."""
        began = time.perf_counter()
        steps = min(self.piece, self.quota - int(self.chain.counts[STEP]))
        self.chain = self.chain._replace(own=with_room(self.chain.own, steps))
        while steps > 0 and not self.is_over:
            self._refill()
            steps -= self.base.anneal(self.chain, self.group_of, steps)
            self._read()
        took = time.perf_counter() - began
        self.piece = max(1, min(_LARGEST, 4 * self.piece, round(self.piece * _PIECE_S / max(took, 1e-9))))

    def _refill(self) -> None:
        """Draw numbers for those that are used up; which they are does not depend on when."""
        draws, used = self.chain.draws, int(self.chain.counts[DRAWN])
        if used:
            draws[: len(draws) - used] = draws[used:].copy()
            draws[len(draws) - used :] = self.rng.random(used)
            self.chain.counts[DRAWN] = 0

    def _read(self) -> None:
        """Note the improvements of the chain since the last time."""
        chain = self.chain
        for number in range(int(chain.counts[IMPROVED])):
            steps, evaluated = chain.improvements[number].tolist()
            self.improved.append((steps, evaluated, float(chain.improved_ms[number])))
        chain.counts[IMPROVED] = 0


def run_round(session: Session, walks: Sequence[Walk]) -> None:
    """Run the chains of ``walks`` to the end of their rounds, and take over what they found.

    They count as if each had begun when the one before it ended; so what they find does not depend on the threads. When
    one reaches the bound, those after it do not count. A placement that two of them propose counts once; side by side
    both simulate it, one after the other the second takes over its score. Raises Ended.
    """
    left = session.left
    for walk in walks:
        walk.quota = min(walk.quota, left)
        left -= walk.quota
    limited = session.budget.evaluations is not None
    width = 1 if session.pool is None or limited else session.threads
    waiting, begun = list(walks), list[Walk]()
    try:
        while waiting:
            session.check()
            if limited:
                _limit(session, begun, waiting[0])
            running = waiting[:width]
            if width == 1 and running[0] not in begun:
                others = _joined(session, begun)
                running[0].chain = running[0].chain._replace(others=others)
            begun += [walk for walk in running if walk not in begun]
            _advance(session, running)
            waiting = [walk for walk in waiting if not walk.is_over]
            ends = next((place for place, walk in enumerate(begun) if walk.is_at_bound), None)
            if ends is not None:
                waiting = [walk for walk in waiting if walk in begun[:ends]]
            _report(session, begun)
            session.keep([walk.chain.own for walk in begun])
    finally:
        _take_over(session, begun)
    session.end_at_bound()


def _limit(session: Session, begun: Sequence[Walk], walk: Walk) -> None:
    used = sum(int(one.chain.counts[EVALUATED]) for one in begun if one is not walk)
    walk.chain.counts[MOST] = max(0, (session.budget.evaluations or 0) - session.evaluations - used)


def _advance(session: Session, running: Sequence[Walk]) -> None:
    if session.pool is None or len(running) == 1:
        for walk in running:
            walk.advance()
        return
    pieces = [session.pool.submit(walk.advance) for walk in running]
    wait(pieces)
    for piece in pieces:
        piece.result()


def _report(session: Session, begun: Sequence[Walk]) -> None:
    best = min(begun, key=lambda walk: float(walk.chain.numbers[BEST_MS]))
    numbers = best.chain.numbers
    session.report(
        bool(numbers[BEST_MS] < session.best_ms),
        session.proposals + sum(int(walk.chain.counts[STEP]) for walk in begun),
        session.evaluations + sum(int(walk.chain.counts[EVALUATED]) for walk in begun),
        float(numbers[BEST_MS]),
        float(numbers[BEST_OVER]),
    )


def _take_over(session: Session, begun: Sequence[Walk]) -> None:
    """Count what the chains did, one after the other, and take over their improvements."""
    for walk in begun:
        chain = walk.chain
        count = int(chain.own.size[0])
        session.seen, added = with_room(session.seen, count), np.zeros(count + 1, np.int64)
        session.resumed += merge(session.seen, chain.own, session.known, added)
        for steps, evaluated, score in walk.improved:
            if score < session.best_ms:
                counts = session.proposals + steps, session.evaluations + int(added[evaluated])
                session.take(chain.best.copy(), score, float(chain.numbers[BEST_OVER]), *counts)
        session.proposals += int(chain.counts[STEP])
        session.evaluations += int(added[-1])
        if walk.is_at_bound:
            return


def _joined(session: Session, begun: Sequence[Walk]) -> Table:
    """The placements that chains have simulated in this round."""
    found = new_table(session.genes, max(1, sum(int(walk.chain.own.size[0]) for walk in begun)))
    for walk in begun:
        append(found, walk.chain.own)
    return found
