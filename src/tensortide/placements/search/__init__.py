"""Searches for placements: which device each layer or unit runs on.

>>> found = algorithm("best").search(problem, budget=20_000, seed=0)
>>> found.placement, found.score_ms, found.gap_share

Every algorithm is a frozen dataclass of options (``algorithm.Search``); all of them count alike, know the best
placement ever seen, resume, and keep it on Ctrl-C (``session``).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from tensortide.errors import PlacementError
from tensortide.placements.search.algorithm import Search as Search
from tensortide.placements.search.annealing import DualAnnealing, SimulatedAnnealing
from tensortide.placements.search.best import Best
from tensortide.placements.search.contiguous import Contiguous
from tensortide.placements.search.exact import Exact
from tensortide.placements.search.genetic import Genetic
from tensortide.placements.search.hill import HillClimbing, RandomHillClimbing
from tensortide.placements.search.list_scheduling import MEtf, MSct, MTopo
from tensortide.placements.search.map_elites import MapElites
from tensortide.placements.search.options import configured
from tensortide.placements.search.particle_swarm import ParticleSwarm
from tensortide.placements.search.session import Budget as Budget
from tensortide.placements.search.session import SearchResult as SearchResult
from tensortide.placements.search.simple import Exhaustive, RandomSearch

_KINDS: tuple[type[Search], ...] = (  # a row per search: a new one is added here
    Best,
    RandomHillClimbing,
    HillClimbing,
    SimulatedAnnealing,
    DualAnnealing,
    Genetic,
    MapElites,
    ParticleSwarm,
    RandomSearch,
    Exhaustive,
    MTopo,
    MEtf,
    MSct,
    Contiguous,
    Exact,
)
ALGORITHMS: dict[str, type[Search]] = {kind.name: kind for kind in _KINDS}
"""Every algorithm by name."""
COMPARED = tuple(name for name, kind in ALGORITHMS.items() if not kind.is_for_small)
"""Algorithms that a comparison has where none is named."""


def algorithm(name: str, options: Mapping[str, Any] | None = None) -> Search:
    """The algorithm called ``name``, with ``options`` (values may be text) and its defaults.

    Raises PlacementError if there is none, or if it does not have an option or a value.
    """
    if name not in ALGORITHMS:
        near = get_close_matches(name, ALGORITHMS, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(ALGORITHMS)}."
        raise PlacementError(f"there is no search called {name!r}; {hint}")
    return configured(ALGORITHMS[name], options or {})
