"""Hybrid training as Paleo predicts it: layers that every worker has, on its own rows, and layers split over workers.

The split layers take the rows of one worker after the other. Every part reads what it needs from other workers: nothing
of that overlaps with computation, except what the published formula takes back for a pipeline of the workers' rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tensortide.errors import TensortideError
from tensortide.timing.catalogue import Device
from tensortide.timing.links import Link
from tensortide.timing.paleo.layers import Layer
from tensortide.timing.paleo.nets import Net
from tensortide.timing.paleo.parts import BYTES
from tensortide.timing.paleo.presets import PaleoDevice, PaleoPlatform, find_device, find_network, find_platform
from tensortide.timing.paleo.scaling import EXCHANGES, NETWORK, send_time
from tensortide.timing.paleo.step import DEVICE, PLATFORM, layer_time, update_time

GROUP = 4
"""Workers with consecutive numbers that reach each other at the full bandwidth."""


class HybridTime(NamedTuple):
    """One step on ``workers`` devices, in milliseconds; ``batch`` is of all of them together."""

    workers: int
    batch: int
    shared: float
    """Forward and backward of the layers that every worker has."""
    split: float
    """Forward and backward of the layers that are split, for the rows of all workers."""
    exchange: float
    """Exchange of the weights of the layers that every worker has, by a tree."""
    update: float

    @property
    def total(self) -> float:
        return self.shared + self.split + self.exchange + self.update


def hybrid(
    net: Net,
    device: str | Device = DEVICE,
    network: str | Link = NETWORK,
    *,
    batch: int | None = None,
    platform: str | PaleoPlatform = PLATFORM,
) -> HybridTime:
    """One step of ``net`` on as many workers as its ``ModelParallel`` blocks have splits.

    Args:
        net: as ``read`` returns it; without such a block, one worker has all of it.
        device: of every worker; see ``step``.
        network: between workers; see ``scaling``.
        batch: rows of one worker; None: as the file says.
        platform: see ``step``.

    Raises:
        TensortideError: an unknown name, shapes that do not fit, or blocks with different splits.
    """
    found, network, platform = find_device(device), find_network(network), find_platform(platform)
    counts = sorted(set(net.split.values())) or [1]
    if len(counts) > 1:
        raise TensortideError(f"{net.name}: blocks are split over {counts} workers: one number for all.")
    workers = counts[0]
    layers = net.layers(batch)
    shared, forward, backward = 0.0, 0.0, 0.0
    for layer in layers:
        time, fetch = (
            layer_time(layer, found, platform),
            _slowest_fetch(net, layer, workers, found, network, platform),
        )
        if layer.name in net.split:
            forward += time.forward.together() + fetch
            backward += time.backward() + fetch
        else:
            shared += time.forward.together() + time.backward() + 2 * fetch
    pipelined = _pipelined(net, layers, workers, network)
    split = sum((part - pipelined) * workers + pipelined for part in (forward, backward))
    common = sum(layer.params for layer in layers if layer.name not in net.split)
    exchange = EXCHANGES["TreeAllReduce"](workers) * send_time(common * BYTES, network, platform)
    update = update_time(common, found) + update_time(net.params() - common, found)
    rows = (net.batch() if batch is None else batch) * workers
    return HybridTime(workers, rows, shared, split, exchange, update)


def _pipelined(net: Net, layers: tuple[Layer, ...], workers: int, network: Link) -> float:
    """Milliseconds of the first fetch that the formula takes back per worker: of elements, where bytes are meant."""
    first = next((layer for layer in layers if layer.name in net.split), None)
    if first is None:
        return 0.0
    return math.prod(first.inputs[0]) / 2**30 / float(network.bytes_per_s / 10**9) * 1000 * (workers - 1)


def _slowest_fetch(
    net: Net, layer: Layer, workers: int, device: PaleoDevice, network: Link, platform: PaleoPlatform
) -> float:
    """Milliseconds in which the worker that waits longest has its inputs of ``layer``, in one direction."""

    def fetch(worker: int | None) -> float:
        gbytes, total = float(network.bytes_per_s / 10**9), 0.0
        for shape, source in zip(layer.inputs, _sources(net, layer, worker), strict=True):
            if source == worker:
                continue
            # The bandwidth stays halved for every further input, as published.
            if len(layer.inputs) > 1 and (source or 0) // GROUP != (worker or 0) // GROUP:
                gbytes /= 2
            ms = math.prod(shape) * BYTES / 2**30 / gbytes * 1000 / platform.network
            total += max(1 / device.clock_mhz / 1000, ms)
        return total

    return max(map(fetch, range(workers))) if layer.name in net.split else fetch(None)


def _sources(net: Net, layer: Layer, worker: int | None) -> Iterator[int | None]:
    """The worker that each input of ``layer`` comes from, in their order; None: a layer that every worker has."""
    times, seen = Counter(layer.parents), Counter[str]()
    for parent in layer.parents:
        if parent not in net.split:
            yield None
        elif worker is not None and times[parent] == 1:  # the worker's own part
            yield worker
        else:
            yield seen[parent]
            seen[parent] += 1
