"""Hill climbing: random, and by first improvement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements.arrays import Placements
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Session


@dataclass(frozen=True)
class RandomHillClimbing(Search):
    """One random gene to a random device, accepted if strictly better.

    ``start``: everything on ``device`` (0 is the CPU by convention), or the best single device.
    """

    name: ClassVar[str] = "random-hill"
    about: ClassVar[str] = "random hill climbing"
    steps: int | None = None
    start: Literal["device", "best-single"] = "device"
    device: int = 0

    def run(self, session: Session) -> None:
        """Climb for ``steps`` proposals, or until the budget is spent."""
        if self.device not in range(session.problem.devices):
            raise PlacementError(f"there is no device {self.device} to start on.")
        state = session.best.copy() if self.start == "best-single" else np.full(session.genes, self.device)
        score = session.score(state[None])[0]
        for _ in range(session.left if self.steps is None else self.steps):
            new = state.copy()
            new[session.rng.integers(session.genes)] = session.rng.choice(session.allowed)
            new_score = session.score(new[None])[0]
            if new_score < score:
                state, score = new, new_score
            session.notes.last = tuple(map(int, state)), float(score)


@dataclass(frozen=True)
class HillClimbing(Search):
    """First-improvement climbing from a random placement: each gene in order, its device number plus and minus one.

    An improvement restarts the scan; at a local optimum the search ends, or starts anew up to ``restarts`` times.
    """

    name: ClassVar[str] = "hill"
    about: ClassVar[str] = "first-improvement climbing"
    restarts: int = 0

    def run(self, session: Session) -> None:
        """Climb to a local optimum, ``restarts`` + 1 times."""
        for _ in range(self.restarts + 1):
            state = session.random(1)[0]
            score = session.score(state[None])[0]
            while (better := self._better(session, state, score)) is not None:
                state, score = better
            session.notes.last = tuple(map(int, state)), float(score)

    @staticmethod
    def _better(session: Session, state: Placements, score: float) -> tuple[Placements, float] | None:
        """Return the first neighbour of ``state`` that is strictly better, with its score."""
        places = np.searchsorted(session.allowed, state)
        for gene in range(session.genes):
            for step in (1, -1):
                if 0 <= places[gene] + step < len(session.allowed):
                    new = state.copy()
                    new[gene] = session.allowed[places[gene] + step]
                    new_score = session.score(new[None])[0]
                    if new_score < score:
                        return new, new_score
        return None
