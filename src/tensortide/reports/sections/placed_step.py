"""Section ``placed_step``: on which device each op of a captured step runs, what a step takes, and how good that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tensortide.cost import count
from tensortide.placements.graphs.auto_shards import Tried
from tensortide.placements.graphs.one_device import on_one_device
from tensortide.placements.parts import Averaged, DeviceUse, DividedModule, LinkUse, Stretch, Unit
from tensortide.reports.blocks import AnyBlock, Document, Fact, Note, Section, Value
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.sections import placed_run, placement
from tensortide.reports.sections.timeline_lanes import lanes_of, memory_of
from tensortide.timing.collectives.constants import CONTENTION
from tensortide.timing.estimate import captured_elsewhere
from tensortide.timing.families import compute_dtype
from tensortide.units import fixed, format_bytes, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Rule
    from tensortide.placements.graphs import PlacedStep
    from tensortide.placements.graphs.auto_shards import AutoSharded
    from tensortide.placements.graphs.hosts import Launch
    from tensortide.placements.graphs.one_device import OneDevice
    from tensortide.studies.placement.placed import StepPlacement

_RELEASED: Mapping[Rule, str] = {
    "last_use": "peaks with tensors released after their last use; --lifetimes eager: as memory and scale count",
    "eager": "peaks with tensors released as in eager mode",
}
_HOSTS: Mapping[Launch, str] = {
    "eager": "Each device has a process that issues its ops one by one; --launch none leaves this out.",
    "graph": "Each device has a process that issues its ops as captured graphs.",
    "none": "Hosts are taken to issue ops in time: steps of many small ops take longer on a GPU.",
}
_ON_HOST = (
    " Ops that read a value or work on tensors in the host's memory run on the host, the rest of their modules where "
    "the search puts it; without a CPU in the file such ops stay with the others."
)


def document(placed: StepPlacement) -> Document:
    """Show ``placed``: also the modules that were divided, what its device map lacks, and a run."""
    found, samples = placed.found, placed.samples
    step, problem, schedule = found.simulated.step, found.ready.problem, found.ready.problem.schedule
    settings: dict[str, Value] = {} if samples is None else {"batch": samples * schedule.micro_batches}
    settings |= {} if found.search is None else {"seed": found.search.seed}
    settings |= {"schedule": schedule.name, "micro_batches": schedule.micro_batches}
    settings |= {"priority": schedule.priority, "lifetimes": step.rule}
    sections = [section(found, samples)]
    if placed.shards is not None:
        sections.append(_shards(placed.shards))
    if placed.notes:
        notes = tuple(Note(text=text, kind="warning") for text in placed.notes)
        sections.append(Section("device_map", "Device map", blocks=notes))
    if placed.measured is not None:
        sections.append(placed_run.section(placed.measured))
    title = found.ready.captured.meta.workload or placed.target
    subtitle = f"{len(found.ready.graph):,} ops in {len(problem.names):,} units on {step.cluster.name}"
    return Document(title=title, subtitle=(subtitle,), settings=settings, sections=tuple(sections))


def section(found: PlacedStep, samples: int | None = None) -> Section:
    """Make the section of ``found``; ``samples`` are those of the captured step, if it has any."""
    whole, run = on_one_device(found.ready), found.simulated
    gradients = [one for one in found.averages if one.exchanges]
    tables = (
        table(DeviceUse, found.devices, key="devices", title="Devices", remark=_RELEASED[run.step.rule]),
        table(LinkUse, found.links, key="links", title="Transfers between devices", top=16),
        table(Averaged, gradients, key="exchanges", title="Gradients exchanged between groups", top=16),
        table(Stretch, found.stages, key="stages", title="Stages, units in order", top=30),
        table(DividedModule, found.modules, key="shards", title="Modules in shards", top=30),
        table(Unit, found.units, key="units", title="Units", only="page"),
    )
    further = ("proved", "gap_share", "fits", "reference_fits", "ready.problem.batches as micro_batches")
    lanes = () if run.step.beside is None else run.step.beside.lanes
    blocks: tuple[AnyBlock, ...] = (
        Note(text=_verdict(found, whole), kind="verdict") if found.fits else Note(text=_lacking(found), kind="failure"),
        *(Note(text=text, kind="warning") for text in _warnings(found)),
        facts(found, *_facts(found, samples, whole), *further),
        *([placement.end(found.search, found.fits)] if found.search else []),
        *(one for one in tables if len(one)),
        lanes_of("timeline", "What each device and link does", found.timeline, clock="step", exchange_lanes=lanes),
        *memory_of(found.timeline.devices, found.timeline.levels, found.step_ns),
        *(Note(text=text, kind="assumption") for text in _assumptions(found)),
    )
    return Section("placed_step", "Placement", blocks=blocks)


def _facts(found: PlacedStep, samples: int | None, whole: OneDevice | None) -> Iterator[Fact]:
    many, bounds, replicas = found.ready.problem.batches, found.bounds, found.ready.replicas
    yield fact(found, "step_ns", f"of {many} micro-batches and the optimizer" if many > 1 else "")
    groups = 1 if replicas is None else replicas.count
    times = f" x {many:,} micro-batches" * (many > 1) + f" x {groups:,} groups" * (groups > 1)
    of = f" = {samples // groups:,}{times}" if samples is not None and times else ""
    yield fact(found, "captured_for", "" if samples is None else f"batch {samples * many:,}{of}")
    of = "longest chain of ops or unit" if bounds.critical_path_ms >= bounds.work_ms else "all ops shared out"
    yield fact(
        found, "bound_ns", "proved optimal" if found.proved else f"gap {format_percent(found.gap_share, 1)}, {of}"
    )
    why = found.reference if found.reference_fits else f"{found.reference}, if it had the memory: none has"
    yield fact(found, "reference_ns", why + " of each group" * (replicas is not None))
    if replicas is not None and samples is not None and found.step_ns:
        yield from _speed(found, samples * many, whole)
    free = found.simulated.free_copies
    yield fact(found, "moved_bytes", f"{free:,} more copies without bytes" if free else "")
    if found.averages:
        most = max(found.averages, key=lambda one: one.exposed_ns)
        of = f"of {format_seconds(most.time_ns / 1e9)} on {most.device}"
        yield fact(most, "exposed_ns", of, label="Exchange of gradients, exposed")
    if found.search is not None:
        yield from placement.searched(found.search)
    yield Fact("critical_path_ns", "", round(bounds.critical_path_ms * 1e6), "ns", data=True)
    yield Fact("work_ns", "", round(bounds.work_ms * 1e6), "ns", data=True)
    yield Fact("ops", "", len(found.ready.graph), "count", data=True)
    yield Fact("units", "", len(found.units), "count", data=True)


def _shards(found: AutoSharded) -> Section:
    """Show the divisions of modules that were tried, what a short search found, and which were kept."""
    shards = " ".join(f"--shard '{shard}'" for shard in found.shards)
    note = Note(text=f"Kept: {shards}" if shards else "No division of a module was found to help.")
    names = ("modules", "work_share", "step_ns", "kept", "why")
    tried = [table(Tried, found.tried, *names, key="tried", title="Divisions tried")] if found.tried else []
    return Section("auto_shards", "Modules to divide", blocks=(note, *tried))


def _verdict(found: PlacedStep, whole: OneDevice | None) -> str:
    """Say what the step takes, and how much faster it is than on one device; of several groups also than the ``whole``
    batch on one device."""
    used, groups = sorted(set(found.simulated.place)), found.ready.replicas
    where = f"{len(used)} devices" if len(used) > 1 else f"{found.devices[used[0]].device} alone"
    if groups is not None:
        where = f"{groups.count} groups of {where}" if len(used) > 1 else f"{groups.count} devices, one in each group"
    time = format_seconds(found.step_ns / 1e9)
    if found.stand_ins and found.reference_fits and len(found.devices) > 1:
        return f"{time} or more per step on {where}: perhaps {_against_one(found)}, as times are unknown."
    if len(found.devices) == 1:
        other = "the cluster has" if groups is None else "groups have"
        against = f": {other} no other device, so there is nothing to choose"
    else:
        against = f": {_against_one(found)}" if found.reference_fits else "; no single device has the memory"
    if whole is not None and whole.fits and found.step_ns:
        ratio = whole.step_ns / found.step_ns
        against += f"; {placement.faster(ratio, 'one device with the whole batch', f'all on {whole.name}')}"
    return f"{time} per step on {where}{against}."


def _against_one(found: PlacedStep) -> str:
    """Compare with the best single device, of its group if there are several."""
    ratio = found.reference_ns / found.step_ns if found.step_ns else 1.0
    if ratio == 1:
        return "no placement found is faster"
    if ratio < 1 and found.ready.problem.pins and not placement.alike(ratio):
        return f"{fixed(1 / ratio, 2)} times as long as all ops would take on {found.reference}, were none pinned"
    one = "one device" if found.ready.replicas is None else "one device of each group"
    return placement.faster(ratio, one, f"all on {found.reference}")


def _speed(found: PlacedStep, batch: int, whole: OneDevice | None) -> Iterator[Fact]:
    """Show the samples a second of several groups beside those of one device with the ``whole`` batch."""
    remark = ""
    if whole is not None:
        rate, ratio = float(f"{batch / whole.step_ns * 1e9:.4g}"), whole.step_ns / found.step_ns
        times = "about those" if placement.alike(ratio) else f"{fixed(ratio, 2)} times those"
        memory = "" if whole.fits else ", if it had the memory"
        took = f"{format_count(rate)}, the whole batch in {format_seconds(whole.step_ns / 1e9)}"
        remark = f"{times} of {whole.name} alone{memory}: {took}"
        yield Fact("one_device_samples_per_s", "", rate, "amount", data=True)
        yield fact(whole, "step_ns as one_device_ns", data=True)
        yield fact(whole, "fits as one_device_fits", data=True)
    rate = float(f"{batch / found.step_ns * 1e9:.4g}")
    yield Fact("samples_per_s", "Samples per second", rate, "amount", remark)


def _lacking(found: PlacedStep) -> str:
    """Say which device lacks how much, and for which units: those of most bytes on the one that lacks most."""
    run, names, memory = found.simulated, found.ready.problem.names, found.ready.problem.memory
    over = {number: nbytes for number, nbytes in enumerate(run.over_bytes) if nbytes}
    worst = max(over, key=over.__getitem__)
    units = [unit for unit, device in enumerate(run.place) if device == worst]
    largest = sorted(units, key=lambda unit: -memory[unit])[:3]
    most = ", ".join(f"{names[unit]} ({format_bytes(int(memory[unit]))})" for unit in largest)
    lacks = ", ".join(f"{found.devices[number].device} by {format_bytes(nbytes)}" for number, nbytes in over.items())
    text = f"No placement was found that fits: the one of least over-use is over memory on {lacks}."
    return f"{text} Most of what {found.devices[worst].device} holds is of the units {most}."


def _warnings(found: PlacedStep) -> Iterator[str]:
    """Say on which devices ops run whose time there is unknown, why, and what to do; and name the units that are
    pinned, where all on one device would take less time."""
    costs, graph = count(found.ready.graph).costs if found.stand_ins else (), found.ready.graph
    on, unknown = found.simulated.device.tolist(), found.ready.times.stand_ins
    for number, device in enumerate(found.devices if found.stand_ins else ()):
        ops = [op for op, at in enumerate(on) if at == number and op in unknown[number]]
        views = [graph[op] for op in ops if costs[op].cost is not None]
        dtypes = ", ".join(sorted({compute_dtype(view.inputs or view.outputs) for view in views}))
        if views:
            yield (
                f"{device.device}: the time of {len(views):,} of its ops is unknown, as {device.type} has no rate of "
                f"{dtypes}. That of their bytes stands in: it may be far too short, and draws ops there. Give the "
                "device its figures in the file (docs/place_graphs.md), or leave it out."
            )
        if rest := len(ops) - len(views):
            yield f"{device.device}: no cost rule prices {rest:,} of its ops; the time of their bytes stands in."
    pins, hosts = found.ready.problem.pins, found.simulated.step.units.hosts
    for number in sorted(set(pins.values())) if found.step_ns > found.reference_ns else ():
        own = sorted((unit for unit, at in pins.items() if at == number), key=lambda unit: -found.units[unit].time_ns)
        listed = ", ".join(found.units[unit].unit for unit in own[:3]) + f" and {len(own) - 3:,} more" * (len(own) > 3)
        yield f"Pinned to {found.devices[number].device}: {listed}." + _ON_HOST * (not set(hosts).isdisjoint(own))


def _assumptions(found: PlacedStep) -> Iterator[str]:
    """Say what times, hosts and exchanges take for granted."""
    hosts = _HOSTS[found.ready.options.launch]
    yield f"Times of ops are predicted for each type of device, not measured; transfers queue on their links. {hosts}"
    units = found.simulated.step.units
    if ops := sum(unit in units.hosts for unit in units.of_op):
        yield (
            f"Ops that read a value or work on tensors in the host's memory are pinned to the first CPU: {ops:,}. The "
            "hosts of other devices do not wait for them."
        )
    partly = [one for one in found.devices if one.priced_share < 1]
    if partly:
        listed = ", ".join(f"{format_percent(1 - one.priced_share, 1)} on {one.device}" for one in partly)
        yield f"Unknown times, for which that of their bytes stands in, wherever ops are placed: {listed}."
    yield from _captured_elsewhere(found)
    if whole := found.ready.sharded.whole:
        reasons = list(dict.fromkeys(op.why for op in whole))
        listed = "; ".join(reasons[:2]) + "; ..." * (len(reasons) > 2)
        yield f"{len(whole):,} ops of modules in shards run whole, with the first shard: {listed}."
    groups = found.ready.replicas
    if groups is not None:
        yield (
            f"Each of {groups.count} groups has the step on 1/{groups.count} of the captured batch; devices, times, "
            f"memory, the Plan and the Timeline are those of the first. {_exchange(found)}"
        )
    if found.ready.problem.batches > 1:
        yield f"The captured step is that of one micro-batch{'' if groups is None else ' of all groups'}."


def _captured_elsewhere(found: PlacedStep) -> Iterator[str]:
    """Say on which devices, of those in use, ops are taken to have the kernels of another kind."""
    names: dict[str, list[str]] = {}
    for number, device in enumerate(found.simulated.step.cluster.devices):
        if number in found.simulated.place and (why := captured_elsewhere(found.ready.graph, device.row)):
            names.setdefault(why, []).append(device.name)
    for why, devices in names.items():
        unknown = ", and their workspace is not known" * any(name in found.unknown_workspace for name in devices)
        those = "these devices" if len(devices) > 1 else "this device"
        yield f"{', '.join(devices)}: times are {why}; the kernels of {those} may be others{unknown}."


def _exchange(found: PlacedStep) -> str:
    """Say how gradients are exchanged."""
    beside = found.simulated.step.beside
    if beside is None:
        return "Gradients are exchanged one by one, beside no computation of their device."
    first = f", the first of {format_bytes(beside.first_bytes)}" * (beside.first_bytes != beside.bucket_bytes)
    return (
        f"Gradients are exchanged in buckets of {format_bytes(beside.bucket_bytes)}{first}, one dtype each, as they "
        f"become ready, in buffers that peaks include; computation beside them is {format_percent(CONTENTION, 1)} "
        "slower, and the update begins once all have arrived."
    )
