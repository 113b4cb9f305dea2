"""Fit of the four constants of collectives: robust least squares of log times (SciPy, of the extra ``dev``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scripts.training.held_out import HeldOut
from tensortide.graph.collectives import COLLECTIVES
from tensortide.timing.collectives.constants import RAMP, Constants
from tensortide.timing.collectives.sweep import sweep

Floats = NDArray[np.float64]

NAMES = ("base_ns", "rank_ns", "share", "ramp_bytes")
START = (8e3, 1e3, 0.6, 1e6)
BOUNDS = ((1e2, 1e1, 0.01, 1e0), (1e6, 1e6, 1.0, 1e10))
"""Of launch and rank in nanoseconds, the share of the link and the ramp in bytes."""
AT_BOUND = 0.01
"""A constant so near to its bound, in natural logarithms, is not identified by the samples."""
OUTLIER = 0.1
"""Log residuals beyond this count linearly: NCCL changes its algorithm and protocol within a sweep."""


class Collectives(NamedTuple):
    """Measured times ``ns`` of one ``kind`` on one type of device, its ``link`` in bytes per ns and direction."""

    device: str
    kind: str
    fabric: str
    link: float
    ranks: Floats
    nbytes: Floats
    ns: Floats

    def where(self, marked: NDArray[np.bool_]) -> Collectives:
        """The ``marked`` samples."""
        return self._replace(ranks=self.ranks[marked], nbytes=self.nbytes[marked], ns=self.ns[marked])

    def predicted(self, constants: Constants) -> Floats:
        """Nanoseconds that ``constants`` give."""
        pairs = zip(self.ranks.tolist(), self.nbytes.tolist(), strict=True)
        return np.array([constants.ns(COLLECTIVES[self.kind], int(n), size, self.link) for n, size in pairs])


def fit_collectives(measured: Collectives) -> Constants:
    """Fit ``base + rank (n - 1) + phi S / (share link) (1 + 0.3 sqrt(ramp / S))`` to log times.

    Among two ranks alone ``rank`` is no constant of its own: it is 0. One that ends on its bound is noted.
    """
    from scipy.optimize import least_squares

    kind, target = COLLECTIVES[measured.kind], np.log(measured.ns)
    ideal = kind.phi(measured.ranks) * measured.nbytes / measured.link
    root, more = np.sqrt(measured.nbytes), measured.ranks - 1
    one = bool((measured.ranks == measured.ranks[0]).all())

    def residuals(logs: Floats) -> Floats:
        base, rank, share, ramp = np.exp(logs)
        latency = base + (0.0 if one else rank) * more
        found: Floats = np.log(latency + ideal / share * (1 + RAMP * np.sqrt(ramp) / root)) - target
        return found

    low, high = np.log(BOUNDS)
    fitted = least_squares(residuals, np.log(START), loss="soft_l1", f_scale=OUTLIER, bounds=(low, high)).x
    stuck = [name for name, x, a, b in zip(NAMES, fitted, low, high, strict=True) if min(x - a, b - x) < AT_BOUND]
    base, rank, share, ramp = np.exp(fitted).tolist()
    return Constants(
        base, 0.0 if one else rank, share, ramp, len(measured.ns), measured.device,
        (int(measured.ranks.min()), int(measured.ranks.max())),
        (int(measured.nbytes.min()), int(measured.nbytes.max())),
        measured.link, f"{', '.join(stuck)} not identified" if stuck else "",
    )  # fmt: skip


def pooled(found: Iterable[Constants]) -> Constants:
    """The geometric mean of the constants of several devices, each over those that have identified it."""
    rows = list(found)
    base, rank, share, ramp = (_mean(name, rows) for name in NAMES)
    return Constants(base, rank, share, ramp, sum(row.count for row in rows))


def _mean(name: str, rows: Sequence[Constants]) -> float:
    known = [row for row in rows if name not in row.note] or rows
    values = [float(getattr(row, name)) for row in known]
    return math.exp(sum(map(math.log, values)) / len(values)) if all(values) else 0.0


def held_out(
    measured: Sequence[Collectives], fit: Callable[[Collectives], tuple[Constants, Collectives] | None]
) -> HeldOut:
    """Log residuals of the samples that ``fit`` sets aside for the constants that it fits to others."""
    residuals, predicted = [], []
    for each in measured:
        made = fit(each)
        if made is not None:
            constants, rest = made
            found = rest.predicted(constants)
            residuals.append(np.log(rest.ns / found))
            predicted.append(found)
    return HeldOut(np.concatenate(residuals), np.concatenate(predicted))


def joined(*parts: HeldOut) -> HeldOut:
    """All residuals of ``parts``."""
    return HeldOut(
        np.concatenate([part.residuals for part in parts]), np.concatenate([part.predicted_ns for part in parts])
    )


def without_ranks(each: Collectives, ranks: int) -> tuple[Constants, Collectives] | None:
    """Constants of the other numbers of ranks, and the samples of ``ranks`` ranks; None where there are no others."""
    aside = each.ranks == ranks
    if aside.all() or not aside.any() or len(np.unique(each.ranks)) < 3:
        return None
    return fit_collectives(each.where(~aside)), each.where(aside)


def without_sizes(each: Collectives) -> tuple[Constants, Collectives]:
    """Constants of every second size, and the samples of the others."""
    aside = np.unique(each.nbytes, return_inverse=True)[1] % 2 == 1
    return fit_collectives(each.where(~aside)), each.where(aside)


def without_device(
    fitted: Mapping[tuple[str, str], Constants], measured: Sequence[Collectives]
) -> Callable[[Collectives], tuple[Constants, Collectives] | None]:
    """A fit that pools the constants ``fitted`` to the other devices of ``measured``, which have one fabric."""

    def fit(each: Collectives) -> tuple[Constants, Collectives] | None:
        others = [row for row in measured if row.kind == each.kind and row.device != each.device]
        return (pooled(fitted[row.device, row.kind] for row in others), each) if others else None

    return fit


def swept(measured: Sequence[Collectives]) -> HeldOut:
    """Log residuals of every second size, interpolated between its neighbours among as many ranks."""
    residuals, predicted = [], []
    for each in measured:
        columns = (each.ranks.astype(int), each.nbytes.astype(int), each.ns)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        table = sweep(rows[::2])
        for ranks, nbytes, ns in rows[1::2]:
            found = table.ns(ranks, nbytes)
            if found is not None and not table.measured(ranks, nbytes):
                residuals.append(np.log(ns / found))
                predicted.append(found)
    return HeldOut(np.array(residuals), np.array(predicted))
