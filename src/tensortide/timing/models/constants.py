"""Three constants of a family: ``o + max(F / (e P), B / (b BW))``, the share of peak rates that its ops reach."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tensortide.timing.catalogue import Device
from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ANY = "any"
"""Key of the constants of families that have none of their own, and of devices whose architecture has none."""


class Constants(msgspec.Struct, frozen=True):
    """Constants of one family: shares ``compute`` of the peak rate and ``memory`` of the bandwidth, and ``launch_ns``.

    ``count`` samples, of the devices ``fitted_on``; none: taken over, as ``note`` says.
    """

    compute: float
    memory: float
    launch_ns: float
    count: int = 0
    fitted_on: tuple[str, ...] = ()
    note: str = ""

    def ns(self, compute_ns: float, memory_ns: float) -> float:
        """Time of an op whose arithmetic at peak takes ``compute_ns`` and whose bytes take ``memory_ns``."""
        return self.launch_ns + max(compute_ns / self.compute, memory_ns / self.memory)


Table = Mapping[str, Mapping[str, Constants]]
"""Constants by architecture (``ANY``: pooled), then by family (``ANY``: all others)."""


@functools.cache
def shipped() -> Table:
    """The constants that come with the package."""
    source = importlib.resources.files("tensortide.timing").joinpath("shipped/constants.json")
    return msgspec.json.decode(source.read_bytes(), type=dict[str, dict[str, Constants]])


UNCALIBRATED = "rates of a CPU being achieved ones; uncalibrated: expect a factor of 2"
_ACHIEVED: Table = {ANY: {ANY: Constants(1.0, 1.0, 1500.0, note=UNCALIBRATED)}}


def for_device(device: Device) -> Table:
    """The constants for ``device``; a CPU's rates in the catalogue are achieved ones, and taken as they are."""
    return _ACHIEVED if device.kind == "cpu" else shipped()


def chosen(table: Table, device: Device, family: str) -> Constants:
    """The constants for ``family`` on ``device``: of its architecture where there are any, else pooled."""
    for arch in (device.arch, ANY):
        found = table.get(arch, {})
        for name in (family, family.removesuffix("_small"), family.removesuffix("_backward")):
            if name in found:
                return found[name]
    return table[ANY][ANY]


def predict(columns: Columns, table: Table) -> Floats:
    """Nanoseconds of ``columns``; where the peak rate is unknown, those of the bytes."""
    import numpy as np

    families = {name: chosen(table, columns.device, name) for name in set(columns.families)}
    rows = [families[name] for name in columns.families]
    compute, memory, launch = np.array([(row.compute, row.memory, row.launch_ns) for row in rows]).reshape(-1, 3).T
    found: Floats = launch + np.fmax(columns.compute_ns / compute, columns.memory_ns / memory)
    return found
