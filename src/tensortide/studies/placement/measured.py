"""Real measurements of placements: a search that goes on with them, and how well predictions agree with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensortide.errors import PlacementError
from tensortide.placements import Bounds
from tensortide.placements.digest import digest_of
from tensortide.placements.search import Budget, Search, SearchResult
from tensortide.placements.search.problem import Floats, Ints, Placements
from tensortide.studies.placement.placed_net import NetSubject, layers_of

Measure: TypeAlias = Callable[[dict[str, int]], "float | None"]
"""The time of one batch, ms, with each layer on its device; None where memory does not suffice."""
OUT_OF_MEMORY_MS = 1e9
"""Score of a placement that runs out of memory."""


def checked_ms(measured: object) -> float | None:
    """Return a measured time, ms, or None. Raises PlacementError for what is neither."""
    if measured is None:
        return None
    try:
        ms = float(measured) if not isinstance(measured, str | bytes) else math.nan  # type: ignore[arg-type]  # caught
    except (TypeError, ValueError):
        ms = math.nan
    if not 0 < ms < math.inf:
        raise PlacementError(f"a measured time is a positive number of milliseconds, not {measured!r}.")
    return ms


class MeasuredProblem:
    """``problem`` with scores that are measured. ``log`` has every placement [genes] measured, with its time."""

    def __init__(self, subject: NetSubject, measure: Measure) -> None:
        self._base, self._problem = subject.problem()
        self._request, self._measure = subject, measure
        self.log: list[tuple[tuple[int, ...], float | None]] = []

    @property
    def digest(self) -> str:
        measure = getattr(self._measure, "__qualname__", repr(self._measure))
        return digest_of((self._problem.digest, "measured", measure))

    @property
    def names(self) -> Sequence[str]:
        return self._problem.names

    @property
    def devices(self) -> int:
        return self._problem.devices

    @property
    def batches(self) -> int:
        return 1

    @property
    def penalty_ms_per_byte(self) -> float:
        return OUT_OF_MEMORY_MS

    @property
    def edges(self) -> Ints:
        return self._problem.edges

    @property
    def work(self) -> Floats:
        return self._problem.work

    chained = None
    """No chain is a bound of what is measured."""

    @property
    def transfers(self) -> Floats:
        return self._problem.transfers

    @property
    def memory(self) -> Floats:
        return self._problem.memory

    @property
    def activations(self) -> Floats:
        return self._problem.activations

    @property
    def copies(self) -> Floats:
        return self._problem.copies

    @property
    def lanes(self) -> Ints:
        return self._problem.lanes

    @property
    def drains(self) -> bool:
        return self._problem.drains

    @property
    def pins(self) -> Mapping[int, int]:
        return self._problem.pins

    def in_flight(self, stages: int) -> int:
        return self._problem.in_flight(stages)

    @property
    def capacity(self) -> Floats:
        return self._problem.capacity

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Measure ``placements`` one after another; one that runs out of memory counts as one byte over."""
        times = [self._timed(row) for row in placements]
        scores = np.array([OUT_OF_MEMORY_MS if ms is None else ms for ms in times])
        return scores, np.array([float(ms is None) for ms in times])

    def bounds(self) -> Bounds:
        """Return no bounds: a real machine may beat any prediction."""
        return Bounds(0.0, 0.0)

    def _timed(self, row: Placements) -> float | None:
        layers = layers_of(self._base, self._problem, row.tolist())
        ms = checked_ms(self._measure(dict(zip(self._request.net.order, layers, strict=True))))
        self.log.append((layers, ms))
        return ms


@dataclass(frozen=True)
class Pair:
    """A placement with its predicted and its measured time, ms; ``name`` is what it is called."""

    name: str
    predicted_ms: float
    measured_ms: float


@dataclass(frozen=True)
class Validation:
    """Predictions against measurements: correlations, and the line ``measured = slope * predicted + offset``.

    ``out_of_memory`` names placements that could not be measured. ``rank`` is Spearman's correlation, ``pearson`` that
    of the times.
    """

    pairs: tuple[Pair, ...]
    out_of_memory: tuple[str, ...]
    pearson: float
    rank: float
    slope: float
    offset_ms: float

    @property
    def worst(self) -> tuple[Pair, ...]:
        """The pairs in order of their distance from the line, farthest first."""

        def off(pair: Pair) -> float:
            return abs(pair.measured_ms - self.slope * pair.predicted_ms - self.offset_ms)

        return tuple(sorted(self.pairs, key=off, reverse=True))


def validated(named: Sequence[tuple[str, float, float | None]]) -> Validation:
    """Compare predicted with measured times, ms (None: out of memory), of named placements.

    Raises PlacementError for a time that is no positive number, if fewer than three were measured, or if one of the two
    is the same for all.
    """
    checked = [(name, predicted, checked_ms(measured)) for name, predicted, measured in named]
    pairs = tuple(Pair(name, predicted, measured) for name, predicted, measured in checked if measured is not None)
    if len(pairs) < 3:
        raise PlacementError(f"{len(pairs)} measured placements say nothing of predictions: three or more are needed.")
    x = np.array([pair.predicted_ms for pair in pairs])
    y = np.array([pair.measured_ms for pair in pairs])
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise PlacementError("the placements all have the same time: nothing can be compared.")
    slope, offset = np.polyfit(x, y, 1).tolist()
    return Validation(
        pairs=pairs,
        out_of_memory=tuple(name for name, _, measured in named if measured is None),
        pearson=float(np.corrcoef(x, y)[0, 1]),
        rank=float(np.corrcoef(_ranks(x), _ranks(y))[0, 1]),
        slope=slope,
        offset_ms=offset,
    )


def _ranks(values: Floats) -> Floats:
    """Ranks of ``values``, equal ones sharing their mean."""
    less = (values[:, None] > values).sum(axis=1)
    equal = (values[:, None] == values).sum(axis=1)
    ranks: Floats = less + (equal - 1) / 2
    return ranks


def search_measured(
    subject: NetSubject, by: Search, measure: Measure, budget: Budget | int, seed: int = 0
) -> tuple[SearchResult, MeasuredProblem]:
    """Search with measured times in place of predicted ones; ``by`` begins with the placements that it was given.

    The result is the best that was measured, whatever was predicted of it.
    """
    problem = MeasuredProblem(subject, measure)
    return by.search(problem, budget, seed), problem
