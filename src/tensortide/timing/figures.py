"""Figures that times depend on, of any device, and the order of devices by them.

Where the catalogue leaves one blank, it is inferred from devices of the same architecture, within their order: a blank
is neither an advantage nor a fault.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Collection

from tensortide.timing.catalogue import Device, catalogue

LOW_POWER_WATTS = 75.0
LOW_POWER_SHARE = 0.6
"""Share of its peak that a card of so little power sustains, between the 0.45 to 0.53 of fp32 products measured one
after the other on P4 and T4 (medians, against larger cards) and the 0.65 that steps of models reach there."""

UNITS, CACHE_MBYTES = 108.0, 32.0
"""Compute units and last-level cache of a device of whose architecture nobody says any."""

FIGURES = (
    *("memory_gbytes_per_s", "compute_units", "l2_mbytes", "tdp_watts", "fp64_tflops", "fp32_tflops", "tf32_tflops"),
    *("fp32_matrix_tflops", "fp16_tflops", "bf16_tflops", "fp8_tflops", "int8_tops", "fp4_tflops"),
)
"""Columns of the catalogue that times depend on; of each, more is better."""


def compute_units(device: Device) -> float:
    """Compute units of ``device``."""
    return figure(device, "compute_units") or UNITS


def last_level_bytes(device: Device) -> float:
    """Bytes of the last-level cache of ``device``."""
    return 1e6 * (figure(device, "l2_mbytes") or CACHE_MBYTES)


def low_power(device: Device) -> bool:
    """Tell whether ``device`` may not hold its clocks, for lack of power."""
    watts = figure(device, "tdp_watts")
    return watts is not None and watts <= LOW_POWER_WATTS


def sustained(device: Device) -> float:
    """Share of its peak rates that ``device`` sustains under load, as far as its power tells."""
    return LOW_POWER_SHARE if low_power(device) else 1.0


# -- order ------------------------------------------------------------------------------------------


def at_least(better: Device, lesser: Device) -> bool:
    """Tell whether ``better`` is as good as ``lesser``: in every figure that both have, or as one that is as good."""
    return any(_as_good(each, lesser) for each in _no_better(better))


def peers(device: Device) -> list[Device]:
    """The other devices of the catalogue that have the architecture of ``device``, but for those that yield. A device
    of the user's own is another one, whatever its name."""
    if not device.arch:
        return []
    return [each for each in settling() if each != device and _comparable(each, device)]


@functools.cache
def settling() -> tuple[Device, ...]:
    """The devices of the catalogue that do not yield to the others."""
    return tuple(each for each in catalogue() if not each.yields)


def surpassed(device: Device, names: Collection[str]) -> list[Device]:
    """The best of the vendor's devices of these ``names`` and of other architectures that ``device`` is as good as, in
    every figure that both have, and the best of those that devices are that it is as good as."""
    elsewhere = [each for each in catalogue() if each.name in names and not _comparable(each, device)]
    alike = [each for each in elsewhere if (each.kind, each.vendor) == (device.kind, device.vendor)]
    found: list[Device] = []
    for each in _no_better(device):
        lesser = [other for other in alike if _no_less(each, other)]
        found += [one for one in lesser if one not in found and not any(_better(other, one) for other in lesser)]
    return found


def _better(a: Device, b: Device) -> bool:
    return _no_less(a, b) and not _no_less(b, a)


@functools.cache
def _no_better(device: Device) -> tuple[Device, ...]:
    """``device`` and those that it is as good as, and those that they are as good as."""
    found, others = [device], peers(device)
    for each in found:
        found += [other for other in others if other not in found and _as_good(each, other)]
    return tuple(found)


def _as_good(better: Device, lesser: Device) -> bool:
    if better is lesser:
        return True
    return _comparable(better, lesser) and _no_less(better, lesser)


def _no_less(better: Device, lesser: Device) -> bool:
    """Tell whether no figure that both have is less of ``better``."""
    pairs = [(getattr(better, name), getattr(lesser, name)) for name in FIGURES]
    return all(None in pair or pair[0] >= pair[1] for pair in pairs)


def _comparable(a: Device, b: Device) -> bool:
    return bool(a.arch) and (a.arch, a.kind) == (b.arch, b.kind)


# -- blanks -----------------------------------------------------------------------------------------

_FOR_PEAK = {
    **dict.fromkeys(("compute_units", "l2_mbytes"), ("fp32_tflops", "bf16_tflops", "fp16_tflops")),
    "fp32_matrix_tflops": ("fp32_tflops",),
    **dict.fromkeys(("tf32_tflops", "fp16_tflops", "bf16_tflops"), ("bf16_tflops", "fp16_tflops", "fp32_tflops")),
}
"""Figures that are inferred, and the rates in proportion to which devices of an architecture have them."""


def figure(device: Device, name: str) -> float | None:
    """The figure ``name`` of ``device``; where it is blank, what its architecture tells of it, None for nothing.

    An inferred figure is at least that of every device that is no better, and at most that of every one that is no
    worse, as far as the catalogue has them.
    """
    known: float | None = getattr(device, name)
    return known if known is not None or not device.arch or name not in _FOR_PEAK else _inferred(device, name)


@functools.cache
def _inferred(device: Device, name: str) -> float | None:
    below = [_known_or_guessed(each, name) for each in _no_better(device)]
    above = [getattr(each, name) for each in peers(device) if at_least(each, device)]
    least = max((value for value in below if value is not None), default=None)
    return None if least is None else min([least, *(value for value in above if value is not None)])


def _known_or_guessed(device: Device, name: str) -> float | None:
    """The figure, else the median of those of the other devices of the architecture, in proportion to their peak."""
    known: float | None = getattr(device, name)
    if known is not None:
        return known
    values = [_in_proportion(device, each, name) for each in peers(device) if getattr(each, name) is not None]
    return statistics.median(values) if values else None


def _in_proportion(device: Device, other: Device, name: str) -> float:
    """The figure that ``device`` would have at the peak of ``other``."""
    rates = ((getattr(device, rate), getattr(other, rate)) for rate in _FOR_PEAK[name])
    ratio = next((mine / its for mine, its in rates if mine is not None and its is not None), 1.0)
    return float(getattr(other, name) * ratio)
