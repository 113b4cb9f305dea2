"""Samples: measured times of Works on a device, which models are fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.catalogue import Device
from tensortide.timing.models.domain import Domain, shaped
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


def joined(measured: Sequence[Samples]) -> Samples:
    """The samples of several steps on one device."""
    import numpy as np

    parts = [each.columns for each in measured]
    columns = Columns(
        parts[0].device,
        tuple(family for part in parts for family in part.families),
        tuple(dtype for part in parts for dtype in part.dtypes),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Columns._fields[3:]),
    )
    return Samples(columns, np.concatenate([each.ns for each in measured]))


def domain(measured: Sequence[Samples]) -> Domain:
    """The Domain of a model that is fitted to ``measured``."""
    import numpy as np

    families = [family for each in measured for family in each.columns.families]
    nbytes = np.concatenate([each.columns.nbytes for each in measured])
    dims = np.vstack([each.columns.dims for each in measured])[list(map(shaped, families))]
    ends = [(nbytes.min(), nbytes.max()), *((column.min(), column.max()) for column in dims.T if len(dims))]
    low, high = zip(*ends, strict=True)
    return Domain(
        devices=tuple(dict.fromkeys(each.device.name for each in measured)),
        dtypes=tuple(sorted({dtype for each in measured for dtype in each.columns.dtypes})),
        backward=any("_backward" in family for family in families),
        low=tuple(map(float, low)),
        high=tuple(map(float, high)),
    )
