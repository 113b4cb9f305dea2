"""Particle swarm over one real number per gene."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements.arrays import Floats, Placements
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Session


@dataclass(frozen=True)
class ParticleSwarm(Search):
    """Particles drawn towards their own best place and that of all; a place is floored and clamped to devices.

    ``inertia``, ``own`` and ``common`` weigh velocity, own best and best of all.
    """

    name: ClassVar[str] = "particle-swarm"
    about: ClassVar[str] = "particle swarm"
    swarm: int = 100
    steps: int | None = None
    inertia: float = 0.01
    own: float = 0.01
    common: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swarm < 1 or not all(map(math.isfinite, (self.inertia, self.own, self.common))):
            raise PlacementError("a swarm has one particle or more, and its weights are finite numbers.")

    def run(self, session: Session) -> None:
        """Move the swarm ``steps`` times, or until the budget is spent."""
        rng, devices, shape = session.rng, len(session.allowed), (self.swarm, session.genes)
        places: Floats = rng.random(shape) * devices
        velocity = rng.uniform(-devices, devices, shape)
        own, own_scores = places.copy(), session.score(_rounded(session, places))
        done = 0
        while self.steps is None or done < self.steps:
            common = own[np.argmin(own_scores)]
            velocity = (
                self.inertia * velocity
                + self.own * rng.random(shape) * (own - places)
                + self.common * rng.random(shape) * (common - places)
            )
            places = places + velocity
            scores = session.score(_rounded(session, places))
            better = scores < own_scores
            own[better], own_scores[better] = places[better], scores[better]
            done += 1


def _rounded(session: Session, places: Floats) -> Placements:
    numbers = np.clip(np.floor(places), 0, len(session.allowed) - 1).astype(np.int64)
    return session.allowed[numbers]
