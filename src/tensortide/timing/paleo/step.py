"""Time of a training step on one worker, as Paleo predicts it. Times are milliseconds."""

from __future__ import annotations

from typing import NamedTuple

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device
from tensortide.timing.paleo.layers import Layer
from tensortide.timing.paleo.nets import Net
from tensortide.timing.paleo.parts import BYTES, Work, parts
from tensortide.timing.paleo.presets import PLATFORMS, PaleoDevice, PaleoPlatform, find_device, find_platform

DEVICE, PLATFORM = "K80", "tensorflow"
"""Paleo's own defaults."""


class PartTime(NamedTuple):
    """Milliseconds of one part of a layer: computing, and moving its tensors."""

    compute: float = 0.0
    memory: float = 0.0

    def together(self, overlap: bool = False) -> float:
        """The slower of the two if they overlap, else their sum."""
        return max(self) if overlap else self.compute + self.memory


class LayerTime(NamedTuple):
    """Milliseconds of a layer: forward, gradient of its data, gradient of its weights."""

    name: str
    forward: PartTime
    data: PartTime
    weights: PartTime

    def backward(self, overlap: bool = False) -> float:
        """Milliseconds of both gradients; with ``overlap``, of the slower of all computation and all memory."""
        both = PartTime(self.data.compute + self.weights.compute, self.data.memory + self.weights.memory)
        return both.together(overlap)


class StepTime(NamedTuple):
    """Milliseconds of a step, by layer and in total. ``backward`` is the gradients of data and weights together."""

    layers: tuple[LayerTime, ...]
    forward: float
    backward: float
    update: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.update


def step(
    net: Net,
    device: str | Device = DEVICE,
    *,
    batch: int | None = None,
    platform: str | PaleoPlatform = PLATFORM,
    overlap: bool = False,
) -> StepTime:
    """The time of one training step of ``net`` on one ``device``.

    Args:
        net: as ``read`` returns it.
        device: a name of ``DEVICES``, or a device of the catalogue or your own.
        batch: rows of every input; None: as the file says.
        platform: a name of ``PLATFORMS``, or shares of the peaks of your own.
        overlap: let computation and memory of a layer overlap, as Paleo's option of a pipeline does.

    Raises:
        TensortideError: an unknown name, shapes that do not fit at this batch, or layers split over workers.
    """
    if net.split:
        raise TensortideError(
            f"{net.name}: layers are split over workers: paleo.hybrid predicts that, on many devices."
        )
    found, platform = find_device(device), find_platform(platform)
    timed = tuple(layer_time(layer, found, platform) for layer in net.layers(batch))
    forward = sum(layer.forward.together(overlap) for layer in timed)
    backward = sum(layer.backward(overlap) for layer in timed)
    return StepTime(timed, forward, backward, update_time(net.params(), found))


def layer_time(layer: Layer, device: PaleoDevice, platform: PaleoPlatform) -> LayerTime:
    """Milliseconds of the parts of ``layer``."""
    return LayerTime(layer.name, *(part_time(part, device, platform) for part in parts(layer)))


def part_time(work: Work, device: PaleoDevice, platform: PaleoPlatform) -> PartTime:
    """Milliseconds of ``work``: its FLOPs at the peak and each tensor at the bandwidth (of 2^30 bytes), both times the
    platform's share; a cycle of the clock at least, unless there is nothing to do."""
    cycle = 1 / device.clock_mhz / 1000
    compute = max(cycle, work.flops / 1e9 / device.peak_gflops * 1000 / platform.compute) if work.flops else 0.0
    per_byte = 1000 / 2**30 / device.mem_bandwidth / platform.compute
    return PartTime(compute, sum(max(cycle, nbytes * per_byte) for nbytes in work.tensors))


def update_time(params: int, device: PaleoDevice) -> float:
    """Milliseconds of adding the gradients to ``params`` weights: two are read and one is written, at the peaks."""
    if not params:
        return 0.0
    return sum(part_time(Work(2.0 * params, (params * BYTES,) * 3), device, PLATFORMS["ideal"]))
