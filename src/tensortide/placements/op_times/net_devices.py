"""The devices of a Cluster in the units of the published model, which layers are timed by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tensortide.errors import TensortideError
from tensortide.timing.clusters import Cluster, ClusterDevice
from tensortide.timing.clusters.device_graphs import RATES
from tensortide.timing.clusters.file import within
from tensortide.timing.paleo.presets import PaleoDevice, gflops, paleo_device


class NetDevice(NamedTuple):
    """A device as Paleo's formulas take it, and its peaks in 1e9 FLOP/s by dtype."""

    paleo: PaleoDevice
    peaks: Mapping[str, float]

    def peak(self, dtype: str) -> float:
        """Peak in 1e9 FLOP/s of ``dtype``. Raises TensortideError if it is not known."""
        if dtype not in self.peaks:
            raise TensortideError(f"device {self.paleo.name!r} has no peak of {dtype}: it has {', '.join(self.peaks)}.")
        return self.peaks[dtype]


def net_devices(cluster: Cluster) -> tuple[NetDevice | None, ...]:
    """The devices of ``cluster``; None for a switch. Raises TensortideError where one has no fp32 rate or no known
    memory, which layers need."""
    with within(cluster.name):
        return tuple(None if each.is_switch else _net_device(each) for each in cluster.devices)


def _net_device(device: ClusterDevice) -> NetDevice:
    paleo = paleo_device(device.row)
    if device.capacity_bytes is None:
        raise TensortideError(f"the memory of {device.name!r} is not known: give its 'memory_bytes'")
    rates = {dtype: getattr(device.row, key) for dtype, key in RATES.items()}
    peaks = {dtype: gflops(rate) for dtype, rate in rates.items() if rate is not None}
    return NetDevice(paleo, peaks)
