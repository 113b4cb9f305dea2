"""Comparison of statuses, metric by metric: values, difference, ratio, and which is better, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensortide.differences import Values
from tensortide.errors import MetricError
from tensortide.measures.metric import Metric, Missing, Number
from tensortide.measures.status import Entry, Status
from tensortide.shown import Shown

Verdict: TypeAlias = Literal["better", "worse", "equal", "different", ""]
"""Of another value against the reference; ``different`` where no direction is better, ``""`` where one is missing."""


@dataclass(frozen=True)
class MetricPair:
    """One metric of the reference and of another status; None where it was not computed."""

    metric: Metric
    reference: Entry | None
    other: Entry | None
    reason: str = ""
    """Why the two cannot be compared."""
    bounds: tuple[bool, bool] = (False, False)
    """Whether each value is a lower bound, as ops without a cost rule are left out."""

    @property
    def numbers(self) -> Values | None:
        """Both values, where both are numbers that can be compared."""
        x, y = (None if one is None else one.number for one in (self.reference, self.other))
        return None if x is None or y is None or self.reason else Values(x, y)

    @property
    def difference(self) -> Number | None:
        """The other value less that of the reference."""
        return None if self.numbers is None else self.numbers.difference

    @property
    def ratio(self) -> float | None:
        """The other value over that of the reference; None for a reference of 0."""
        return self.numbers.b / self.numbers.a if self.numbers is not None and self.numbers.a else None

    @property
    def change(self) -> float | None:
        """The difference as a part of the reference; 0 for equal values."""
        if self.numbers is None or not self.difference:
            return None if self.numbers is None else 0.0
        return self.difference / abs(self.numbers.a) if self.numbers.a else None

    @property
    def comparative(self) -> float | None:
        """The number that the metric's comparative makes of the two."""
        return None if self.numbers is None else self.metric.comparative.of_values(*self.numbers)

    @property
    def undecided(self) -> bool:
        """True if ops without a cost rule leave open which value is larger."""
        if self.difference is None or not any(self.bounds):
            return False
        return all(self.bounds) or (self.difference <= 0 if self.bounds[1] else self.difference >= 0)

    @property
    def verdict(self) -> Verdict:
        """Return which of the two is better."""
        if self.difference is None or self.undecided:
            return ""
        if not self.difference:
            return "equal"
        if not self.metric.direction:
            return "different"
        return "better" if (self.difference < 0) == (self.metric.direction == "lower") else "worse"

    @property
    def words(self) -> str:
        """The difference in words: ``1.96x smaller``, ``+2.0 %``, ``equal``, or why there is none."""
        if self.numbers is None:
            return self.reason or _absence(self.reference, self.other)
        if self.undecided:
            return "unknown: ops without a rule"
        if not self.difference or self.change is None or self.ratio is None:
            return "equal" if not self.difference else f"{'more' if self.difference > 0 else 'less'} than 0"
        if self.ratio > 0 and not 2 / 3 < self.ratio < 1.5:
            times = max(self.ratio, 1 / self.ratio)
            return f"{times:{',.0f' if times >= 100 else '.2f'}}x {'larger' if self.ratio > 1 else 'smaller'}"
        if abs(self.change) < 0.0001:
            return f"{'+' if self.change > 0 else '-'}<0.01 %"
        return f"{100 * self.change:+.2f} %" if abs(self.change) < 0.01 else f"{100 * self.change:+.1f} %"


def _absence(reference: Entry | None, other: Entry | None) -> str:
    for side, entry in (("the reference", reference), ("the other", other)):
        if entry is None:
            return f"not computed for {side}"
        if isinstance(entry.value, Missing):
            return f"none for {side}: {entry.value.reason}"
    return "no number"


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Metrics of several statuses against those of one of them, the ``reference``."""

    SECTION = "comparison"

    reference: Status
    others: tuple[Status, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that any has, those of the reference first."""
        return tuple(dict.fromkeys(name for one in (self.reference, *self.others) for name in one.entries))

    def pairs(self, other: int = 0) -> tuple[MetricPair, ...]:
        """Every metric of the reference and of the other number ``other``."""
        return tuple(self.pair(name, other) for name in self.names)

    def pair(self, name: str, other: int = 0) -> MetricPair:
        """One metric of the reference and of an other. Raises MetricError if none has it."""
        every, theirs = (self.reference, *self.others), self.others[other]
        metric = next((one.entries[name].metric for one in every if name in one.entries), None)
        if metric is None:
            raise MetricError(f"neither {' nor '.join(one.name for one in every)} has the metric {name!r}")
        entries = self.reference.entries.get(name), theirs.entries.get(name)
        bounds = self.reference.is_lower_bound(name), theirs.is_lower_bound(name)
        return MetricPair(metric, *entries, _reason(self.reference, entries[0], theirs, entries[1]), bounds)


def _reason(one: Status, mine: Entry | None, two: Status, other: Entry | None) -> str:
    """Return why the entries of two statuses are not comparable; empty if they are."""
    if mine is None or other is None:
        return ""
    if mine.metric.unit != other.metric.unit:
        return f"in {mine.metric.unit} and in {other.metric.unit}"
    if one.kind != two.kind and not mine.metric.of_model:
        return f"of a {_EXTENT[one.kind]} and of a {_EXTENT[two.kind]}"
    sizes = [entry.options.get("batch_size") or 1 for entry in (mine, other)]
    return "" if sizes[0] == sizes[1] else f"at batch sizes {sizes[0]} and {sizes[1]}"


_EXTENT = {"step": "whole step", "forward": "forward pass"}


def compare_statuses(statuses: Sequence[Status], *, reference: int = 0) -> Comparison:
    """Compare ``statuses`` with one of them. Raises MetricError for fewer than two, and no such ``reference``."""
    if len(statuses) < 2:
        raise MetricError("a comparison takes at least two")
    if not 0 <= reference < len(statuses):
        raise MetricError(f"there is no number {reference} among {len(statuses)}: count from 0")
    others = tuple(status for place, status in enumerate(statuses) if place != reference)
    return Comparison(statuses[reference], others)
