"""Order of devices: one that is at least as good in every figure is never predicted slower than another of its
architecture, nor, if nobody measured it, than the best measured one of another architecture."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tensortide.timing.catalogue import Device
from tensortide.timing.figures import FIGURES, at_least, peers, settling, surpassed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def ordered(predict: Callable[[Device], Floats], device: Device, measured: Collection[str]) -> Floats:
    """``predict(device)``, changed as little as the order of the catalogue's devices demands.

    Predictions for devices that were ``measured`` (their names) yield to each other alone. All others lie between
    those of the measured devices that are as good and those of the measured devices that are no better; among
    themselves the least of the lesser ones counts, and of the best measured devices of other architectures that they
    surpass. NaN, of a dtype whose rate is unknown, yields to any number.
    """
    import numpy as np

    others = peers(device)
    anchors = [each for each in (device, *others) if each.name in measured]
    known: dict[tuple[float | None, ...], Floats] = {}  # devices of equal figures are predicted alike

    def plain(each: Device) -> Floats:
        figures = tuple(getattr(each, name) for name in FIGURES)
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

    def settled(each: Device) -> Floats:
        lesser = [other for other in others if other not in anchors and at_least(each, other)]
        found: Floats = np.fmin.reduce([between(each), *map(between, lesser)])
        return found

    def capped(each: Device) -> Floats:
        slower = [ordered(predict, other, measured) for other in surpassed(each, measured)]
        above = [anchored(better) for better in anchors if at_least(better, each)]
        found: Floats = np.fmax.reduce([np.fmin.reduce([settled(each), *slower]), *above])
        return found

    if device in anchors:
        return anchored(device)
    if device in settling():
        return capped(device)
    better = [each for each in others if each not in anchors and at_least(each, device)]
    highest: Floats = np.fmax.reduce([capped(device), *map(capped, better)])  # these do not know of ``device``
    return highest
