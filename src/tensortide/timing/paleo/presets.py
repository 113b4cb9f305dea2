"""Devices, networks and platforms as Paleo ships them: its datasheet figures and its fitted factors.

Kept apart from the device catalogue, whose figures and units differ. Sources: Paleo, revision 984bbf5 of March 2018
(devices, networks, platforms), and its fork in Exprimo, revision 0cc62cb (V100). ``source`` says it row by row.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tensortide.errors import TensortideError

Preset = TypeVar("Preset")


class PaleoDevice(NamedTuple):
    """A device: fp32 peak in 1e9 FLOP/s, memory bandwidth in GB/s, clock in MHz (of a CPU times its cores)."""

    name: str
    peak_gflops: float
    mem_bandwidth: float
    clock_mhz: float
    source: str = "your own"


class Network(NamedTuple):
    """A link between workers: bandwidth in 1e9 bits per second. There is no latency."""

    name: str
    gbits_per_s: float
    source: str = "your own"


class Platform(NamedTuple):
    """Shares of the peaks that a framework reaches: of computation (and memory), and of the network."""

    name: str
    compute: float
    network: float
    source: str = "your own"


_PALEO, _FORK = "Paleo 984bbf5", "Paleo's fork 0cc62cb"
_SOLVED = "solved from Paleo's published results; its clock is assumed, and no result depends on it"

DEVICES = {
    found.name: found
    for found in (
        PaleoDevice("TITAN_X", 6144, 336.5, 1000, _PALEO),
        PaleoDevice("K20", 3520, 208, 1000, _PALEO),
        PaleoDevice("K20X", 3935, 250, 1000, _PALEO),
        PaleoDevice("K40", 4290, 288, 745, _PALEO),
        PaleoDevice("K80", 5600, 480, 560, _PALEO),
        PaleoDevice("GEFORCE_780_TI", 5040, 336, 875, _PALEO),
        PaleoDevice("GEFORCE_750_M", 722.7, 80, 941, _PALEO),
        PaleoDevice("CPU_I7", 289, 68, 210000, _PALEO),
        PaleoDevice("CPU_I7_4770K", 206, 68, 140000, _SOLVED),
        PaleoDevice("V100", 15700, 900, 1530, _FORK),
    )
}
"""Paleo's devices by name."""

NETWORKS = {
    found.name: found
    for found in (
        Network("aws", 2, _PALEO),
        Network("ethernet", 10, _PALEO),
        Network("ethernet20", 20, _PALEO),
        Network("infiniband", 70, _PALEO),
        Network("pcie2", 64, _PALEO),
        Network("pcie3", 128, _PALEO),
    )
}
"""Paleo's networks by name."""

PLATFORMS = {
    found.name: found
    for found in (
        Platform("ideal", 1.0, 1.0, "the peaks themselves"),
        Platform("caffe", 0.21, 0.56, _PALEO),
        Platform("mxnet", 0.49, 0.72, _PALEO),
        Platform("tensorflow", 0.62, 0.72, _PALEO),
    )
}
"""Paleo's fitted platform factors by the name of the framework."""


def find_device(named: str | PaleoDevice) -> PaleoDevice:
    """The device called ``named``; a device of your own as it is.

    Raises:
        TensortideError: no device is called that (with near names), or a rate is not above zero.
    """
    found = _find(named, DEVICES, "device") if isinstance(named, str) else named
    return _positive(found, "device", found.peak_gflops, found.mem_bandwidth, found.clock_mhz)


def find_network(named: str | Network) -> Network:
    """The network called ``named``; a network of your own as it is. Errors: see ``find_device``."""
    found = _find(named, NETWORKS, "network") if isinstance(named, str) else named
    return _positive(found, "network", found.gbits_per_s)


def find_platform(named: str | Platform) -> Platform:
    """The platform called ``named``; one of your own as it is. Errors: see ``find_device``."""
    found = _find(named, PLATFORMS, "platform") if isinstance(named, str) else named
    return _positive(found, "platform", found.compute, found.network)


def _find(name: str, table: Mapping[str, Preset], what: str) -> Preset:
    """The row of ``table`` called ``name``; case, spaces, dashes and underscores do not count."""
    by_plain = {_plain(known): known for known in table}
    if (known := by_plain.get(_plain(name))) is not None:
        return table[known]
    plain = _plain(name)
    near = [known for like, known in by_plain.items() if plain and (plain in like or like in plain)]
    near = near or [by_plain[like] for like in difflib.get_close_matches(plain, by_plain, n=4, cutoff=0.5)]
    near = near or list(table)
    raise TensortideError(f"Paleo has no {what} called {name!r}.\nNear names: {', '.join(near)}.")


def _positive(found: Preset, what: str, *rates: float) -> Preset:
    if not all(0 < rate < float("inf") for rate in rates):
        raise TensortideError(f"{found}: every rate of a {what} must be above zero and finite.")
    return found


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
