"""Parts of placed networks and steps, as reports list them: devices, links, units, and stretches of these."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import msgspec

from tensortide.graph.module_paths import within
from tensortide.shown import Show

if TYPE_CHECKING:
    from tensortide.placements.graphs.placed_step import PlacedStep
    from tensortide.placements.simulator.simulation import Simulation


class DeviceUse(msgspec.Struct, frozen=True):
    """A device, by its number if it has no name. ``libraries_bytes`` of its peak are workspaces of libraries, None of
    ``capacity_bytes`` is unlimited. ``priced_share``: of all ops of a step, those whose time on it is known."""

    device: Annotated[int | str, Show("Device", "name")]
    type: Annotated[str, Show("Type", "name", at_width=90)]
    units: Annotated[int, Show("Units")]
    ops: Annotated[int, Show("Ops")]
    busy_ns: Annotated[int, Show("Busy")]
    idle_share: Annotated[float, Show("Idle")]
    peak_bytes: Annotated[int, Show("Peak memory")]
    libraries_bytes: Annotated[int, Show("libraries", at_width=110, if_any=True)]
    capacity_bytes: Annotated[float | None, Show("Memory")]
    priced_share: float = 1.0

    @property
    def used_share(self) -> Annotated[float | None, Show("used", bar=110)]:
        """The share of its memory that is used at the peak."""
        return self.peak_bytes / self.capacity_bytes if self.capacity_bytes else None


class LinkUse(msgspec.Struct, frozen=True):
    """Transfers from a device to another, and the ``share`` of the step in which their link is taken."""

    source: Annotated[int | str, Show("From", "name")]
    target: Annotated[int | str, Show("To", "name")]
    link: Annotated[str, Show("Link", "name")]
    transfers: Annotated[int, Show("Transfers")]
    size_bytes: Annotated[int, Show("Bytes")]
    time_ns: Annotated[int, Show("Busy")]
    share: Annotated[float, Show("of the step")]


class Averaged(msgspec.Struct, frozen=True):
    """Gradients that a device averages with its ``replicas``, those that correspond to it in other groups.
    ``exposed_ns`` of the time no computation hides: a ``share`` of the step."""

    device: Annotated[str, Show("Device", "name")]
    replicas: Annotated[str, Show("with")]
    exchanges: Annotated[int, Show("Collectives")]
    gradients_bytes: Annotated[int, Show("Gradients")]
    sent_bytes: Annotated[int, Show("sent per link")]
    buffers_bytes: Annotated[int, Show("Buffers")]
    time_ns: Annotated[int, Show("Time")]
    exposed_ns: Annotated[int, Show("Exposed")]
    share: Annotated[float, Show("of the step")]


class Unit(msgspec.Struct, frozen=True):
    """A unit or layer; the time of its ops is that on its device, without exchanges beside them."""

    unit: Annotated[str, Show("Unit", "path")]
    device: Annotated[int | str, Show("Device", "text", pick=True)]
    ops: Annotated[int, Show("Ops")] = 1
    time_ns: Annotated[int, Show("Time")] = 0


class Stretch(msgspec.Struct, frozen=True):
    """Units that follow each other on one device, from the first to the last one."""

    device: Annotated[int | str, Show("Device", "name")]
    units: Annotated[int, Show("Units")]
    time_ns: Annotated[int, Show("Time")]
    first: Annotated[str, Show("From", "path", fold=True)]
    last: Annotated[str, Show("To", "path", fold=True)]


class DividedModule(msgspec.Struct, frozen=True):
    """A module in shards, and the devices of these: of a shard's unit, or of the units inside it."""

    module: Annotated[str, Show("Module", "path", fold=True)]
    along: Annotated[str, Show("Along", "name")]
    op: Annotated[str, Show("of", "name", at_width=100)]
    sizes: Annotated[str, Show("Sizes")]
    devices: Annotated[str, Show("Devices of the shards")]


def _stretches(units: Iterable[Unit]) -> tuple[Stretch, ...]:
    runs = ([*some] for _, some in itertools.groupby(units, key=lambda unit: unit.device))
    return tuple(Stretch(a[0].device, len(a), sum(one.time_ns for one in a), a[0].unit, a[-1].unit) for a in runs)


# -- networks of layers -----------------------------------------------------------------------------


def net_devices(run: Simulation) -> tuple[DeviceUse, ...]:
    """The devices of the cluster."""
    layers, devices, whole = Counter(run.placement), run.cluster.devices, run.makespan
    busy, ops = [0.0] * len(devices), Counter[int]()
    for event in run.trace:
        if event.kind != "wakeup" and not event.on_lane:
            busy[event.resource] += event.end - event.start
            ops[event.resource] += 1
    every = enumerate(zip(run.cluster.keys, devices, busy, run.peaks, run.tables.capacity.tolist(), strict=True))
    return tuple(
        DeviceUse(
            *(key, one.row.name, layers[i], ops[i], round(ms * 1e6), 1 - ms / whole if whole else 0.0, peak, 0, most)
        )
        for i, (key, one, ms, peak, most) in every
    )


def net_links(run: Simulation) -> tuple[LinkUse, ...]:
    """The pairs of devices that exchange data."""
    ms: dict[tuple[int, int], list[float]] = {}
    for event in run.trace:
        if event.kind == "transfer" and event.source is not None and event.target is not None:
            ms.setdefault((event.source, event.target), []).append(event.end - event.start)
    nbytes, keys = _bytes_between(run), run.cluster.keys
    return tuple(
        LinkUse(keys[a], keys[b], "", len(took), nbytes[a, b], round(sum(took) * 1e6), sum(took) / run.makespan)
        for (a, b), took in sorted(ms.items())
    )


def _bytes_between(run: Simulation) -> Counter[tuple[int, int]]:
    """Bytes that each device sends to each other: outputs once per device, gradients once per edge; of all batches."""
    found = Counter[tuple[int, int]]()
    for producer, children in enumerate(run.net.children):
        here, there = run.placement[producer], [run.placement[child] for child in children]
        back = [(at, here) for at in there if run.settings.include_backward]
        for pair in (*((here, at) for at in {*there}), *back):
            found[pair] += int(run.tables.nbytes[producer]) * run.settings.batches
    return found


def net_stretches(run: Simulation) -> tuple[Stretch, ...]:
    """The layers in topological order."""
    pairs = zip(run.net.order, run.placement, strict=True)
    return _stretches(Unit(name, run.cluster.keys[device]) for name, device in pairs)


# -- captured steps ---------------------------------------------------------------------------------


def devices(found: PlacedStep) -> tuple[DeviceUse, ...]:
    """The devices of the cluster, of the first group if there are several."""
    run, whole, count, unknown = found.simulated, found.step_ns, len(found.ready.graph), found.ready.times.unknown
    units, ops, libraries = Counter(run.place), Counter(run.device.tolist()), run.step.libraries.resident(run.place)
    every = enumerate(zip(run.step.cluster.devices, run.busy_ns, run.peak_bytes, strict=True))
    return tuple(
        DeviceUse(
            *(one.name, one.row.name, units[i], ops[i], busy, 1 - busy / whole if whole else 0.0, peak),
            *(libraries[i], one.capacity_bytes, 1 - unknown[i] / count),
        )
        for i, (one, busy, peak) in every
    )


def links(found: PlacedStep) -> tuple[LinkUse, ...]:
    """The directions of links that have transfers, inside the first group if there are several."""
    run, names = found.simulated, [device.name for device in found.simulated.step.cluster.devices]
    busy: dict[int, list[int]] = {}
    for wire, ns in zip(run.send_lane.tolist(), (run.send_end_ns - run.send_start_ns).tolist(), strict=True):
        busy.setdefault(wire, []).append(ns)
    every = ((wire, busy[i], run.moved_bytes[i]) for i, wire in enumerate(run.step.cluster.wires) if i in busy)
    return tuple(
        LinkUse(names[a.source], names[a.target], a.link.name, len(ns), size, sum(ns), sum(ns) / found.step_ns)
        for a, ns, size in every
    )


def averages(found: PlacedStep) -> tuple[Averaged, ...]:
    """For each device of the first of several groups what it averages with the others."""
    from tensortide.placements.graphs.exchanges import exposed_ns  # whose package has placed steps

    replicas = found.ready.replicas
    if replicas is None:
        return ()
    names, size, whole = [one.name for one in replicas.whole.devices], len(replicas.cluster), found.step_ns
    beside, buffers, rows = found.simulated.step.beside, Counter[int](), []
    for each in () if beside is None else beside.exchanges:
        buffers[int(found.simulated.device[each.op])] += each.buffer_bytes
    for i, own in enumerate(found.exchange_runs):
        took = sum(one.end_ns - one.start_ns for one in own)
        exposed = took if beside is None else exposed_ns(own)
        counts = (len(own), sum(one.nbytes for one in own), sum(map(replicas.sent_bytes, own)), buffers[i])
        share = exposed / whole if whole else 0.0
        rows.append(Averaged(names[i], ", ".join(names[i + size :: size]), *counts, took, exposed, share))
    return tuple(rows)


def units(found: PlacedStep) -> tuple[Unit, ...]:
    """The units in the order of their first ops."""
    run, of_op = found.simulated, found.simulated.step.units.of_op
    ops, times = Counter(of_op), Counter[int]()
    for unit, ns, computes in zip(of_op, (run.end_ns - run.start_ns).tolist(), run.step.computes, strict=True):
        times[unit] += ns if computes else 0
    return tuple(Unit(name, at, ops[i], times[i]) for i, (name, at) in enumerate(found.device_of.items()))


def stages(found: PlacedStep) -> tuple[Stretch, ...]:
    """The units in order. Those that only read values for the host divide none."""
    own = found.simulated.step.units
    reading = {*own.hosts} - {*own.home}
    return _stretches(unit for number, unit in enumerate(found.units) if number not in reading)


def modules(found: PlacedStep) -> tuple[DividedModule, ...]:
    """The modules in shards."""

    def on(path: str) -> str:
        inside = (str(unit.device) for unit in found.units if within(unit.unit.partition(" ")[0], path))
        return "+".join(dict.fromkeys(inside))

    return tuple(
        DividedModule(a.module or "(root)", a.along, a.op, " + ".join(map(str, a.sizes)), ", ".join(map(on, a.shards)))
        for a in found.ready.sharded.modules
    )
