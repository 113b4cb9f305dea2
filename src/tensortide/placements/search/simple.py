"""Searches without memory of what they tried: random placements, and all placements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
    """All placements, the last gene changing fastest; optimal where the budget covers them. It ends at the bound."""

    name: ClassVar[str] = "exhaustive"
    about: ClassVar[str] = "every placement"

    def run(self, session: Session) -> None:
        """Propose all placements in order."""
        devices, genes = len(session.allowed), session.genes
        total = devices**genes
        powers = [devices**place for place in reversed(range(genes))]
        for start in range(0, total, _AT_ONCE):
            numbers = range(start, min(total, start + _AT_ONCE))
            rows = [[number // power % devices for power in powers] for number in numbers]
            session.score(session.allowed[np.array(rows, np.int64)])
            session.end_at_bound()
        session.notes.proved = True
