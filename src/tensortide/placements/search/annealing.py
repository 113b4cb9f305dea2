"""Simulated annealing with one-gene moves, and generalised (dual) annealing as scipy has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements.arrays import Floats
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Session


@dataclass(frozen=True)
class SimulatedAnnealing(Search):
    """One random gene to a random device, from a random placement.

    A better placement is accepted, any other with probability sigmoid((score - new) / T): an equal one half the time.
    T is ``temperature_ms`` times ``decay`` to the power of the step.
    """

    name: ClassVar[str] = "annealing"
    about: ClassVar[str] = "simulated annealing, one gene at a time"
    steps: int | None = None
    temperature_ms: float = 40.0
    decay: float = 0.95

    def run(self, session: Session) -> None:
        """Anneal for ``steps`` proposals, or until the budget is spent."""
        rng = session.rng
        state = session.random(1)[0]
        score = float(session.score(state[None])[0])
        for step in range(session.left if self.steps is None else self.steps):
            new = state.copy()
            new[rng.integers(session.genes)] = rng.choice(session.allowed)
            new_score = float(session.score(new[None])[0])
            temperature = self.temperature_ms * self.decay**step
            if new_score < score or rng.random() < _sigmoid(score - new_score, temperature):
                state, score = new, new_score
            session.notes.last = tuple(map(int, state)), score


def _sigmoid(gain: float, temperature: float) -> float:
    if gain == 0:
        return 0.5
    exponent = -gain / temperature if temperature > 0 else math.inf
    return 0.0 if exponent > 700 else 1 / (1 + math.exp(exponent))


@dataclass(frozen=True)
class DualAnnealing(Search):
    """Generalised annealing of ``scipy.optimize``: a real number per gene, rounded to a device; no local search."""

    name: ClassVar[str] = "dual-annealing"
    about: ClassVar[str] = "generalised annealing (scipy)"
    steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.steps < 1:
            raise PlacementError(f"dual annealing takes one step or more, not {self.steps}.")

    def run(self, session: Session) -> None:
        """Anneal for ``steps`` evaluations, or until the budget is spent."""
        from scipy.optimize import dual_annealing

        def score(x: Floats) -> float:
            places = np.rint(x).astype(np.int64)
            return float(session.score(session.allowed[places][None])[0])

        most = len(session.allowed) - 1
        if most == 0:
            session.score(session.uniform())
            return
        calls = session.left if self.steps is None else self.steps
        found = dual_annealing(
            score,
            [(0, most)] * session.genes,
            maxiter=calls,
            maxfun=calls,
            no_local_search=True,
            rng=session.rng,
        )
        session.notes.last = tuple(session.allowed[np.rint(found.x).astype(np.int64)].tolist()), float(found.fun)
