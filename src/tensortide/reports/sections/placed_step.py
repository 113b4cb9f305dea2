"""Section ``placed_step``: on which device each op of a captured step runs, what a step takes, and how good that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tensortide.cost import count
from tensortide.graph.model import within
from tensortide.placements.graphs.one_device import on_one_device
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.drawing import net_picture, step_picture
from tensortide.reports.pictures import Curve, Series, Spans
from tensortide.reports.sections import auto_shards, device_map, placed_run, placement
from tensortide.reports.sections.placed_assumptions import assumptions
from tensortide.reports.sections.placed_speed import throughput, verdict
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.studies.placement.placed_net import PlacedNet
from tensortide.timing.families import compute_dtype
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Rule
    from tensortide.placements.graphs import PlacedStep
    from tensortide.placements.graphs.one_device import OneDevice
    from tensortide.placements.search import SearchResult
    from tensortide.reports.drawing import Picture
    from tensortide.studies.placement.placed import Placed

__all__ = ["PICTURES", "document", "picture", "section"]

_ON_HOST = (
    " Ops that read a value or work on tensors in the host's memory run on the host, the rest of their modules where "
    "the search puts it; without a CPU in the file such ops stay with the others."
)
_RELEASED: Mapping[Rule, str] = {
    "last_use": "peaks with tensors released after their last use; --lifetimes eager: as memory and scale count",
    "eager": "peaks with tensors released as in eager mode",
}
PICTURES = ("timeline", "memory", "measured")
"""Keys of the blocks that figures draw; the last one is that of a run (``placed_run``)."""


def document(placed: Placed) -> Document:
    """Show ``placed``: of a captured step also the modules that were divided, what its device map lacks, and a run."""
    found, samples = placed.found, placed.samples
    if isinstance(found, PlacedNet):
        return placement.document(found)
    problem = found.ready.problem
    schedule, cluster = problem.schedule, found.simulated.step.cluster
    subtitle = f"{len(found.ready.graph):,} ops in {len(problem.names):,} units on {cluster.name}"
    settings: dict[str, Value] = {} if samples is None else {"batch": samples * schedule.micro_batches}
    settings |= {} if found.search is None else {"seed": found.search.seed}
    settings |= {
        "schedule": schedule.name,
        "micro_batches": schedule.micro_batches,
        "priority": schedule.priority,
        "lifetimes": problem.step.rule,
    }
    title = found.ready.captured.meta.workload or placed.asked.target
    made = section(found, samples).document(title, subtitle, settings=settings)
    return replace(made, sections=(*made.sections, *_further(placed, found)))


def _further(placed: Placed, found: PlacedStep) -> Iterator[Section]:
    if placed.shards is not None:
        yield auto_shards.section(placed.shards)
    if placed.notes:
        yield device_map.section(placed.notes)
    if placed.measured is not None:
        yield placed_run.section(found, placed.measured)


def picture(placed: Placed) -> Picture:
    """Draw the placement. Raises GraphError if it has too many layers or units."""
    found = placed.found
    return net_picture(found.run) if isinstance(found, PlacedNet) else step_picture(found)


def section(found: PlacedStep, samples: int | None = None) -> Section:
    """Make the section of ``found``; ``samples`` are those of the captured step, if it has any."""
    whole = on_one_device(found.ready)
    blocks: tuple[AnyBlock, ...] = (
        Note(text=verdict(found, whole), kind="verdict") if found.fits else Note(text=_lacking(found), kind="failure"),
        *(Note(text=text, kind="warning") for text in (*_unknown_times(found), *_pinned(found))),
        Facts(rows=tuple(_facts(found, samples, whole))),
        *([Note(text=_end(found.search, found))] if found.search else []),
        _devices(found),
        _links(found),
        _exchanges(found),
        _stages(found),
        _shards(found),
        _units(found),
        _lanes(found),
        *_memory(found),
        *(Note(text=text, kind="assumption") for text in assumptions(found)),
    )
    shown = (block for block in blocks if not isinstance(block, Table) or len(block))
    return Section("placed_step", "Placement", blocks=tuple(shown))


def _pinned(found: PlacedStep) -> Iterator[str]:
    """Name the units that are pinned, where all on one device would take less time."""
    names, pins = found.ready.problem.names, found.ready.problem.pins
    hosts = found.simulated.step.units.hosts
    if found.step_ns <= found.reference_ns:
        return
    times = _unit_times(found)
    for number in sorted(set(pins.values())):
        device = found.simulated.step.cluster.devices[number]
        units = sorted((unit for unit, at in pins.items() if at == number), key=lambda unit: -times[unit])
        listed = ", ".join(names[unit] for unit in units[:3]) + f" and {len(units) - 3:,} more" * (len(units) > 3)
        yield f"Pinned to {device.name}: {listed}." + _ON_HOST * (not set(hosts).isdisjoint(units))


def _unknown_times(found: PlacedStep) -> Iterator[str]:
    """Say on which devices ops run whose time there is unknown, why, and what to do."""
    if not found.stand_ins:
        return
    costs = count(found.ready.graph).costs
    run, stand_ins = found.simulated, found.ready.times.stand_ins
    for number, device in enumerate(run.step.cluster.devices):
        ops = [op for op, at in enumerate(run.device) if at == number and op in stand_ins[number]]
        views = [found.ready.graph[op] for op in ops if costs[op].cost is not None]
        dtypes = ", ".join(sorted({compute_dtype(view.inputs or view.outputs) for view in views}))
        if views:
            yield (
                f"{device.name}: the time of {len(views):,} of its ops is unknown, as {device.row.name} has no rate of "
                f"{dtypes}. That of their bytes stands in: it may be far too short, and draws ops there. Give the "
                "device its figures in the file (docs/place_graphs.md), or leave it out."
            )
        if rest := len(ops) - len(views):
            yield f"{device.name}: no cost rule prices {rest:,} of its ops; the time of their bytes stands in."


def _lacking(found: PlacedStep) -> str:
    """Say which device lacks how much, and for which units: those of most bytes on the one that lacks most."""
    run, memory = found.simulated, found.ready.problem.memory
    names = [device.name for device in run.step.cluster.devices]
    over = {name: nbytes for name, nbytes in zip(names, run.over_bytes, strict=True) if nbytes}
    worst = names.index(max(over, key=over.__getitem__))
    units = [unit for unit, device in enumerate(run.place) if device == worst]
    largest = sorted(units, key=lambda unit: -memory[unit])[:3]
    most = ", ".join(f"{found.ready.problem.names[unit]} ({format_bytes(int(memory[unit]))})" for unit in largest)
    lacks = ", ".join(f"{name} by {format_bytes(nbytes)}" for name, nbytes in over.items())
    return (
        f"No placement was found that fits: the one of least over-use is over memory on {lacks}. "
        f"Most of what {names[worst]} holds is of the units {most}."
    )


def _end(search: SearchResult, found: PlacedStep) -> str:
    if search.proved and not found.fits:
        return "No placement has less time and penalty of over-use together: that is proved."
    return placement.ENDS[search.ended]


def _captured_for(found: PlacedStep, samples: int | None) -> Fact:
    """Say of which step the time is: the device that it was captured for, and its batch."""
    graph, many, replicas = found.ready.undivided, found.ready.problem.batches, found.ready.replicas
    groups = 1 if replicas is None else replicas.count
    times = f" x {many:,} micro-batches" * (many > 1) + f" x {groups:,} groups" * (groups > 1)
    of = f" = {samples // groups:,}{times}" if samples is not None and times else ""
    batch = "" if samples is None else f"batch {samples * many:,}{of}"
    device = graph.index.main_device.partition(":")[0]
    return Fact("captured", "Captured for", device, "text", batch, level=1)


def _facts(found: PlacedStep, samples: int | None, whole: OneDevice | None) -> Iterator[Fact]:
    many, bounds = found.ready.problem.batches, found.bounds
    of_several = f"of {many} micro-batches and the optimizer" if many > 1 else ""
    yield Fact("step", "Time per step", found.step_ns, "ns", of_several)
    yield _captured_for(found, samples)
    of = "longest chain of ops or unit" if bounds.critical_path_ms >= bounds.work_ms else "all ops shared out"
    gap = "proved optimal" if found.proved else f"gap {format_percent(found.gap, 1)}, {of}"
    bound = found.step_ns if found.proved else round(bounds.best_ms * 1e6)
    yield Fact("bound", "No placement takes less than", bound, "ns", gap, level=1)
    why = found.reference if found.reference_fits else f"{found.reference}, if it had the memory: none has"
    why += " of each group" * (found.ready.replicas is not None)
    yield Fact("reference", "Best single device", found.reference_ns, "ns", why)
    free = f"{found.simulated.free_copies:,} more copies without bytes" if found.simulated.free_copies else ""
    yield from throughput(found, samples, whole)
    yield Fact("moved", "Sent over links per step", sum(found.link_bytes.values()), "bytes", free)
    if found.ready.replicas is not None:
        took = [sum(each.end_ns - each.start_ns for each in own) for own in found.exchange_runs]
        most = max(range(len(took)), key=lambda device: found.exposed_ns[device])
        of = f"of {format_seconds(took[most] / 1e9)} on {found.ready.replicas.cluster.devices[most].name}"
        yield Fact("exposed", "Exchange of gradients, exposed", found.exposed_ns[most], "ns", of)
    if found.search is not None:
        tried = f"distinct placements, of {found.search.proposals:,} proposed"
        yield Fact("evaluations", "Simulated", found.search.evaluations, "count", tried)
        if found.search.resumed:
            yield Fact("resumed", "read from the file of an earlier run", found.search.resumed, "count", level=1)
        yield from data_facts("text", ended=found.search.ended)
    yield from data_facts("flag", proved=found.proved)
    yield from data_facts(
        "ns", critical_path_ns=round(bounds.critical_path_ms * 1e6), work_ns=round(bounds.work_ms * 1e6)
    )
    yield from data_facts("share", gap=found.gap)
    yield from data_facts("flag", fits=found.fits, reference_fits=found.reference_fits)
    yield from data_facts("count", ops=len(found.ready.graph), units=len(found.device_of), micro_batches=many)


def _devices(found: PlacedStep) -> Table:
    """Show the units, time and memory of each device."""
    devices = found.simulated.step.cluster.devices
    names = [device.name for device in devices]
    units = Counter(found.device_of.values())
    ops = np.bincount(found.simulated.device, minlength=len(names)).tolist()
    peaks = [found.peaks[name] for name in names]
    columns = (
        Column("device", "Device", "name", tuple(names)),
        Column("type", "Type", "name", tuple(device.row.name for device in devices), at_width=90),
        Column("units", "Units", "count", tuple(units[name] for name in names)),
        Column("ops", "Ops", "count", tuple(ops)),
        Column("busy", "Busy", "ns", found.simulated.busy_ns),
        Column("idle", "Idle", "share", tuple(found.idle_share[name] for name in names)),
        Column("peak", "Peak memory", "bytes", tuple(peak for peak, _ in peaks)),
        *(
            [Column("libraries", "libraries", "bytes", found.library_bytes, at_width=110)]
            if any(found.library_bytes)
            else []
        ),
        Column("capacity", "Memory", "bytes", tuple(most for _, most in peaks)),
        Column("used", "used", "share", tuple(peak / most if most else None for peak, most in peaks), bar=110),
        Column("priced", "Ops priced", "share", tuple(found.coverage[name] for name in names), data=True),
    )
    return Table(key="devices", title="Devices", remark=_RELEASED[found.simulated.step.rule], columns=columns)


def _links(found: PlacedStep) -> Table:
    """Show the transfers over each direction of a link that has any."""
    run = found.simulated
    lanes = run.step.cluster.lanes
    count = np.bincount(run.send_lane, minlength=len(lanes)).tolist()
    busy = [int((run.send_end_ns - run.send_start_ns)[run.send_lane == number].sum()) for number in range(len(lanes))]
    used = [number for number in range(len(lanes)) if count[number]]
    names = [device.name for device in run.step.cluster.devices]
    columns = (
        Column("source", "From", "name", tuple(names[lanes[i].source] for i in used)),
        Column("target", "To", "name", tuple(names[lanes[i].target] for i in used)),
        Column("link", "Link", "name", tuple(lanes[i].link.name for i in used)),
        Column("transfers", "Transfers", "count", tuple(count[i] for i in used)),
        Column("size", "Bytes", "bytes", tuple(run.moved_bytes[i] for i in used)),
        Column("time", "Busy", "ns", tuple(busy[i] for i in used)),
        Column("share", "of the step", "share", tuple(busy[i] / found.step_ns for i in used)),
    )
    return Table(key="links", title="Transfers between devices", columns=columns, top=16)


def _exchanges(found: PlacedStep) -> Table:
    """Show what each device exchanges with those that correspond to it in the other groups."""
    replicas = found.ready.replicas
    if replicas is None:
        return Table(key="exchanges", columns=())
    whole, size = [device.name for device in replicas.whole.devices], len(replicas.cluster)
    used = [number for number, sizes in enumerate(found.exchanges) if sizes]
    times = [sum(each.end_ns - each.start_ns for each in found.exchange_runs[i]) for i in used]
    exposed = [found.exposed_ns[i] for i in used]
    columns = (
        Column("device", "Device", "name", tuple(whole[i] for i in used)),
        Column("replicas", "with", "text", tuple(", ".join(whole[i + size :: size]) for i in used)),
        Column("exchanges", "Collectives", "count", tuple(len(found.exchanges[i]) for i in used)),
        Column("gradients", "Gradients", "bytes", tuple(sum(found.exchanges[i]) for i in used)),
        Column(
            "sent", "sent per link", "bytes", tuple(sum(map(replicas.sent_bytes, found.exchange_runs[i])) for i in used)
        ),
        Column("buffers", "Buffers", "bytes", tuple(found.buffer_bytes[i] for i in used)),
        Column("time", "Time", "ns", tuple(times)),
        Column("exposed", "Exposed", "ns", tuple(exposed)),
        Column("share", "of the step", "share", tuple(ns / found.step_ns for ns in exposed)),
    )
    return Table(key="exchanges", title="Gradients exchanged between groups", columns=columns, top=16)


def _unit_times(found: PlacedStep) -> list[int]:
    """The time of each unit's ops on its device, ns, without exchanges beside them."""
    run, times = found.simulated, [0] * len(found.device_of)
    computing = np.where(run.step.computes, run.end_ns - run.start_ns, 0)
    for unit, ns in zip(run.step.units.of_op, computing.tolist(), strict=True):
        times[unit] += ns
    return times


def _stages(found: PlacedStep) -> Table:
    """List the stretches of units, in the order of their first ops, that share a device. Units that only read values
    for the host divide none."""
    step = found.simulated.step
    reading = {*step.units.hosts} - {*step.units.home}
    kept = [unit for unit in range(len(step.units)) if unit not in reading]
    names, devices = ([each[unit] for unit in kept] for each in (list(found.device_of), list(found.device_of.values())))
    starts = [i for i in range(len(names)) if not i or devices[i] != devices[i - 1]]
    ends = [*starts[1:], len(names)]
    pairs, every = list(zip(starts, ends, strict=True)), _unit_times(found)
    times = [every[unit] for unit in kept]
    columns = (
        Column("device", "Device", "name", tuple(devices[start] for start in starts)),
        Column("units", "Units", "count", tuple(end - start for start, end in pairs)),
        Column("time", "Time", "ns", tuple(sum(times[start:end]) for start, end in pairs)),
        Column("first", "From", "path", tuple(names[start] for start in starts), fold=True),
        Column("last", "To", "path", tuple(names[end - 1] for end in ends), fold=True),
    )
    return Table(key="stages", title="Stages, units in order", columns=columns, top=30)


def _shards(found: PlacedStep) -> Table:
    """Show the modules in shards, and the devices of these: of a shard's unit, or of the units inside it."""
    modules, placed = found.ready.sharded.modules, found.device_of.items()
    devices = [
        [
            "+".join(dict.fromkeys(device for unit, device in placed if within(unit.partition(" ")[0], path)))
            for path in module.shards
        ]
        for module in modules
    ]
    columns = (
        Column("module", "Module", "path", tuple(module.module or "(root)" for module in modules), fold=True),
        Column("along", "Along", "name", tuple(module.along for module in modules)),
        Column("op", "of", "name", tuple(module.op for module in modules), at_width=100),
        Column("sizes", "Sizes", "text", tuple(" + ".join(map(str, module.sizes)) for module in modules)),
        Column("devices", "Devices of the shards", "text", tuple(", ".join(names) for names in devices)),
    )
    return Table(key="shards", title="Modules in shards", columns=columns, top=30)


def _units(found: PlacedStep) -> Table:
    """List all units for data and the page."""
    ops = Counter(found.simulated.step.units.of_op)
    columns = (
        Column("unit", "Unit", "path", tuple(found.device_of)),
        Column("device", "Device", "text", tuple(found.device_of.values()), pick=True),
        Column("ops", "Ops", "count", tuple(ops[unit] for unit in range(len(found.device_of)))),
        Column("time", "Time", "ns", tuple(_unit_times(found))),
    )
    return Table(key="units", title="Units", columns=columns, only="page")


def _lanes(found: PlacedStep) -> Spans:
    """Show what each device and link does, and the buckets of gradients that leave the group."""
    beside = found.simulated.step.beside
    lanes = () if beside is None else beside.lanes
    return lanes_of("timeline", "What each device and link does", found.timeline, clock="step", exchange_lanes=lanes)


def _memory(found: PlacedStep) -> Iterator[Curve]:
    """Draw the bytes of each device over time."""
    levels = found.timeline.levels
    times = np.unique(np.concatenate([[0], *(level.time_ns for level in levels)]))
    times = times[times < found.step_ns]
    if not len(times):
        return
    stack = []
    for name, (moments, level) in zip(found.timeline.devices, levels, strict=True):
        if len(level):
            at = np.searchsorted(moments, times, side="right") - 1
            stack.append(Series(name, name, tuple(np.where(at >= 0, level[np.maximum(at, 0)], 0).tolist())))
    edges = (*times.tolist(), found.step_ns)
    title = "Memory, the devices stacked"
    yield Curve(key="memory", title=title, x=edges, x_unit="ns", stack=tuple(stack), clock="step")
