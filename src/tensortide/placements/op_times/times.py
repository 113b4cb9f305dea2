"""Milliseconds of every layer on every device of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensortide.dtypes import ITEM_BYTES, tagged
from tensortide.errors import TensortideError
from tensortide.placements.modes import Mode
from tensortide.placements.nets.net import Net
from tensortide.placements.op_times.work import Works, layer_work, update_work
from tensortide.timing.clusters import Cluster, ClusterDevice
from tensortide.timing.clusters.device_graphs import RATES
from tensortide.timing.clusters.file import within
from tensortide.timing.paleo import Layer, PaleoPlatform
from tensortide.timing.paleo.parts import Work
from tensortide.timing.paleo.presets import PaleoDevice, gflops, paleo_device
from tensortide.timing.paleo.step import part_time

DTYPES = tagged("nets")
"""Dtypes by their names in settings; the published model knows float32 alone."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the datasheet's rates that ops attain, and what each op costs beside.

    ``compute`` and ``network`` are the published model's two platform factors. ``memory`` and ``launch_us`` are used by
    the corrections alone, ``dtype`` is that of all tensors.
    """

    compute: float = 1.0
    network: float = 1.0
    memory: float = 1.0
    launch_us: float = 5.0
    dtype: str = "float32"


@dataclass(frozen=True)
class OpTimes:
    """Milliseconds [layers, devices] of the forward and the backward parts, in topological order of layers.

    ``update``: of the optimizer on the weights of each layer; None: it takes no time.
    """

    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    update: NDArray[np.float64] | None = None


def layer_times(
    net: Net, cluster: Cluster, layers: tuple[Layer, ...], mode: Mode, rates: Rates, optimizer: str = "sgd"
) -> OpTimes:
    """Time every layer on every device.

    Without corrections a part takes its FLOPs at the peak and, added to them, each tensor at the memory's bandwidth,
    both times ``rates.compute``; a cycle of the clock at least. With ``mode.roofline`` each kernel of it takes the
    longer of the two, and a launch. With ``mode.update`` the optimizer takes the time of one kernel for each layer.

    Args:
        net: the network.
        cluster: the devices; a switch takes no time, since nothing runs on it.
        layers: ``net.layers`` at the batch wanted.
        mode: which of the published faults are corrected.
        rates: utilisations.
        optimizer: a name of ``OPTIMIZERS``.

    Raises:
        TensortideError: a device has no known memory, or no peak of ``rates.dtype``.
    """
    devices = net_devices(cluster)
    work = layer_work(net, layers, mode)
    updates = [tuple(filter(any, (update_work(layer, optimizer),))) for layer in layers]
    forward, backward, update = (
        np.array([[_part(works, device, mode, rates) for device in devices] for works in column], np.float64)
        for column in ([part[0] for part in work], [part[1] for part in work], updates)
    )
    return OpTimes(forward, backward, update if mode.update else None)


def _part(works: Works, device: NetDevice | None, mode: Mode, rates: Rates) -> float:
    return sum(_kernel(work, device, mode, rates) for work in works)


def _kernel(work: Work, device: NetDevice | None, mode: Mode, rates: Rates) -> float:
    if device is None:
        return 0.0
    if not mode.roofline:
        if not device.paleo.clock_mhz:
            raise TensortideError(f"{device.paleo.name} has no boost_mhz, which the published model needs")
        return part_time(work, device.paleo, PaleoPlatform("", rates.compute, rates.network)).together()
    size = ITEM_BYTES[DTYPES[rates.dtype]] / ITEM_BYTES["float32"]
    gigabyte = 1e9 if mode.decimal else 2**30
    compute = work.flops / 1e6 / device.peak(rates.dtype) / rates.compute
    memory = sum(work.tensors) * size / gigabyte / device.paleo.mem_bandwidth * 1000 / rates.memory
    return max(compute, memory) + (rates.launch_us / 1000 if mode.every_layer else 0.0)


# -- devices of nets --------------------------------------------------------------------------------
# The devices of a Cluster in the units of the published model, which layers are timed by.


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
