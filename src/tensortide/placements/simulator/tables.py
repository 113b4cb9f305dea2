"""Tables of a problem: everything that a simulated run reads, computed once for all placements.

Layers are numbered in topological order. A *part* is a layer's forward (its number) or backward (its number plus the
number of layers) computation, or the update of its weights (its number plus twice the number of layers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensortide.dtypes import ITEM_BYTES
from tensortide.errors import TensortideError
from tensortide.placements.arrays import Floats, Ints, Small
from tensortide.placements.nets.net import Net
from tensortide.placements.op_times.times import DTYPES, OpTimes, layer_times, net_devices
from tensortide.placements.op_times.work import OPTIMIZERS
from tensortide.placements.simulator.routing import Routing, routing
from tensortide.placements.simulator.settings import Settings
from tensortide.timing.clusters import Cluster

_MOST_NUMBERS = 1 << 31
_MOST_BYTES = 1 << 62

_MOST_OPS = 10**8
"""Layers times batches of a run, at most: seconds of simulation, which Ctrl-C does not end."""


class Tables(NamedTuple):
    """Flat arrays of a problem, as the compiled kernel and plain Python read them; times in ms, sizes in bytes.

    ``successors[first[k]:first[k + 1]]`` are the layers that part k hands its result to: children of a forward part,
    parents of a backward part. ``times`` [part * devices + device]. ``hops`` of the route from i to j are those from
    ``route[i * devices + j]`` on, up to the next; a row of ``hop_*`` each. ``rank`` orders ops that wait for a device,
    the smallest first (empty: first come, first served).
    """

    first: Small
    successors: Small
    nbytes: Ints
    resident: Ints
    """Bytes of a layer on its device throughout."""
    times: Floats
    route: Small
    hop_lane: Small
    hop_rate: Floats
    hop_latency: Floats
    cycle: Floats
    """Shortest time of a transfer out of each device."""
    roots: Small
    rank: Floats
    capacity: Floats
    layers: int
    parts: int
    """Parts of a batch: two for each layer, three where weights are updated."""
    devices: int
    lanes: int
    batches: int
    in_flight: int
    step_batches: int
    """Batches of a step, after which weights are updated."""
    backward: bool
    fifo: bool
    last_use: bool
    keeps_ends: bool
    """Outputs that no layer reads are resident until their backward part."""
    gigabyte: float
    network: float
    op_gap: float
    transfer_gap: float
    penalty: float


def tables(net: Net, cluster: Cluster, settings: Settings, times: OpTimes | None = None) -> Tables:
    """Compute the tables of ``net`` on ``cluster``.

    Args:
        net: layers, none of them shared by several devices (see ``nets.expand``).
        cluster: devices and channels.
        settings: of the run.
        times: measured or predicted elsewhere, in place of the model's.

    Raises:
        TensortideError: times or priorities are not one for each layer.
    """
    mode = settings.mode
    layers = net.layers(settings.batch_size)
    found = times or layer_times(net, cluster, layers, mode, settings.rates, settings.optimizer)
    shape = (len(layers), len(cluster.devices))
    given = [each for each in (found.forward, found.backward, found.update) if each is not None]
    if any(each.shape != shape for each in given):
        shapes = " and ".join(str(each.shape) for each in given)
        raise TensortideError(f"times are {shapes}: one for each of {shape}.")
    for each in given:
        for layer, device in np.argwhere(~(np.isfinite(each) & (each >= 0))).tolist():
            raise TensortideError(
                f"layer {net.order[layer]} takes {each[layer, device]} ms on device {device} "
                f"({cluster.devices[device].row.name}): times are 0 or more, and finite."
            )
    size = ITEM_BYTES[DTYPES[settings.dtype]]
    states = OPTIMIZERS[settings.optimizer].states
    copies = 2 + states if mode.training_memory and settings.include_backward else 1
    clocks = [0.0 if one is None else one.paleo.clock_mhz for one in net_devices(cluster)]
    routed = routing(cluster, routed=mode.routed, egress=settings.egress)
    made = assemble(
        parents=net.parents,
        children=net.children,
        nbytes=[math.prod(layer.output) * size for layer in layers],
        resident=[layer.params * size * copies for layer in layers],
        times=found,
        routed=routed,
        capacity=[(device.capacity_bytes or 0) * settings.device_memory_utilization for device in cluster.devices],
        cycle=[0.0 if mode.roofline or not clock else 1 / clock / 1000 for clock in clocks],
        settings=settings,
    )
    if settings.batches * len(layers) > _MOST_OPS:
        raise TensortideError(
            f"{settings.batches:,} batches of {len(layers)} layers are too many to simulate: "
            f"{_MOST_OPS // len(layers):,} batches at most. Fewer, in steady state, tell the time of each."
        )
    return made


def assemble(
    *,
    parents: Sequence[Sequence[int]],
    children: Sequence[Sequence[int]],
    nbytes: Sequence[int],
    resident: Sequence[int],
    times: OpTimes,
    routed: Routing,
    capacity: Sequence[float],
    cycle: Sequence[float],
    settings: Settings,
) -> Tables:
    """Lay out tables from lists by layer (topological order) and by device; see ``Tables`` for what they mean.

    Raises:
        TensortideError: priorities are not one for each layer, or numbers are beyond what the kernel counts with.
    """
    count, devices = len(parents), len(capacity)
    slots = int(min(settings.pipeline_batches, settings.batches))
    timed = [times.forward, times.backward]
    if times.update is not None and settings.include_backward:
        timed.append(times.update)
    if settings.priority is not None and len(settings.priority) != count:
        raise TensortideError(f"priority has {len(settings.priority)} numbers: one for each of {count} layers.")
    _check_countable(count, devices, slots, len(timed), 2 * sum(nbytes) + sum(resident))
    successors = [*children, *parents]
    hops = [routed.routes.get((i, j), ()) for i in range(devices) for j in range(devices)]
    flat = [hop for route in hops for hop in route]
    penalty = settings.memory_penalization_factor
    return Tables(
        first=_offsets(successors),
        successors=np.array([one for of in successors for one in of], np.int32),
        nbytes=np.array(nbytes, np.int64),
        resident=np.array(resident, np.int64),
        times=np.ascontiguousarray(np.vstack(timed), np.float64).ravel(),
        route=_offsets(hops),
        hop_lane=np.array([hop.lane for hop in flat], np.int32),
        hop_rate=np.array([hop.gbytes_per_s for hop in flat], np.float64),
        hop_latency=np.array([hop.latency_ms for hop in flat], np.float64),
        cycle=np.array(cycle, np.float64),
        roots=np.array([i for i in range(count) if not parents[i]], np.int32),
        rank=np.array((settings.priority or ()) * len(timed), np.float64),
        capacity=np.array(capacity, np.float64),
        layers=count,
        parts=len(timed) * count,
        devices=devices,
        lanes=len(routed.lanes),
        batches=int(settings.batches),
        in_flight=slots,
        step_batches=1 if slots == 1 else int(settings.batches),
        backward=settings.include_backward,
        fifo=settings.ties == "fifo",
        last_use=settings.releases_at_last_use,
        keeps_ends=settings.mode.training_memory and settings.include_backward,
        gigabyte=1e9 if settings.mode.decimal else float(2**30),
        network=float(settings.comm_penalization),
        op_gap=settings.op_gap_us / 1000,
        transfer_gap=settings.transfer_overhead_us / 1000,
        penalty=0.0 if penalty is None else float(penalty),
    )


def _check_countable(layers: int, devices: int, slots: int, parts: int, nbytes: int) -> None:
    """Raise TensortideError for more than the kernel counts with, of layers in so many ``parts`` whose tensors have
    ``nbytes`` in each of ``slots``."""
    if parts * layers * devices * slots >= _MOST_NUMBERS:
        raise TensortideError(
            f"{slots} batches of {layers} layers in flight on {devices} devices are too many: lower pipeline_batches."
        )
    if nbytes * slots >= _MOST_BYTES:
        raise TensortideError(f"the tensors of {slots} batches in flight have 2^62 bytes or more: check their shapes.")


def _offsets(lists: Sequence[Sequence[object]]) -> Small:
    return np.cumsum([0, *map(len, lists)]).astype(np.int32)
