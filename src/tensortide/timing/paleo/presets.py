"""Devices, networks and platforms as Paleo ships them: its datasheet figures and its fitted factors.

Kept apart from the device catalogue, whose figures differ. Sources: Paleo, revision 984bbf5 of March 2018 (devices,
networks, platforms), and its fork in Exprimo, revision 0cc62cb (V100), as said row by row.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple, TypeVar

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device
from tensortide.timing.links import Link

Preset = TypeVar("Preset")


class PaleoDevice(NamedTuple):
    """A device in the units of the formulas: fp32 peak in 1e9 FLOP/s, memory bandwidth in GB/s, clock in MHz (of a CPU
    times its cores; 0: unknown)."""

    name: str
    peak_gflops: float
    mem_bandwidth: float
    clock_mhz: float


class PaleoPlatform(NamedTuple):
    """Shares of the peaks that a framework reaches: of computation (and memory), and of the network."""

    name: str
    compute: float
    network: float
    source: str = "your own"


_PALEO, _FORK = "Paleo 984bbf5", "Paleo's fork 0cc62cb"
_SOLVED = "solved from Paleo's published results; its clock is assumed, and no result depends on it"


def _device(name: str, fp32_tflops: float, gbytes_per_s: float, mhz: float, source: str) -> Device:
    return Device(
        name=name, fp32_tflops=fp32_tflops, memory_gbytes_per_s=gbytes_per_s, boost_mhz=mhz, compute_source=source
    )


DEVICES = {
    found.name: found
    for found in (
        _device("TITAN_X", 6.144, 336.5, 1000, _PALEO),
        _device("K20", 3.52, 208, 1000, _PALEO),
        _device("K20X", 3.935, 250, 1000, _PALEO),
        _device("K40", 4.29, 288, 745, _PALEO),
        _device("K80", 5.6, 480, 560, _PALEO),
        _device("GEFORCE_780_TI", 5.04, 336, 875, _PALEO),
        _device("GEFORCE_750_M", 0.7227, 80, 941, _PALEO),
        _device("CPU_I7", 0.289, 68, 210000, _PALEO),
        _device("CPU_I7_4770K", 0.206, 68, 140000, _SOLVED),
        _device("V100", 15.7, 900, 1530, _FORK),
    )
}
"""Paleo's devices by name; the clock of a CPU is that of all its cores together."""

NETWORKS = {
    name: Link(name, Fraction(gbits_per_s * 10**9, 8), 0, _PALEO)
    for name, gbits_per_s in (
        ("aws", 2),
        ("ethernet", 10),
        ("ethernet20", 20),
        ("infiniband", 70),
        ("pcie2", 64),
        ("pcie3", 128),
    )
}
"""Paleo's networks between workers by name. They have no latency."""

PLATFORMS = {
    found.name: found
    for found in (
        PaleoPlatform("ideal", 1.0, 1.0, "the peaks themselves"),
        PaleoPlatform("caffe", 0.21, 0.56, _PALEO),
        PaleoPlatform("mxnet", 0.49, 0.72, _PALEO),
        PaleoPlatform("tensorflow", 0.62, 0.72, _PALEO),
    )
}
"""Paleo's fitted platform factors by the name of the framework."""


def gflops(tflops: float) -> float:
    """A rate of the catalogue in 1e9 per second: its decimal digits moved, so that 6.144 is 6144 to the bit."""
    return float(Fraction(str(tflops)) * 1000)


def paleo_device(row: Device) -> PaleoDevice:
    """A device of the catalogue, or of a Cluster, in the units of the formulas. Raises TensortideError for one without
    an fp32 rate."""
    if row.fp32_tflops is None:
        raise TensortideError(f"{row.name} has no fp32_tflops, which layers are timed by")
    cores = row.compute_units or 1 if row.kind == "cpu" else 1
    return PaleoDevice(row.name, gflops(row.fp32_tflops), row.memory_gbytes_per_s, (row.boost_mhz or 0.0) * cores)


def find_device(named: str | Device) -> PaleoDevice:
    """The device called ``named``, or a device of your own, in the units of the formulas.

    Raises:
        TensortideError: no device is called that (with near names), or it has no fp32 rate or clock.
    """
    found = paleo_device(_find(named, DEVICES, "device") if isinstance(named, str) else named)
    if not found.clock_mhz:
        raise TensortideError(f"{found.name} has no boost_mhz, which the published model needs")
    return found


def find_network(named: str | Link) -> Link:
    """The network called ``named``; a link of your own as it is. Errors: see ``find_device``."""
    return _find(named, NETWORKS, "network") if isinstance(named, str) else named


def find_platform(named: str | PaleoPlatform) -> PaleoPlatform:
    """The platform called ``named``; one of your own as it is. Raises TensortideError as ``find_device``, and for a
    share that is not above zero."""
    found = _find(named, PLATFORMS, "platform") if isinstance(named, str) else named
    if not all(0 < share < float("inf") for share in (found.compute, found.network)):
        raise TensortideError(f"{found}: every share of a platform must be above zero and finite.")
    return found


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


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
