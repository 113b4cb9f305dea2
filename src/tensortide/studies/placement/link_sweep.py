"""Latency and bandwidth of links, fitted to the times of transfers of many sizes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from tensortide.errors import PlacementError, TensortideError
from tensortide.shown import Show
from tensortide.timing.links import Link
from tensortide.units import parse_bytes

if TYPE_CHECKING:
    from tensortide.run.link_speed import Sample

LEAST_SIZE, MOST_SIZE = 1_000, 1_000_000_000
STEPS = (1, 2, 5)
"""Sizes of a sweep in each power of ten."""


class SizeFit(NamedTuple):
    """Transfers of one size: the median of their times, the least, and that of the fitted line."""

    link: Annotated[str, Show("Link", "name")]
    way: Annotated[str, Show("Direction", "name")]
    size_bytes: Annotated[int, Show("Size, bytes", "amount")]
    median_ns: Annotated[float, Show("Median time")]
    bytes_per_s: Annotated[float, Show("Bandwidth, bytes/s")]
    line_ns: Annotated[float, Show("Fitted time", at_width=80)]
    least_ns: Annotated[int, Show("Fastest", at_width=100)]
    repeats: Annotated[int, Show("Repeats", at_width=90)]


@dataclass(frozen=True)
class LinkFit:
    """The line through the times of one direction of a link, and the samples that it was fitted to.

    ``latency_ns`` and ``bytes_per_s``; ``residual_share``: the median over sizes of how far the line is from the median
    time, as a share of that; ``worst_share``: the largest.
    """

    link: Annotated[str, Show("Link", "name")]
    way: Annotated[str, Show("Direction", "name")]
    bytes_per_s: Annotated[float, Show("Bandwidth, bytes/s")]
    latency_ns: Annotated[float, Show("Latency")]
    residual_share: Annotated[float, Show("Residual")]
    worst_share: Annotated[float, Show("Worst")]
    samples: tuple[Sample, ...]

    @property
    def sizes(self) -> list[SizeFit]:
        """Every size, measured and by the line."""
        sizes = [(one.nbytes, median_ns(one), one.times_ns) for one in self.samples]
        return [
            SizeFit(self.link, self.way, size, ns, size * 1e9 / ns, self.time_ns(size), min(times), len(times))
            for size, ns, times in sizes
        ]

    def time_ns(self, nbytes: int) -> float:
        """Time of a transfer by the line."""
        return self.latency_ns + nbytes * 1e9 / self.bytes_per_s


def read_sizes(text: str) -> tuple[int, ...]:
    """The sizes listed in ``text``: ``1e3,1MB``. Raises ValueError for sizes that are not above 0 and ascending, and
    for fewer than two."""
    sizes = tuple(_size(part.strip()) for part in text.split(","))
    if len(sizes) < 2 or any(one >= after for one, after in pairwise(sizes)):
        raise ValueError("give two sizes or more, in ascending order, such as 1e3,1e6,1e9.")
    return sizes


def _size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except TensortideError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is no size above 0: write 1e6, 1MB or 1MiB.")
    return size


def sizes_of(given: tuple[int, ...] | None, most: int) -> tuple[int, ...]:
    """Sizes of a sweep: those that are ``given``, or from a kilobyte to ``MOST_SIZE`` in steps of 1, 2 and 5, as far as
    ``most`` bytes.

    Raises PlacementError for one above ``most``, and where these are fewer than two sizes.
    """
    if given is None:
        every = (LEAST_SIZE * 10**power * step for power in range(7) for step in STEPS)
        given = tuple(size for size in every if size <= min(most, MOST_SIZE))
        if len(given) < 2:
            raise PlacementError("there is too little free memory for a sweep: give smaller sizes with --sizes.")
    elif given[-1] > most:
        listed = ",".join(map(str, given))
        raise PlacementError(
            f"--sizes {listed}: the largest does not fit; {most:,} B are a quarter of the free memory."
        )
    return given


def fitted(samples: Sequence[Sample]) -> tuple[LinkFit, ...]:
    """Fit each direction of each link. Raises PlacementError where times do not grow with size."""
    return tuple(_fit(way, tuple(found)) for way, found in groupby(samples, key=lambda one: (one.link, one.way)))


def _fit(key: tuple[str, str], samples: tuple[Sample, ...]) -> LinkFit:
    """Least squares of relative errors, so that every size counts alike; a latency below 0 is 0."""
    sizes = np.array([one.nbytes for one in samples], float)
    times = np.array([median_ns(one) for one in samples], float)
    scaled = sizes / times
    (latency, per_byte), *_ = np.linalg.lstsq(np.column_stack([1 / times, scaled]), np.ones(len(times)), rcond=None)
    if latency < 0:
        latency, per_byte = 0.0, scaled.sum() / (scaled @ scaled)
    if per_byte <= 0:
        raise PlacementError(f"times over {key[0]} {key[1]} do not grow with size: give larger sizes with --sizes.")
    off = np.abs((latency + per_byte * sizes) / times - 1)
    return LinkFit(*key, 1e9 / float(per_byte), float(latency), float(np.median(off)), float(off.max()), samples)


def median_ns(sample: Sample) -> float:
    """The median time, at least a nanosecond."""
    return max(1.0, statistics.median(sample.times_ns))


def link_of(fits: Sequence[LinkFit], name: str) -> Link:
    """The Link ``name`` by the fits of its two directions. It has one latency: their mean."""
    out, into = (next(one for one in fits if (one.link, one.way) == (name, way)) for way in ("out", "in"))
    latency_ns = round((out.latency_ns + into.latency_ns) / 2)
    return Link(name, Fraction(out.bytes_per_s), latency_ns, "measured", Fraction(into.bytes_per_s))
