"""Searches without memory of what they tried: random placements, and all placements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensortide.placements.annealing.table import find
from tensortide.placements.search.algorithm import Search
from tensortide.placements.search.session import Session

_AT_ONCE = 256


@dataclass(frozen=True)
class RandomSearch(Search):
    """Each gene uniformly random, until the budget is spent."""

    name: ClassVar[str] = "random"
    about: ClassVar[str] = "random placements"

    def run(self, session: Session) -> None:
        """Propose random placements."""
        while True:
            session.score(session.random(min(_AT_ONCE, session.left)))


@dataclass(frozen=True)
class Exhaustive(Search):
    """All placements that keep the pins, the last gene changing fastest; optimal where the budget covers them.

    Those that the session has seen are not proposed again. It ends at the bound.
    """

    name: ClassVar[str] = "exhaustive"
    about: ClassVar[str] = "every placement"
    is_for_small: ClassVar[bool] = True

    def run(self, session: Session) -> None:
        """Propose all placements in order."""
        devices, genes = len(session.allowed), session.free
        total = devices ** len(genes)
        powers = [devices**place for place in reversed(range(len(genes)))]
        for start in range(0, total, _AT_ONCE):
            numbers = range(start, min(total, start + _AT_ONCE))
            rows = np.full((len(numbers), session.genes), session.allowed[0])
            digits = [[number // power % devices for power in powers] for number in numbers]
            rows[:, genes] = session.allowed[np.array(digits, np.int64).reshape(len(numbers), len(genes))]
            rows = session.pinned(rows)
            rows = rows[[find(session.seen, row) < 0 for row in rows]]
            if len(rows):
                session.score(rows)
                session.end_at_bound()
        session.notes.proved = True
