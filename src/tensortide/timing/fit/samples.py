"""Samples: measured times of Works on a device, which models are fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.catalogue import Device
from tensortide.timing.rates import Columns, columns
from tensortide.timing.work import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Samples(NamedTuple):
    """Works that were measured on one device, with their times in nanoseconds.

    ``issue_ns`` of each time the host took to issue the op while the device waited: no part of a step in which the
    host is ahead of the device.
    """

    columns: Columns
    ns: NDArray[np.float64]
    issue_ns: float = 0.0

    @property
    def device(self) -> Device:
        return self.columns.device

    def __len__(self) -> int:
        return len(self.ns)

    def of_device(self) -> Samples:
        """The samples that last longer than the host took to issue them, with the device's part of their times."""
        kept = self.ns > 2 * self.issue_ns
        return Samples(self.columns.where(kept), self.ns[kept] - self.issue_ns)

    def where(self, kept: NDArray[np.bool_]) -> Samples:
        """The samples that ``kept`` marks."""
        return Samples(self.columns.where(kept), self.ns[kept], self.issue_ns)


def samples(device: Device, works: Sequence[Work], ns: Sequence[float], issue_ns: float = 0.0) -> Samples:
    """Samples of ``works`` on ``device``. Raises ValueError unless each has a positive time."""
    import numpy as np

    times = np.asarray(ns, dtype=float)
    if len(works) != len(times) or not (times > 0).all():
        raise ValueError("one positive time per work")
    return Samples(columns(works, device), times, issue_ns)
