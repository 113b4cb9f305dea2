"""Real measurements of placements: a search that goes on with them, and how well predictions agree with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from tensortide.differences import relative
from tensortide.errors import PlacementError
from tensortide.placements import Bounds
from tensortide.placements.arrays import Floats, Placements
from tensortide.placements.digest import digest_of
from tensortide.placements.genes import OnDevices, Sharing
from tensortide.placements.problem import Derived, computed
from tensortide.shown import Show
from tensortide.studies.placement.placed_net import NetSubject

Measure: TypeAlias = Callable[[dict[str, OnDevices]], "float | None"]
"""The time of one batch, ms, with each layer on its device, or on those that share it; None where memory does not
suffice."""
NS = 1e6
"""Nanoseconds of a millisecond."""
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


class MeasuredProblem(Derived):
    """The problem of a network with scores that are measured: no chain and no prediction is a bound of them, as a real
    machine may beat any. ``log`` has every placement [genes] measured, with its time."""

    batches = 1
    penalty_ms_per_byte = OUT_OF_MEMORY_MS
    chained = None
    bounds = Bounds(0.0, 0.0)

    def __init__(self, subject: NetSubject, measure: Measure) -> None:
        super().__init__(subject.problem)
        self._subject, self._measure = subject, measure
        self.log: list[tuple[tuple[OnDevices, ...], float | None]] = []

    @computed
    def digest(self) -> str:
        measure = getattr(self._measure, "__qualname__", repr(self._measure))
        return digest_of((self.base.digest, "measured", measure))

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        """Measure ``placements`` one after another; one that runs out of memory counts as one byte over."""
        times = [self._timed(row) for row in placements]
        scores = np.array([OUT_OF_MEMORY_MS if ms is None else ms for ms in times])
        return scores, np.array([float(ms is None) for ms in times])

    @computed
    def sharing(self) -> Sharing | None:
        base = self.base.sharing
        return base and base._replace(bounds=self.bounds)

    def _timed(self, row: Placements) -> float | None:
        layers = self.base.on_devices(row.tolist())
        ms = checked_ms(self._measure(dict(zip(self._subject.net.order, layers, strict=True))))
        self.log.append((layers, ms))
        return ms


@dataclass(frozen=True)
class Pair:
    """A placement with its predicted and its measured time, ms; ``placement`` is what it is called, ``off_change`` its
    way from the line of best fit."""

    placement: Annotated[str, Show("Placement", "path", fold=True)]
    predicted_ms: float
    measured_ms: float
    off_change: Annotated[float | None, Show("Off the line")]

    @property
    def predicted_ns(self) -> Annotated[float, Show("Predicted")]:
        """The predicted time."""
        return self.predicted_ms * NS

    @property
    def measured_ns(self) -> Annotated[float, Show("Measured")]:
        """The measured time."""
        return self.measured_ms * NS


@dataclass(frozen=True)
class Validation:
    """Predictions against measurements: correlations, and the line ``measured = slope * predicted + offset``.

    ``out_of_memory`` names placements that could not be measured. ``rank`` is Spearman's correlation, ``pearson`` that
    of the times.
    """

    pairs: tuple[Pair, ...]
    out_of_memory: tuple[str, ...]
    pearson: Annotated[float, Show("Correlation of times", "ratio")]
    rank: Annotated[float, Show("Rank correlation", "ratio")]
    slope: Annotated[float, Show("Measured per predicted", "factor")]
    offset_ms: float

    @property
    def placements(self) -> Annotated[int, Show("Placements measured")]:
        """The number of placements that were measured."""
        return len(self.pairs)

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
    known = [(name, predicted, measured) for name, predicted, measured in checked if measured is not None]
    if len(known) < 3:
        raise PlacementError(f"{len(known)} measured placements say nothing of predictions: three or more are needed.")
    x, y = (np.array([one[which] for one in known]) for which in (1, 2))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise PlacementError("the placements all have the same time: nothing can be compared.")
    slope, offset = np.polyfit(x, y, 1).tolist()
    lines = [slope * predicted + offset for _, predicted, _ in known]
    off = [relative(max(line, 0), ms) for (_, _, ms), line in zip(known, lines, strict=True)]
    return Validation(
        pairs=tuple(Pair(*one, change) for one, change in zip(known, off, strict=True)),
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
