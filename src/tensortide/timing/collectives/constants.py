"""Four constants of a collective on one type of device: launch, latency of a rank, share of the link, and ramp.

``t = base + rank * (n - 1) + phi(n) * S / (share * link) * (1 + 0.3 * sqrt(ramp / S))``; the square root describes the
way from small messages, which use a link badly, to large ones.
"""

from __future__ import annotations

import functools
import importlib.resources
import math
from collections.abc import Iterator, Mapping

import msgspec

from tensortide.graph.collectives import Collective
from tensortide.timing.catalogue import Device, catalogue
from tensortide.timing.intervals import WIDE, Pool

CONTENTION = 0.15
"""Slow-down of compute beside a collective: the share of a device's multiprocessors that its kernels take, 16 to 24 of
the 108 of an A100 and the 132 of an H100. Assumed: no step that the closed form is fitted on overlaps."""
RAMP = 0.3
RANGE_PADDING = 1.25
"""Sizes so much beyond the measured ones still count as within their range."""


class Constants(msgspec.Struct, frozen=True):
    """Constants of one kind on one type of device.

    Args:
        base_ns: time of a collective without bytes on one rank: launch and synchronization.
        rank_ns: what each further rank adds.
        share: share of the link's rate per direction that large messages reach.
        ramp_bytes: size at which a message takes 1.3 times what it would take at that rate.
        count: samples that the constants are fitted to.
        device: the device of the samples; empty: the mean of several.
        ranks: least and most ranks of those samples.
        nbytes: least and most total bytes.
        link_gbytes_per_s: rate of the link, in 1e9 bytes per second and direction, that ``share`` refers to.
        note: constants that the samples do not determine.
    """

    base_ns: float
    rank_ns: float
    share: float
    ramp_bytes: float
    count: int = 0
    device: str = ""
    ranks: tuple[int, int] = (0, 0)
    nbytes: tuple[int, int] = (0, 0)
    link_gbytes_per_s: float = 0.0
    note: str = ""

    def ns(self, kind: Collective, ranks: int, nbytes: float, link: float) -> float:
        """Nanoseconds of ``kind`` among ``ranks``, at least ``phi * S`` over a link of ``link`` bytes per ns."""
        latency = self.base_ns + self.rank_ns * (ranks - 1)
        return max(latency + self.transfer_ns(kind, ranks, nbytes, link, link), kind.phi(ranks) * nbytes / link)

    def transfer_ns(self, kind: Collective, ranks: int, nbytes: float, link: float, slowest: float) -> float:
        """Nanoseconds of moving the bytes, where the ``slowest`` rate on the way may be less than the link's."""
        rate = self.share * link
        ramp = RAMP * math.sqrt(self.ramp_bytes * nbytes) / rate
        return kind.phi(ranks) * (nbytes / min(rate, slowest) + ramp)

    def covers(self, device: str, ranks: int, nbytes: int, link: float) -> bool:
        """Return whether the samples are of ``device`` and ``link``, and ``ranks`` and ``nbytes`` in their range."""
        least, most = self.nbytes
        return (
            self.device == device
            and self.ranks[0] <= ranks <= self.ranks[1]
            and least / RANGE_PADDING <= nbytes <= most * RANGE_PADDING
            and math.isclose(link, self.link_gbytes_per_s)
        )


class Shipped(msgspec.Struct, frozen=True):
    """Constants that come with the package: by device or fabric, then by kind; pools of residuals by claim."""

    constants: Mapping[str, Mapping[str, Constants]]
    pools: Mapping[str, Pool]


@functools.cache
def shipped() -> Shipped:
    """The fitted constants of collectives that come with the package."""
    source = importlib.resources.files("tensortide.timing").joinpath("shipped/collectives.json")
    return msgspec.json.decode(source.read_bytes(), type=Shipped)


def fabric(link: str) -> str:
    """Return the fabric that the name of a ``link`` begins with: ``NVLink``, ``PCIe``, or ``""`` for one that nobody
    has measured here."""
    return next((name for name in ("NVLink", "PCIe") if link.startswith(name)), "")


def constants_of(kind: Collective, device: Device, link: str) -> Constants | None:
    """The constants of ``kind`` over ``link`` on ``device``, else on one of its architecture whose link is of the same
    fabric, else pooled over the fabric.

    None where nobody has measured a device with its fabric.
    """
    name = kind.like or kind.name
    return next((row[name] for row in _nearest(device, fabric(link)) if name in row), None)


def _nearest(device: Device, joined: str) -> Iterator[Mapping[str, Constants]]:
    table = shipped().constants
    if joined == fabric(device.intra_link):
        yield table.get(device.name, {})
    for other in catalogue():
        if other.arch == device.arch and fabric(other.intra_link) == joined:
            yield table.get(other.name, {})
    yield table.get(joined, {})


def pool_of(link: str, claim: str) -> Pool:
    """The residuals of a ``claim`` (``interpolated``, ``extrapolated``, ``swept``) over links of the same fabric."""
    return shipped().pools.get(f"{claim} {fabric(link)}", WIDE)
