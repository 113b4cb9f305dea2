"""The default search: planned seeds, then chains of annealing by runs of genes, exact where the instance is small."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements.annealing.by_estimate import anneal
from tensortide.placements.annealing.chain import Chain
from tensortide.placements.annealing.estimate import Estimate, score
from tensortide.placements.annealing.moves import Neighbourhood, Weights, neighbours, orders
from tensortide.placements.annealing.table import find
from tensortide.placements.arrays import Floats, Ints, Placements
from tensortide.placements.bounds import Bounds
from tensortide.placements.problem import Derived, Problem
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.chains import Walk, run_round
from tensortide.placements.search.groups import base_of
from tensortide.placements.search.seeds import seeds
from tensortide.placements.search.session import Budget, Ended, Session
from tensortide.placements.search.simple import Exhaustive

SMALL = 4096
"""Instances of up to this many placements are enumerated at once, larger ones of which all are covered after seeds."""

ENOUGH = 30
"""Proposals for each gene and device with which a phase starts at the full temperature; with fewer it starts colder."""

HEAT = (0.002, 1.0, 0.15, 1.0)
"""Shares of the first temperature with which chains begin, in turn. Those that start from the best of all are colder:
heat takes a chain away from it."""

LONG = 0.25
"""Mean length of the runs of the coldest chains, as a share of the genes, where ``mean_run`` is less."""

ROOMS = (1.0, 0.9, 1.2, 0.8, 1.5, 0.65)
"""Shares of the memory that estimates count, in turn: what is resident at a time is known only roughly."""

LAST = 500
"""Placements, of those simulated last, by which it is judged whether estimates are good enough to screen proposals."""

SCREENED = (0, 1)
"""Chains, of each four, that do not simulate what estimates advise against. Where estimates are poor, the others
find what these miss."""


@dataclass(frozen=True)
class Best(Search):
    """Seeds from list scheduling, contiguous splits and single devices; then phases of annealing.

    The phases end after ``first``, ``first * growth``, ``first * growth**2``, ... proposals, whatever the budget is, so
    that a larger one goes the same way at first and is never worse. In each, ``chains`` anneal side by side,
    ``rounds`` times from ``hot`` to ``cold`` (temperatures as shares of the best energy; round n begins at ``hot / n``,
    colder in a short phase).
    The first time they start from the best seeds; later every other one starts from the best of all, the rest from
    where they ended; ``HEAT`` has the shares of ``hot`` with which they begin, ``LONG`` runs of the coldest. A share
    of a phase, ``descents``, is left for descents by single genes, from the best of all and the ends of the chains.
    Over-use of memory counts ``soft_penalty`` times the best time for each share of the total memory while chains move,
    so that they can cross what does not fit. A move to a placement that was proposed before is drawn again, up to
    ``redraws`` times.

    With ``estimates``, ``planned`` proposals that are estimated, not simulated, precede the first phase for each of
    ``ROOMS``, and every later phase, whose second chain begins at what they found; and half of the chains draw again,
    up to ``SCREENINGS * redraws`` times, what estimates advise against, where these agree with the simulations so far.
    Neither counts as a proposal.
    """

    name: ClassVar[str] = "best"
    about: ClassVar[str] = "planned seeds, annealing by runs, exact where small"
    chains: int = 4
    rounds: int = 1
    first: int = 200
    growth: float = 10**0.5
    hot: float = 0.4
    cold: float = 0.003
    soft_penalty: float = 300.0
    mean_run: float = 5.0
    redraws: int = 10
    descents: float = 0.2
    estimates: bool = True
    planned: int = 4000
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {"chains": self.chains, "rounds": self.rounds, "first": self.first, "mean_run": self.mean_run}
        for name, value in counts.items():
            if not 1 <= value < np.inf:
                raise PlacementError(f"{name} of the search best is {value}: 1 or more.")
        if not (1.1 <= self.growth < np.inf and 0 < self.cold <= self.hot < np.inf and self.redraws >= 0):
            raise PlacementError(
                "the search best needs a growth of 1.1 or more, 0 < cold <= hot, and redraws of 0 or more."
            )
        if self.planned < 1:
            raise PlacementError(f"planned of the search best is {self.planned}: 1 or more.")
        if not (0 <= self.descents < 1 and 0 <= self.soft_penalty < np.inf):
            raise PlacementError("the search best needs 0 <= descents < 1, and a soft_penalty of 0 or more.")

    def run(self, session: Session) -> None:
        """Enumerate an instance that the budget covers; else plan, then anneal until it is spent or the bound reached.

        Under a time limit only small instances are enumerated: what comes first of all placements is no good one.
        """
        total = len(session.allowed) ** len(session.free)
        most = session.budget.evaluations
        room = session.left if most is None else min(session.left, most - session.evaluations)
        unseen = total - int(session.seen.size[0])
        if total <= SMALL and unseen <= room:
            Exhaustive().run(session)
            return
        planned = seeds(session.problem, session.allowed, session.check, session.limit())
        rows = session.pinned(np.concatenate([session.uniform(), planned]))
        covered = unseen <= room and not session.budget.is_timed
        if covered and room - len(rows) < unseen:  # the seeds would take what enumeration needs
            Exhaustive().run(session)
            return
        energies = self._energies(session, rows)
        session.end_at_bound()
        if covered:
            Exhaustive().run(session)
            return
        starts = rows[np.argsort(energies, kind="stable")[: self.chains]]
        self._anneal(session, self._planned(session, starts) if self.estimates else [*starts])

    def _energies(self, session: Session, rows: Placements) -> Floats:
        """Simulate ``rows`` and return their energies [k], ms."""
        scores, over = session.measure(rows)
        return scores + self._softening(session) * over

    def _planned(self, session: Session, starts: Placements) -> list[Placements]:
        """Find placements by estimates, for several shares of memory, and return the best of them and of ``starts``.

        The last chain begins at the best of ``starts``, as what estimates find may lie far from the optimum.
        """
        plans = np.array([self._plan(session, starts, room) for room in ROOMS])
        rows = np.concatenate([plans, starts])
        energies = self._energies(session, rows)
        session.end_at_bound()
        return [*rows[np.argsort(energies, kind="stable")[: max(1, self.chains - 1)]], starts[0]]

    def _plan(self, session: Session, starts: Placements, room: float, turn: int = 0) -> Placements:
        """Find a placement by ``planned`` estimated proposals from ``starts``, of a share ``room`` of the memory."""
        session.check()
        problem = Estimated(session.problem, room)
        inner = Session(problem, Budget(self.planned), session.seed + turn, allowed=session.allowed.tolist())
        with suppress(Ended):
            inner.measure(starts)
            replace(self, estimates=False)._anneal(inner, [*starts])
        return inner.best

    def _anneal(self, session: Session, starts: list[Placements]) -> None:
        """Anneal from ``starts`` until the session raises Ended."""
        walks = self._walks(session)
        rng = np.random.default_rng([session.seed, self.chains])
        states = [starts[number % len(starts)] for number in range(self.chains)]
        for phase in itertools.count():
            until = round(self.first * self.growth**phase)
            steps = round((until - session.proposals) * (1 - self.descents)) // (self.rounds * self.chains)
            enough = ENOUGH * len(session.free) * len(session.allowed)
            hot = self.hot * min(1.0, steps * self.rounds * self.chains / enough)
            if self.estimates and min(phase, steps) > 0 and self.chains > 1:
                states[1] = self._plan(session, np.array(states), ROOMS[phase % len(ROOMS)], phase)
                session.measure(states[1][None])
            screens = self.estimates and steps > 0 and self._agrees(session)
            for turn in range(self.rounds if steps > 0 else 0):
                for number, (walk, row) in enumerate(zip(walks, states, strict=True)):
                    walk.screen(self.redraws, screens and number % 4 in SCREENED)
                    self._start(session, walk, row, steps, hot * HEAT[number % len(HEAT)] / (turn + 1))
                run_round(session, walks)
                ends = [walk.chain.row.copy() for walk in walks]
                if turn == self.rounds - 1:
                    softening = self._softening(session)
                    descend(session, session.best, softening, until, rng)
                    ends = [descend(session, end, softening, until, rng) for end in ends]
                    session.end_at_bound()
                states = [end if number % 2 else session.best for number, end in enumerate(ends)]

    def _walks(self, session: Session) -> list[Walk]:
        """Make the chains."""
        edges = session.problem.edges
        near = Neighbourhood(
            self.weights.cumulative(),
            session.allowed,
            session.free,
            session.pins,
            *neighbours(session.genes, edges),
            float(self.mean_run),
            *orders(session.genes, edges),
        )
        long = near._replace(mean_run=max(float(self.mean_run), LONG * session.genes))
        table = estimate_of(session.problem)
        return [Walk(session, near if number % len(HEAT) else long, table, number) for number in range(self.chains)]

    def _agrees(self, session: Session) -> bool:
        """True if estimates put what was simulated last in about the right order."""
        last = int(session.seen.size[0])
        some, softening = slice(max(0, last - LAST), last), self._softening(session)
        energies = session.seen.scores[some] + softening * session.seen.over[some]
        return agrees(session.problem, session.seen.rows[some].astype(np.int64), energies, softening)

    def _start(self, session: Session, walk: Walk, row: Placements, steps: int, hot: float) -> None:
        """Let a chain begin a round at ``row``, which was simulated before."""
        seen, number, softening = session.seen, find(session.seen, row), self._softening(session)
        energy = float(seen.scores[number] + softening * seen.over[number])
        scale = session.best_ms + softening * session.best_over  # the energy of the best
        walk.start(row, energy, steps, hot * scale, min(self.cold, hot / 10) * scale, softening)

    def _softening(self, session: Session) -> float:
        """Milliseconds that a byte of over-use counts more while chains move than in a score."""
        soft = self.soft_penalty * self._best_time(session) / session.problem.capacity.sum()
        return float(soft - session.problem.penalty_ms_per_byte)

    @staticmethod
    def _best_time(session: Session) -> float:
        """The score of the best placement without its penalty."""
        return session.best_ms - session.problem.penalty_ms_per_byte * session.best_over


# -- descent ----------------------------------------------------------------------------------------
# Descent by single genes: from where annealing ends, to where no change of one gene is for the better.


_AT_ONCE = 16
"""Neighbours that are simulated together; the best of them counts."""


def descend(session: Session, row: Placements, softening: float, until: int, rng: np.random.Generator) -> Placements:
    """Give single genes of ``row``, simulated before, other devices while that lowers its energy, and return the end.

    Energies are scores with ``softening`` ms more for a byte of over-use. Neighbours come in random order; those that
    were simulated before cost no proposal. Ends at a local optimum, or where a proposal would be more than the
    session's number ``until``. Raises Ended.
    """
    genes, devices = (one.ravel() for one in np.meshgrid(session.free, session.allowed, indexing="ij"))
    energy = float(_energies(session, row[None], softening)[0])
    order, idle = rng.permutation(len(genes)), 0
    while idle < len(genes):
        some, order = order[:_AT_ONCE], np.roll(order, -_AT_ONCE)
        near = _neighbours(row, genes[some], devices[some])
        new = np.array([find(session.seen, one) < 0 for one in near])
        if np.count_nonzero(new) > until - session.proposals:
            break
        if new.any():
            session.measure(near[new])
        energies = _energies(session, near, softening)
        lowest = int(np.argmin(energies))
        idle += len(some)
        if energies[lowest] < energy:
            row, energy, idle = near[lowest], float(energies[lowest]), 0
    return row


def _neighbours(row: Placements, genes: Ints, devices: Ints) -> Placements:
    """Return ``row`` with one gene changed, for each of ``genes`` and its device [genes, genes of the row]."""
    found = np.repeat(row[None], len(genes), axis=0)
    found[np.arange(len(genes)), genes] = devices
    return found


def _energies(session: Session, rows: Placements, softening: float) -> Floats:
    """Return the energies [k] of ``rows`` that were simulated."""
    numbers = np.array([find(session.seen, row) for row in rows], np.int64)
    energies: Floats = session.seen.scores[numbers] + softening * session.seen.over[numbers]
    return energies


# -- estimates --------------------------------------------------------------------------------------
# Tables of the estimate of a problem's placements, and the problem whose scores are estimates.


AGREEMENT = 0.7
"""Least correlation, of the ranks of estimates and simulations, at which estimates screen proposals."""


def estimate_of(problem: Problem, room: float = 1.0) -> Estimate:
    """Compute the tables of ``problem``, whose genes may be groups: estimates are of what they consist of.

    ``room``: the share of each device's memory that counts, as memory adds up only roughly.
    """
    base, group_of = base_of(problem)
    layers, devices = len(base.names), base.devices
    by_depth = orders(layers, base.edges)[0][-1]
    place = np.argsort(by_depth)
    ends = np.sort(place[base.edges], axis=1)
    into = np.argsort(ends[:, 1], kind="stable")
    counts = np.bincount(ends[:, 1], minlength=layers)
    lanes = int(base.lanes.max(initial=0)) + 1
    return Estimate(
        gene=np.ascontiguousarray(group_of[by_depth]),
        first=np.concatenate([[0], np.cumsum(counts)]),
        parent=np.ascontiguousarray(ends[into, 0]),
        took=np.ascontiguousarray(base.transfers[into], np.float64),
        copied=np.ascontiguousarray(base.copies[into], np.float64),
        work=np.ascontiguousarray(base.work[by_depth], np.float64),
        lane=base.lanes,
        memory=np.ascontiguousarray(base.memory[by_depth], np.float64),
        activations=np.ascontiguousarray(base.activations[by_depth], np.float64),
        capacity=np.array(base.capacity, np.float64) * room,
        in_flight=np.array([base.in_flight(max(1, stages)) for stages in range(devices + 1)], np.float64),
        drains=base.drains,
        batches=base.batches,
        end=np.zeros(layers),
        free=np.zeros(devices),
        load=np.zeros(devices),
        used=np.zeros(devices),
        kept=np.zeros(devices),
        late=np.zeros(devices),
        stage=np.zeros(devices, np.int64),
        sent=np.zeros(layers * devices, np.int64),
        stamp=np.zeros(1, np.int64),
        lane_free=np.zeros(lanes),
        lane_load=np.zeros(lanes),
        found=np.zeros(2),
    )


class Estimated(Derived):
    """``base`` with estimated scores, of which no bound is known; a share ``room`` of each device's memory counts."""

    bounds = Bounds(0.0, 0.0)

    def __init__(self, base: Problem, room: float) -> None:
        super().__init__(base)
        self.table = estimate_of(base, room)

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Return estimated scores [k], ms with the penalty of over-use, and over-use [k], bytes."""
        rows = np.ascontiguousarray(placements, np.int64)
        scores, over = np.empty(len(rows)), np.empty(len(rows))
        score(self.table, self.base.penalty_ms_per_byte, rows, scores, over)
        return scores, over

    def anneal(self, chain: Chain, group_of: Ints, steps: int) -> int:
        """Take up to ``steps`` steps of ``chain``, and return how many were taken."""
        del group_of  # each gene is one: the table knows of what it consists
        taken: int = anneal(self.table, self.base.penalty_ms_per_byte, chain, steps)
        return taken


def agrees(problem: Problem, rows: Placements, energies: Floats, softening: float) -> bool:
    """True if estimates put ``rows`` [k, genes] in about the order of their ``energies`` [k]: by rank correlation.

    Energies are scores with ``softening`` ms more for a byte of over-use.
    """
    scores, over = Estimated(problem, 1.0).evaluate(rows)
    found = scores + softening * over
    if len(rows) < 3 or not (np.isfinite(found).all() and np.isfinite(energies).all()):
        return False
    ranks = np.array([np.unique(values, return_inverse=True)[1] for values in (found, energies)], np.float64)
    return bool(np.ptp(ranks, axis=1).min() > 0 and np.corrcoef(ranks[0], ranks[1])[0, 1] >= AGREEMENT)
