"""Base of all searches: a frozen dataclass of options, and ``search``."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements.problem import Problem
from tensortide.placements.search.checkpoint import Checkpoint
from tensortide.placements.search.session import Budget, Ended, Progress, SearchResult, Session


@dataclass(frozen=True)
class Search(abc.ABC):
    """A search over placements; its fields are its options."""

    name: ClassVar[str]
    about: ClassVar[str]
    is_for_small: ClassVar[bool] = False
    """True for a search that ends in good time on small nets alone: comparisons leave it out unless it is named."""

    def __post_init__(self) -> None:
        """Raise PlacementError for a rate that is none; searches add checks of their own options."""
        for field in dataclasses.fields(self):
            if field.name.endswith("_rate") and not 0 <= (value := getattr(self, field.name)) <= 1:
                raise PlacementError(
                    f"the option {field.name} of the search {self.name} cannot be {value:g}: a rate is 0 to 1."
                )

    @property
    def shares_genes(self) -> bool:
        """True if devices may share a gene."""
        return False

    @abc.abstractmethod
    def run(self, session: Session) -> None:
        """Propose placements to ``session`` until nothing is left to try, or the session raises Ended."""

    def search(
        self,
        problem: Problem,
        budget: Budget | int = 20_000,
        seed: int = 0,
        *,
        allowed: Sequence[int] | None = None,
        threads: int = 1,
        watch: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        checkpoint: Path | None = None,
        singles: bool = True,
    ) -> SearchResult:
        """Search ``problem`` within ``budget`` (a number counts proposals) and return the best placement ever seen.

        Everything on one device is proposed first, for each device ``allowed`` (default: all), so no result is worse;
        without ``singles`` the search proposes its own placements alone, as published studies do.
        The result depends on problem, options, seed and budget, not on ``threads``. ``watch`` is called with the state
        after each batch of proposals; ``stop`` ends the search when it returns True, as does Ctrl-C. ``checkpoint``: a
        file of what was simulated; a search that finds its own there resumes.
        """
        limit = Budget(budget) if isinstance(budget, int) else budget
        options = {field.name: repr(getattr(self, field.name)) for field in dataclasses.fields(self)}
        asked = {"algorithm": self.name, **options, "seed": str(seed)}
        file = Checkpoint(checkpoint, problem.digest, asked) if checkpoint else None
        session = Session(
            problem,
            limit,
            seed,
            allowed=allowed,
            threads=threads,
            watch=watch,
            stop=stop,
            checkpoint=file,
            shares=self.shares_genes,
        )
        try:
            if singles:
                scores, over = session.measure(session.uniform())
                fitting = scores[over <= 0]
                session.single_ms = float(np.min(fitting)) if len(fitting) else None
            self.run(session)
        except Ended as end:
            return session.result(str(end))
        except KeyboardInterrupt:
            return session.result("interrupted")
        return session.result("proved" if session.notes.proved else "finished" if session.left else "budget")
