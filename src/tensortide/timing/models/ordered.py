"""Order of devices: one that is at least as good in every figure is never predicted slower than another of its
architecture."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tensortide.timing.catalogue import Device, catalogue
from tensortide.timing.models.tiles import compute_units, sustained
from tensortide.timing.rates import last_level_bytes, matrix_tflops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "int8")
_Figures = tuple[float, ...]


def at_least(better: Device, lesser: Device) -> bool:
    """Tell whether ``better`` is of the architecture of ``lesser`` and as good in every figure that times depend on."""
    if better is lesser:
        return True
    if better.kind != lesser.kind or better.arch != lesser.arch or not better.arch:
        return False
    return all(mine >= other for mine, other in zip(_figures(better), _figures(lesser), strict=True))


@functools.cache
def _figures(device: Device) -> _Figures:
    rates = (matrix_tflops(device, dtype) or 0.0 for dtype in _DTYPES)
    others = (device.memory_gbytes_per_s, compute_units(device), last_level_bytes(device), sustained(device))
    return (*others, *rates)


def ordered(predict: Callable[[Device], Floats], device: Device, measured: Collection[str]) -> Floats:
    """``predict(device)``, changed as little as the order of the catalogue's devices demands.

    Predictions for devices that were ``measured`` (their names) yield to each other alone. All others lie between
    those of the measured devices that are as good and those of the measured devices that are no better; among
    themselves the least of the lesser ones counts. NaN, of a dtype whose rate is unknown, yields to any number.
    """
    import numpy as np

    others = [each for each in catalogue() if each.name != device.name and each.arch == device.arch]
    anchors = [each for each in (device, *others) if each.name in measured]
    known: dict[_Figures, Floats] = {}  # devices of equal figures are predicted alike

    def plain(each: Device) -> Floats:
        figures = _figures(each)
        if figures not in known:
            known[figures] = predict(each)
        return known[figures]

    def anchored(each: Device) -> Floats:
        found: Floats = np.fmin.reduce([plain(lesser) for lesser in anchors if at_least(each, lesser)])
        return found

    def between(each: Device) -> Floats:
        above = [anchored(better) for better in anchors if at_least(better, each)]
        below = [anchored(lesser) for lesser in anchors if at_least(each, lesser)]
        found: Floats = np.fmin.reduce([np.fmax.reduce([plain(each), *above]), *below])
        return found

    if device in anchors:
        return anchored(device)
    lesser = [each for each in others if each not in anchors and at_least(device, each)]
    found: Floats = np.fmin.reduce([between(device), *map(between, lesser)])
    return found
