"""Placements by formula, named as in the published cases."""

from __future__ import annotations

import re
from collections.abc import Callable

from tensortide.errors import TensortideError

NAMED: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "alt": lambda layers, devices: tuple(i % devices for i in range(layers)),
    "contig": lambda layers, devices: tuple(i * devices // layers for i in range(layers)),
    "contig_gpu": lambda layers, devices: tuple(1 + i * (devices - 1) // layers for i in range(layers)),
}
"""Devices of ``layers`` layers on ``devices`` devices: in turn, in runs of equal length, in such runs without device 0.
``all0``, ``all1``, ...: one device for all."""


def named_placement(name: str, layers: int, devices: int) -> tuple[int, ...]:
    """The placement called ``name``: ``all`` with a device, or a row of ``NAMED``.

    Raises:
        TensortideError: an unknown name, or a device that does not exist.

    Examples:
        >>> named_placement("contig_gpu", 5, 3)
        (1, 1, 1, 2, 2)
        >>> named_placement("all2", 2, 3)
        (2, 2)
    """
    if one := re.fullmatch(r"all([0-9]+)", name):
        device = int(one[1])
        if device >= devices:
            raise TensortideError(f"placement {name!r}: devices are 0 to {devices - 1}.")
        return (device,) * layers
    if name not in NAMED:
        raise TensortideError(f"no placement is called {name!r}: it is all0, all1, ..., {', '.join(NAMED)}.")
    if name == "contig_gpu" and devices < 2:
        raise TensortideError("placement 'contig_gpu' leaves device 0 out: it needs two devices or more.")
    return NAMED[name](layers, devices)
