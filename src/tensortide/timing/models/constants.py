"""Three constants of a family: ``o + max(F / (e P), B / (b BW))``, the share of peak rates that its ops reach."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tensortide.timing.catalogue import Device
from tensortide.timing.models.domain import Domain
from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ANY = "any"
"""Key of the constants of families that have none of their own, and of devices whose architecture has none."""

NAMES = ("compute", "memory", "launch_ns")


class Constants(msgspec.Struct, frozen=True):
    """Constants of one family: shares ``compute`` of the peak rate and ``memory`` of the bandwidth, and ``launch_ns``.

    ``count`` samples, of the ``domain``; none: taken over, as ``note`` says, which also names constants that the
    samples do not identify.
    """

    compute: float
    memory: float
    launch_ns: float
    count: int = 0
    domain: Domain = Domain()
    note: str = ""

    def ns(self, columns: Columns) -> Floats:
        """Nanoseconds of ``columns``."""
        return formula(columns, self.compute, self.memory, self.launch_ns)

    def identified(self, name: str) -> bool:
        """Tell whether the samples identify the constant ``name``."""
        return name not in self.note

    def sure(self, compute_ns: float, memory_ns: float) -> bool:
        """Tell whether the samples identify the constant that an op of these least times mostly rests on."""
        parts = {"compute": compute_ns / self.compute, "memory": memory_ns / self.memory, "launch_ns": self.launch_ns}
        return self.identified(max(parts, key=lambda name: parts[name]))


def formula(columns: Columns, compute: float | Floats, memory: float | Floats, launch_ns: float | Floats) -> Floats:
    """Nanoseconds of ``columns`` by three constants; where the peak rate is unknown, those of the bytes."""
    import numpy as np

    found: Floats = launch_ns + np.fmax(columns.compute_ns / compute, columns.memory_ns / memory)
    return found


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
    """Nanoseconds of ``columns``, each by the constants of its family."""
    import numpy as np

    families = {name: chosen(table, columns.device, name) for name in set(columns.families)}
    rows = [families[name] for name in columns.families]
    return formula(columns, *np.array([(row.compute, row.memory, row.launch_ns) for row in rows]).reshape(-1, 3).T)
