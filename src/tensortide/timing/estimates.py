"""Estimate: a time with its 80 % interval and its provenance. Estimates add and scale."""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec

from tensortide.shown import Show

K = TypeVar("K", bound=Hashable)


class Provenance(enum.IntEnum):
    """Basis of a predicted time, the surest first.

    ``MEASURED``: this op at these shapes, on this device and software. ``CALIBRATED``: constants of its family were
    fitted on this very machine and software, and the op lies within the measured range. ``INTERPOLATED``: the same of
    another machine with this device. ``EXTRAPOLATED``: constants of other devices or
    families, or outside the range. ``PHYSICS``: peak rates of the datasheet alone. ``UNKNOWN``: no rule prices the op.
    """

    MEASURED = 0
    CALIBRATED = 1
    INTERPOLATED = 2
    EXTRAPOLATED = 3
    PHYSICS = 4
    UNKNOWN = 5

    def __str__(self) -> str:
        return "physics only" if self is Provenance.PHYSICS else self.name.lower()

    @property
    def meaning(self) -> str:
        """The basis of such a time in a few words."""
        return _MEANINGS[self]


_MEANINGS = {
    Provenance.MEASURED: "from measurements of the same work on this device",
    Provenance.CALIBRATED: "by models fitted on this machine, within the measured sizes",
    Provenance.INTERPOLATED: "by models fitted on this device, within the measured sizes",
    Provenance.EXTRAPOLATED: "by models fitted on other devices or sizes",
    Provenance.PHYSICS: "by the datasheet's peak rates alone",
    Provenance.UNKNOWN: "some ops have no known time",
}


Bound: TypeAlias = Literal["compute", "memory", "launch", "views"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
"""What limits an op: arithmetic, bytes, its launch; views launch nothing, and take the host alone."""

COMMON = 0.7
"""Share of the variance of an op's log residual that is common to the ops of its family: a wrong constant shifts all
of them. Assumed, not fitted."""

WORST_SHARE = 0.05
"""A sum has the worst provenance that holds more than this share of its time."""


class Estimate(msgspec.Struct, frozen=True):
    """A predicted time, as a monoid: sums do not depend on how they are grouped.

    Errors of ops of one family are mostly common and add up; those of different families are independent. So a sum
    keeps, for each family, the sum of its half-widths, and the sum of squares of all of them.

    Args:
        time_ns: the prediction; of known ops only.
        below_ns: by family, the sum over its ops of time times half-width below, in natural logarithms.
        above_ns: the same above.
        squares: the sums of squares of both, over all ops.
        by_provenance_ns: the time of each Provenance.
        unknown: ops without a time.
    """

    time_ns: float = 0.0
    below_ns: Mapping[str, float] = {}
    above_ns: Mapping[str, float] = {}
    squares: tuple[float, float] = (0.0, 0.0)
    by_provenance_ns: Mapping[Provenance, float] = {}
    unknown: int = 0

    @classmethod
    def of(cls, time_ns: float, below: float, above: float, provenance: Provenance, family: str = "") -> Estimate:
        """One op's time with its half-widths in natural logarithms (0.1: about 10 %)."""
        low, high = time_ns * below, time_ns * above
        return cls(time_ns, {family: low}, {family: high}, (low * low, high * high), {provenance: time_ns})

    @property
    def low_ns(self) -> float:
        """A tenth of the true times lie below."""
        return self.time_ns * math.exp(-self._half(self.below_ns, self.squares[0]))

    @property
    def high_ns(self) -> float:
        """A tenth of the true times lie above."""
        return self.time_ns * math.exp(self._half(self.above_ns, self.squares[1]))

    @property
    def log_width(self) -> float:
        """Half the width of the interval in natural logarithms."""
        return math.log(self.high_ns / self.low_ns) / 2 if self.time_ns else 0.0

    @property
    def provenance(self) -> Annotated[Provenance, Show("Basis")]:
        """The worst provenance that holds more than ``WORST_SHARE`` of the time; UNKNOWN if any op is."""
        if self.unknown:
            return Provenance.UNKNOWN
        holding = [kind for kind, ns in self.by_provenance_ns.items() if ns > WORST_SHARE * self.time_ns]
        return max(holding, default=Provenance.MEASURED)

    def _half(self, families: Mapping[str, float], squares: float) -> float:
        common = sum(ns * ns for ns in families.values())
        return math.sqrt(COMMON * common + (1 - COMMON) * squares) / self.time_ns if self.time_ns else 0.0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.time_ns + other.time_ns,
            _added(self.below_ns, other.below_ns),
            _added(self.above_ns, other.above_ns),
            (self.squares[0] + other.squares[0], self.squares[1] + other.squares[1]),
            _added(self.by_provenance_ns, other.by_provenance_ns),
            self.unknown + other.unknown,
        )

    def __mul__(self, times: int) -> Estimate:
        """``times`` runs of the same op, whose errors are the same each time."""
        return Estimate(
            self.time_ns * times,
            {family: ns * times for family, ns in self.below_ns.items()},
            {family: ns * times for family, ns in self.above_ns.items()},
            (self.squares[0] * times * times, self.squares[1] * times * times),
            {kind: ns * times for kind, ns in self.by_provenance_ns.items()},
            self.unknown * times,
        )

    __rmul__ = __mul__


UNKNOWN = Estimate(unknown=1)
"""The time of an op that no rule prices: it absorbs in sums, where it is counted."""


def _added(a: Mapping[K, float], b: Mapping[K, float]) -> dict[K, float]:
    return dict(a) | {key: a.get(key, 0.0) + value for key, value in b.items()}
