"""One placement, simulated with everything that it tells: score, peaks, events, memory over time."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from tensortide.errors import TensortideError
from tensortide.placements import parts
from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.nets.assignments import Assignment, Gene, checked
from tensortide.placements.nets.net import Net
from tensortide.placements.nets.sharding import Expanded, expand
from tensortide.placements.op_times.times import OpTimes
from tensortide.placements.simulator.kernel import Record, new_record, run
from tensortide.placements.simulator.queues import EVENTS, FAILED, OPS, TRANSFERS
from tensortide.placements.simulator.routing import routing
from tensortide.placements.simulator.settings import Settings
from tensortide.placements.simulator.state import State, for_runs, new_state
from tensortide.placements.simulator.tables import Tables, tables
from tensortide.shown import Show
from tensortide.timing.clusters import Cluster

EventKind = Literal["wakeup", "op", "transfer", "hop", "update"]
KINDS: tuple[EventKind, ...] = ("wakeup", "op", "transfer", "hop")


class Event(NamedTuple):
    """One event in the order of handling, in ms. ``resource`` is the device of an op, the lane of a transfer.

    ``wakeup`` lets a free device or lane look at its queue; ``hop`` is a transfer at a device on its route, ``update``
    that of a layer's weights, with the last batch of a step. ``layer`` is empty for a wakeup. ``source`` and ``target``
    are those of the whole transfer.
    """

    kind: EventKind
    on_lane: bool
    resource: int
    batch: int
    layer: str
    backward: bool
    start: float
    end: float
    source: int | None = None
    target: int | None = None


class MemoryHistory(NamedTuple):
    """Bytes of each device [devices, moments] from each moment on, ms [moments]: 0, then the end of each event."""

    moments: Floats
    nbytes: Ints


@dataclass(frozen=True)
class Simulation:
    """A simulated run of one placement, in ``mode``.

    ``net`` has shards in place of layers that several devices share; ``placement`` is the device of each of its layers.
    ``score`` is the makespan with the penalty of over-use, or -1 where any over-use is too much; ms. ``peaks`` and
    ``over_use`` are bytes by device. ``jumps`` of the ``edges`` join layers on different devices.
    """

    mode: str
    net: Net
    cluster: Cluster
    settings: Settings
    placement: tuple[int, ...]
    score: float
    makespan: float
    peaks: tuple[int, ...]
    over_use: tuple[float, ...]
    events: int
    ops: int
    transfers: int
    tables: Tables

    devices = functools.cached_property(parts.net_devices)
    links = functools.cached_property(parts.net_links)
    stretches = functools.cached_property(parts.net_stretches)

    @property
    def makespan_ns(self) -> Annotated[int, Show("Time")]:
        """The makespan in nanoseconds."""
        return round(self.makespan * 1e6)

    @property
    def per_batch_ns(self) -> Annotated[int, Show("per batch", level=1)]:
        """The makespan by batches."""
        return round(self.makespan / self.settings.batches * 1e6)

    @property
    def over_bytes(self) -> Annotated[int, Show("Over memory", zero="-")]:
        """Bytes beyond the memory of devices, of all together."""
        return round(sum(self.over_use))

    @property
    def used_devices(self) -> Annotated[int, Show("Devices")]:
        """The number of devices that have a layer."""
        return len(set(self.placement))

    @property
    def fits(self) -> Annotated[bool, Show("Fits")]:
        """True if no device is used beyond its memory."""
        return not any(self.over_use)

    @property
    def edges(self) -> int:
        """Edges of the net."""
        return sum(map(len, self.net.children))

    @property
    def jumps(self) -> Annotated[int, Show("Edges across devices")]:
        """Edges between layers on different devices."""
        place = self.placement
        return sum(place[i] != place[child] for i, of in enumerate(self.net.children) for child in of)

    @functools.cached_property
    def lanes(self) -> tuple[str, ...]:
        """Names of devices, then of the lanes of transfers."""
        cluster = self.cluster
        devices = tuple(f"{i}: {d.row.name}" if cluster.numbered else d.name for i, d in enumerate(cluster.devices))
        return (*devices, *routing(cluster, routed=self.settings.mode.routed, egress=self.settings.egress).lanes)

    @functools.cached_property
    def record(self) -> Record:
        """Events as columns, in the order of handling."""
        record = new_record(self.events, self.tables.devices)
        _play(self.tables, self.placement, record)
        return record

    @property
    def trace(self) -> tuple[Event, ...]:
        """Events in the order of handling."""
        layers, devices, order = self.tables.layers, self.tables.devices, self.net.order
        found = zip(*(column.tolist() for column in self.record[:8]), strict=True)
        return tuple(
            Event(
                "update" if part >= 2 * layers else KINDS[kind],
                resource >= devices,
                resource % devices if resource < devices else resource - devices,
                batch,
                order[part % layers] if part >= 0 else "",
                layers <= part < 2 * layers,
                start,
                end,
                None if source < 0 else source,
                None if target < 0 else target,
            )
            for kind, resource, batch, part, start, end, source, target in found
        )

    @property
    def memory(self) -> MemoryHistory:
        """Bytes of each device over time."""
        base = np.zeros(self.tables.devices, np.int64)
        np.add.at(base, np.array(self.placement), self.tables.resident)
        moments = np.concatenate([[0.0], self.record.end])
        return MemoryHistory(moments, np.vstack([base, self.record.memory]).T)


def simulate(
    net: Net,
    cluster: Cluster,
    placement: Mapping[str, Gene] | Sequence[Gene] | Assignment,
    settings: Settings | None = None,
    *,
    times: OpTimes | None = None,
    **options: Any,
) -> Simulation:
    """Simulate one placement.

    Args:
        net: the network.
        cluster: devices and channels.
        placement: the device of each layer, in the order of ``net.order``, or by name; or several devices, which share
            a convolution.
        settings: of the run; default: those of ``Settings``, in ``accurate`` mode.
        times: of the layers, in place of the model's; none of them may be shared.
        options: fields of ``Settings`` that differ from ``settings``.

    Raises:
        TensortideError: the placement is of another net, names a device that does not exist or that runs nothing, or
            needs a link that the device graph lacks.

    Examples:
        >>> from tensortide.timing import Device, link
        >>> from tensortide.timing.clusters import joined
        >>> from tensortide.timing.paleo.layers import Entry
        >>> net = Net("tiny", {"data": Entry(type="Input", tensor=(32, 1000)),
        ...                    "fc": Entry(type="InnerProduct", parents=("data",), num_outputs=10)})
        >>> gpu = Device(name="GPU", fp32_tflops=1, memory_gbytes_per_s=68)
        >>> cluster = joined([gpu, gpu], link("16GB/s,0us"), capacity_bytes=10**9)
        >>> found = simulate(net, cluster, [0, 1], include_backward=False, launch_us=0)
        >>> found.mode, found.transfers, round(found.makespan, 6), found.peaks
        ('accurate', 1, 0.01049, (128000, 168040))
    """
    settings = replace(settings or Settings(), **options)
    devices = checked(placement, net, len(cluster.devices))
    _check_runnable(net, cluster, devices)
    expanded = expand(net, devices)
    if times is not None and expanded.net is not net:
        raise TensortideError("times of layers are given: none of the layers may be shared by several devices.")
    found = tables(expanded.net, cluster, settings, times)
    return _played(cluster, settings, expanded, found)


def _played(cluster: Cluster, settings: Settings, expanded: Expanded, found: Tables) -> Simulation:
    """Play the tables of one placement. Raises TensortideError if a link is missing."""
    makespan, state = _play(found, expanded.placement, new_record(0, 1))
    _check_linked(cluster, state.counts[FAILED])
    peaks = tuple(map(int, state.peak))
    over = tuple(max(0.0, peak - limit) for peak, limit in zip(peaks, found.capacity.tolist(), strict=True))
    return Simulation(
        mode=settings.mode.name,
        net=expanded.net,
        cluster=cluster,
        settings=settings,
        placement=expanded.placement,
        score=_score(makespan, over, settings.memory_penalization_factor),
        makespan=makespan,
        peaks=peaks,
        over_use=over,
        events=int(state.counts[EVENTS]),
        ops=int(state.counts[OPS]),
        transfers=int(state.counts[TRANSFERS]),
        tables=found,
    )


def _check_runnable(net: Net, cluster: Cluster, devices: Sequence[tuple[int, ...]]) -> None:
    """Raise TensortideError for a layer on a switch."""
    for name, of in zip(net.order, devices, strict=True):
        for device in of:
            if device not in cluster.placeable:
                where = cluster.names[device]
                raise TensortideError(f"layer {name!r} is placed on device {where}, a switch, which runs nothing.")


def _check_linked(cluster: Cluster, failed: int) -> None:
    """Raise TensortideError if the run ended where no link leads: at pair ``failed`` of devices, counted from 1."""
    if failed:
        i, j = divmod(int(failed) - 1, len(cluster.devices))
        raise TensortideError(
            f"{cluster.name}: no link leads from device {cluster.names[i]} ({cluster.devices[i].row.name}) to device"
            f" {cluster.names[j]} ({cluster.devices[j].row.name}), and the placement sends data there."
        )


def _score(makespan: float, over: Sequence[float], penalty_ms_per_byte: float | None) -> float:
    """The makespan, ms, with the penalty of over-use; -1 where any over-use is too much."""
    if penalty_ms_per_byte is None:
        return -1.0 if any(over) else makespan
    return makespan + sum(over) * penalty_ms_per_byte


def _play(t: Tables, placement: Sequence[int], record: Record) -> tuple[float, State]:
    """The makespan of one placement, ms, and what its run filled in."""
    state = new_state(t)
    state.device[:] = placement
    return run(for_runs(t), state, record), state
