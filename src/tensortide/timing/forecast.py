"""Forecast: the rows that predicted durations rest on, each with its interval and its provenance."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tensortide.timing.estimates import UNKNOWN, Bound, Estimate, Provenance


class ForecastRow(msgspec.Struct, frozen=True, gc=False):
    """One predicted Work: its family, the half-widths of its 80 % interval in natural logarithms, its provenance, the
    model that predicted it, what bounds it, and the host's work after it on a machine that is its own host."""

    family: str
    below: float
    above: float
    provenance: Provenance
    model: str
    bound: Bound
    host_ns: float = 0.0

    @property
    def common(self) -> str:
        """The ops whose errors are common to this one: those of its family, if its constants were fitted on the device;
        on another device all that the same rate bounds."""
        return self.family if self.provenance < Provenance.EXTRAPOLATED else self.bound

    def estimate(self, ns: float) -> Estimate:
        """The time ``ns`` of one run, with its interval."""
        if self.provenance is Provenance.UNKNOWN:
            return UNKNOWN
        return Estimate.of(ns, self.below, self.above, self.provenance, self.common)


class Forecast(msgspec.Struct, frozen=True):
    """Rows of distinct Works, and for each op of the graph the ``index`` of its row.

    ``device`` is the name in the catalogue of what they are predicted for; empty for any other device."""

    rows: tuple[ForecastRow, ...]
    index: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    device: str = ""
