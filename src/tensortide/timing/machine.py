"""The Machine that a step runs on: its devices, and the links over which memory moves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device, device
from tensortide.timing.links import LINKS, Link
from tensortide.timing.rates import Efficiency, efficiency

__all__ = ["Machine", "MachineDevice", "Roof", "machine"]


class MachineDevice(msgspec.Struct, frozen=True):
    """One device of a Machine: its row of the catalogue, the bytes a process can use of its memory (None: unknown),
    and the number of its node."""

    row: Device
    usable_bytes: int | None = None
    node: int = 0


class Roof(msgspec.Struct, frozen=True):
    """The rates that a training step attains on a device, and the memory of the device."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: int | None

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which on a step is bound by compute."""
        return self.flops_per_s / self.bytes_per_s

    def seconds(self, flops: int, accessed_bytes: int) -> tuple[float, float]:
        """Time of the arithmetic and of moving the bytes; the step takes the longer of the two."""
        return flops / self.flops_per_s, accessed_bytes / self.bytes_per_s


class Machine(msgspec.Struct, frozen=True):
    """``devices`` by the names that graphs use (``cuda:0``), and the ``links`` from each device to a tier of memory.

    Each link has two copy engines, out and in, which run side by side with each other, with other links and with
    compute. ``efficiency`` replaces that of the architecture.
    """

    name: str
    devices: Mapping[str, MachineDevice]
    links: tuple[Link, ...] = ()
    efficiency: Efficiency | None = None

    def lanes(self, device: str) -> tuple[str, ...]:
        """The queues of work of ``device``: its own, then those of the copy engines of each link."""
        return (device, *(f"{link.name} {way}" for link in self.links for way in ("out", "in")))

    def roof(self) -> Roof:
        """The attained fp32 rates of the first device. Raises TensortideError if the catalogue does not have them."""
        first = next(iter(self.devices.values()))
        row, constants = first.row, self.efficiency or efficiency(first.row)
        if row.fp32_tflops is None:
            raise TensortideError(f"the fp32 rate of {row.name} is unknown")
        return Roof(
            name=self.name,
            flops_per_s=row.fp32_tflops * 1e12 * constants.compute,
            bytes_per_s=row.memory_gbytes_per_s * 1e9 * constants.memory,
            memory_bytes=first.usable_bytes,
        )


def machine(row: Device | str, links: tuple[Link, ...] = (LINKS["pcie4"],), name: str = "cuda:0") -> Machine:
    """A Machine of one device, given by its name in the catalogue or its row; a graph calls it ``name``.

    Raises TensortideError for a name that the catalogue does not have.
    """
    row = device(row) if isinstance(row, str) else row
    usable = None if row.memory_gbytes is None else int(row.memory_gbytes * 1e9)
    return Machine(row.name, {name: MachineDevice(row, usable)}, links)
