"""The default search: planned seeds, then annealing by runs of genes in rounds, exact where the instance is small."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.moves import DRAWS, Weights, move_all, neighbours
from tensortide.placements.search.problem import Floats, Placements
from tensortide.placements.search.seeds import seeds
from tensortide.placements.search.session import Session
from tensortide.placements.search.simple import Exhaustive

SMALL = 4096
"""Instances of up to this many placements are enumerated at once, larger ones of which all are covered after seeds."""
ENOUGH = 60
"""Proposals for each gene and device with which annealing starts hot; with fewer it starts colder, in fewer rounds."""


@dataclass(frozen=True)
class Best(Search):
    """Seeds from list scheduling, contiguous splits and single devices; then rounds of annealing from the best found.

    ``chains`` anneal at a time, each round over its share of the budget, from ``hot`` to ``cold`` (temperatures as
    shares of the best score). The first round starts from the best seeds, later ones from the best of all and from the
    end of the others. Over-use of memory counts ``soft_penalty`` times the best score for each share of the total
    memory while chains move, so that they can cross what does not fit. A move to a placement that was proposed before
    is drawn again, up to ``redraws`` times.
    """

    name: ClassVar[str] = "best"
    about: ClassVar[str] = "planned seeds, annealing by runs, exact where small"
    chains: int = 1
    rounds: int = 8
    hot: float = 0.2
    cold: float = 0.003
    soft_penalty: float = 300.0
    mean_run: float = 5.0
    redraws: int = 10
    weights: Weights = field(default_factory=Weights)

    def run(self, session: Session) -> None:
        """Enumerate an instance that the budget covers; else plan, then anneal until it is spent or the bound reached.

        Under a time limit only small instances are enumerated: what comes first of all placements is no good one.
        """
        total = len(session.allowed) ** len(session.free)
        if total <= min(SMALL, session.left):
            Exhaustive().run(session)
            return
        rows = session.pinned(np.concatenate([session.uniform(), seeds(session.problem, session.allowed)]))
        covered = total <= session.left and not session.budget.is_timed
        if covered and session.left - len(rows) < total:  # the seeds would take what enumeration needs
            Exhaustive().run(session)
            return
        scores, over = session.measure(rows)
        session.end_at_bound()
        if covered:
            Exhaustive().run(session)
            return
        energies = self._energies(session, scores, over)
        order = np.argsort(energies, kind="stable")
        states = rows[order[np.arange(self.chains) % len(order)]]
        begun, share = session.spent, min(1.0, session.left / (ENOUGH * len(session.free) * len(session.allowed)))
        rounds, hot = max(2, round(self.rounds * share)), self.hot * share * min(1.0, 1.5 * share)
        for number in range(rounds):
            until = begun + (1 - begun) * (number + 1) / rounds
            states = self._annealed(session, states, until, hot / (1 + number))
            states[0] = session.best
        while True:
            states = self._annealed(session, states, 1.0, self.cold)

    def _annealed(self, session: Session, states: Placements, until: float, hot: float) -> Placements:
        """Anneal ``states`` [chains, genes] from ``hot`` to ``cold``, ``until`` that share of the budget is spent, and
        return where they ended."""
        rng, cold = session.rng, min(self.cold, hot / 10)
        offsets, near = neighbours(session.genes, session.problem.edges)
        weights = self.weights.cumulative()
        states = states.copy()
        energies = self._energies(session, *session.measure(states))
        begun = session.spent
        while (spent := session.spent) < until:
            temperature = hot * (cold / hot) ** ((spent - begun) / (until - begun)) * session.best_ms
            new = states.copy()
            for _ in range(self.redraws + 1):
                known = session.is_known(new)  # a state itself is
                if not any(known):
                    break
                new[known] = states[known]
                moved, draws = new[known], rng.random((sum(known), DRAWS))
                move_all(moved, draws, weights, session.allowed, offsets, near, self.mean_run)
                new[known] = session.pinned(moved)
            new_energies = self._energies(session, *session.measure(new))
            session.end_at_bound()
            gain = energies - new_energies
            accepted = np.log(rng.random(len(states)) + 1e-300) * temperature < gain
            states[accepted], energies[accepted] = new[accepted], new_energies[accepted]
        return states

    def _energies(self, session: Session, scores: Floats, over: Floats) -> Floats:
        """Scores with the over-use weighed softly."""
        share = over / session.problem.capacity.sum()
        penalty_ms = session.problem.penalty_ms_per_byte * over
        energies: Floats = scores - penalty_ms + self.soft_penalty * session.best_ms * share
        return energies
