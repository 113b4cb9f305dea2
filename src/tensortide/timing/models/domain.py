"""Domain of a fitted model: the devices, dtypes and sizes of its samples. Beyond it a prediction extrapolates."""

from __future__ import annotations

import msgspec

from tensortide.timing.catalogue import Device
from tensortide.timing.work import Work

PADDING = 1.25
"""Factor by which a size may exceed the largest of the samples, or fall below the smallest."""
_SHAPED = ("mm", "addmm", "bmm", "linear", "recurrent", "convolution", "attention", "softmax", "normalization")


class Domain(msgspec.Struct, frozen=True):
    """``devices`` by their names in the catalogue, ``dtypes``, and whether ops of a ``backward`` pass were among the
    samples; ``low`` and ``high`` are the ends of their bytes and of the four dimensions of ``Work``."""

    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    backward: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def covers(self, work: Work, device: Device) -> bool:
        """Tell whether ``work`` on ``device`` lies among the samples.

        The shape of an op that visits each element, or moves bytes, does not matter: its bytes alone count.
        """
        sizes = (work.nbytes, *work.dims) if shaped(work.family) else (work.nbytes,)
        return (
            device.name in self.devices
            and work.dtype in self.dtypes
            and (self.backward or "_backward" not in work.family)
            and all(a / PADDING <= n <= b * PADDING for n, a, b in zip(sizes, self.low, self.high, strict=False))
        )


def shaped(family: str) -> bool:
    """Tell whether the time of ops of ``family`` depends on their dimensions as well as on their bytes."""
    return family.startswith(_SHAPED)
