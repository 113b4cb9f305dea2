"""Links over which memory moves: their rates and latencies, the texts that name them, and what hides a move."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tensortide.errors import TensortideError
from tensortide.units import LONGEST, parse_bytes

SAFETY = Fraction(5, 2)
"""Transfers that an idle interval must outlast to hide a move out and back: two, and a margin."""

_LATENCY_NS = 45_000
"""Latency of a host link: the cost of starting a transfer (G10, MICRO 2023, its table of the machine)."""
_SPEED = re.compile(
    r"(?P<size>[0-9._]+(?:e[+-]?[0-9]+)?\s*(?:[kmgtpe]i?)?)\s*"
    r"(?:(?P<bits>(?-i:b)|bits?)|(?-i:B)|bytes?)\s*(?:/\s*s|ps)?\s*(?:,\s*(?P<us>[0-9]+(?:\.[0-9]+)?)\s*us)?",
    re.IGNORECASE,
)
"""A speed: ``b`` is a bit and ``B`` a byte, as in ``400Gb/s`` and ``50GB/s``."""
SLOWEST, LONGEST_LATENCY_NS = 10**3, 10**12
"""Least bytes per second of a link, and the most nanoseconds of its latency: sums of transfers stay below 2**63 ns."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a device to a tier of memory and back, with a copy engine for each direction.

    ``bytes_per_s`` is the rate out of the device, and into it unless ``in_bytes_per_s`` is given. ``latency_ns`` passes
    before a transfer starts. ``capacity_bytes`` is what the tier can take (None: no limit).
    """

    name: str
    bytes_per_s: Fraction
    latency_ns: int
    about: str = ""
    in_bytes_per_s: Fraction | None = None
    capacity_bytes: int | None = None

    def transfer_ns(self, nbytes: int, *, inwards: bool = False) -> int:
        """Nanoseconds to move ``nbytes`` out of the device, or ``inwards``; rounded up."""
        rate = self._rate(inwards)
        return self.latency_ns - (-nbytes * 10**9 * rate.denominator) // rate.numerator

    def hidden_above_ns(self, nbytes: int) -> int:
        """The least length of an idle interval that hides moving ``nbytes`` out and back is more than this: ``SAFETY``
        transfers of mean length."""
        return int(SAFETY * (self._exact_ns(nbytes, False) + self._exact_ns(nbytes, True)) / 2)

    @property
    def least_bytes(self) -> int:
        """Bytes from which on a transfer takes longer than its latency: less is not worth a move of its own."""
        return -int(-self.latency_ns * self.bytes_per_s // 10**9)

    def _exact_ns(self, nbytes: int, inwards: bool) -> Fraction:
        return self.latency_ns + Fraction(nbytes * 10**9) / self._rate(inwards)

    def _rate(self, inwards: bool) -> Fraction:
        return self.in_bytes_per_s if inwards and self.in_bytes_per_s is not None else self.bytes_per_s


def _pcie(generation: int, transfers_per_s: int) -> Link:
    """Sixteen lanes of 8, 16 or 32 GT/s, of whose bits 128 in 130 are data, to the three digits that are quoted."""
    rate = Fraction(round(Fraction(16 * transfers_per_s * 128, 130 * 8 * 10**6)) * 10**6)
    name = f"pcie{generation}"
    about = f"x16, {float(rate) / 1e9:g} GB/s + {_LATENCY_NS // 1000} us"
    return Link(name, rate, _LATENCY_NS, about)


LINKS: dict[str, Link] = {
    "nvme": Link("nvme", Fraction(32, 10) * 2**30, 65_000, "drive, 3.2 GiB/s + 65 us"),
    "pcie3": _pcie(3, 8 * 10**9),
    "pcie4": _pcie(4, 16 * 10**9),
    "pcie5": _pcie(5, 32 * 10**9),
}
"""The drive and the host link (PCIe 3) of G10's machine, and the host links that came after: as in the standards. What
a machine attains is less: give its own speed where it is known."""


def link(text: str) -> Link:
    """One of ``LINKS`` by name, or a speed: ``25GB/s`` (bytes), ``400Gb/s``, ``400Gbps`` or ``400Gbit/s`` (bits), also
    with a latency: ``25GB/s,10us``.

    Raises TensortideError for anything else, a number without a unit among them.
    """
    known = LINKS.get(text.strip().lower())
    if known is not None:
        return known
    match = _SPEED.fullmatch(text.strip()) if len(text) <= LONGEST else None
    rate = None if match is None else _bytes_per_s(match["size"], bits=match["bits"] is not None)
    if match is None or rate is None or not SLOWEST <= rate < 1 << 63:
        raise TensortideError(
            f"no link is called {text!r}: it is {', '.join(LINKS)}, or a speed with its unit, from 1kB/s on: 25GB/s "
            "(bytes), 200Gb/s or 200Gbit/s (bits), or 25GB/s,10us (with a latency)"
        )
    latency_ns = _LATENCY_NS if match["us"] is None else round(Fraction(match["us"]) * 1000)
    if latency_ns > LONGEST_LATENCY_NS:
        raise TensortideError(f"a latency of {match['us']} us: it is {LONGEST_LATENCY_NS // 1000:,} us at most")
    about = f"{float(rate) / 1e9:g} GB/s + {latency_ns / 1000:g} us"
    return Link(text.strip(), rate, latency_ns, about)


def rate(text: str) -> float:
    """The bytes per second of ``link(text)``. Raises TensortideError for a text with a latency, too."""
    found = link(text)
    if "," in text:
        raise TensortideError(f"{text!r} has a latency, but a rate alone is taken here: {text.partition(',')[0]}")
    return float(found.bytes_per_s)


def _bytes_per_s(size: str, *, bits: bool) -> Fraction | None:
    try:
        return Fraction(parse_bytes(size), 8 if bits else 1)
    except TensortideError:
        return None
