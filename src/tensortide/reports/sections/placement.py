"""Section ``placement``: which device each layer runs on, what a step takes that way, and how good that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.pictures import Axis, Curve, Lane, Limit, Points, Scatter, Series, Spans
from tensortide.reports.sections.placed_speed import faster
from tensortide.units import format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.placements import Simulation
    from tensortide.studies.placement.placed_net import PlacedNet

__all__ = ["document", "layers_table", "section"]

ENDS = {
    "budget": "The search used its whole budget.",
    "finished": "The algorithm had nothing left to try.",
    "proved": "The placement is proved optimal in this model.",
    "time": "The time limit ended the search: another run may differ.",
    "interrupted": "The search was stopped by hand; this is the best so far.",
}
NS = 1e6


def document(placed: PlacedNet) -> Document:
    """Show ``placed``."""
    run, found = placed.run, placed.found
    batches = run.settings.batches
    several = f", {batches} batches, {min(batches, run.settings.pipeline_batches)} in flight" if batches > 1 else ""
    subtitle = f"{len(run.net.order)} layers on {run.cluster.name}, {run.mode} mode{several}"
    settings: dict[str, Value] = {
        "batch": run.net.batch(run.settings.batch_size),
        "algorithm": placed.algorithm.name,
        "seed": found.seed,
    }
    return section(placed).document(run.net.name, subtitle, settings=settings)


def section(placed: PlacedNet) -> Section:
    """Make the section of ``placed``."""
    run = placed.run
    blocks: list[AnyBlock] = [_verdict(placed), Facts(rows=tuple(_facts(placed))), Note(text=_end(placed))]
    blocks += [_devices(run), _links(run), layers_table(run), *pictures(run)]
    if len(placed.found.history) > 1:
        blocks.append(_history(placed))
    blocks.append(Note(text=_model(run), kind="assumption"))
    return Section("placement", "Placement", blocks=tuple(block for block in blocks if not _is_empty(block)))


def _end(placed: PlacedNet) -> str:
    """The reason that a search ended for. A proof is of scores: where nothing fits, with the penalty of over-use."""
    if placed.found.proved and not placed.run.fits:
        return "No placement has less time and penalty of over-use together: that is proved."
    return ENDS[placed.found.ended]


def _is_empty(block: AnyBlock) -> bool:
    return isinstance(block, Table) and not len(block)


def _verdict(placed: PlacedNet) -> Note:
    run, names = placed.run, placed.run.cluster.names
    if not run.fits:
        above = zip(names, run.over_use, strict=True)
        over = ", ".join(f"device {name} by {used:,.0f} bytes" for name, used in above if used)
        return Note(text=f"No placement was found that fits: the best is over memory on {over}.", kind="failure")
    time = format_seconds(run.makespan / 1e3)
    used = len(set(run.placement))
    where = f"{used} devices" if used > 1 else f"device {names[run.placement[0]]} alone"
    if placed.single is None:
        return Note(text=f"{time} on {where}; no single device has the memory.", kind="verdict")
    ratio = placed.single.makespan / run.makespan if run.makespan else 1.0
    alone = f"all on device {names[placed.single.placement[0]]}"
    against = "no other placement found is faster" if ratio <= 1 + 1e-9 else faster(ratio, "one device", alone)
    return Note(text=f"{time} on {where}: {against}.", kind="verdict")


def _facts(placed: PlacedNet) -> Iterator[Fact]:
    run, found, single = placed.run, placed.found, placed.single
    batches = run.settings.batches
    examples = run.net.batch(run.settings.batch_size)
    remark = f"of {batches:,} batches of {examples:,}" if batches > 1 else f"of a batch of {examples:,}"
    passes = "" if run.settings.include_backward else ", forward pass"
    yield Fact("makespan", "Time", round(run.makespan * NS), "ns", remark + passes)
    if batches > 1:
        yield Fact("per_batch", "per batch", round(run.makespan / batches * NS), "ns", level=1)
    if run.fits:  # else the bound is one of scores, which have the penalty of over-use
        gap = "proved optimal" if found.proved else f"gap at most {format_percent(found.gap, 1)}"
        yield Fact("bound", "No placement takes less than", round(found.bound_ms * NS), "ns", gap, level=1)
    if single is None:
        yield Fact("single", "Best single device", None, "ns", "none has the memory")
    else:
        name = run.cluster.names[single.placement[0]]
        yield Fact("single", "Best single device", round(single.makespan * NS), "ns", f"device {name}")
    crossing = f"of {run.edges} between layers"
    yield Fact("jumps", "Edges across devices", run.jumps, "count", crossing)
    tried = f"distinct placements, of {found.proposals:,} proposed"
    yield Fact("evaluations", "Simulated", found.evaluations, "count", tried)
    if found.resumed:
        yield Fact("resumed", "read from the file of an earlier run", found.resumed, "count", level=1)
    yield from data_facts("number", score_ms=found.score_ms, makespan_ms=run.makespan, bound_ms=found.bound_ms)
    yield from data_facts("count", proposals=found.proposals)
    yield from data_facts("flag", proved=found.proved, fits=run.fits)
    yield from data_facts("text", ended=found.ended, mode=run.mode)
    yield from data_facts("share", gap=found.gap if run.fits else None)


def _devices(run: Simulation) -> Table:
    """Show the layers, time and memory of each device."""
    numbers = range(len(run.cluster.devices))
    busy = _busy(run)[: len(numbers)]
    capacity = run.tables.capacity.tolist()
    count = np.bincount(run.placement, minlength=len(numbers)).tolist()
    idle = tuple(1 - ms / run.makespan if run.makespan else 0.0 for ms in busy)
    columns = (
        _device_column(run, "device", "Device", numbers),
        Column("model", "Model", "name", tuple(device.model for device in run.cluster.devices)),
        Column("layers", "Layers", "count", tuple(count)),
        Column("busy", "Busy", "ns", tuple(round(ms * NS) for ms in busy)),
        Column("idle", "Idle", "share", idle),
        Column("peak", "Peak memory", "bytes", run.peaks),
        Column("capacity", "Memory", "bytes", tuple(map(int, capacity))),
        Column("used", "used", "share", tuple(_share(*pair) for pair in zip(run.peaks, capacity, strict=True)), bar=90),
    )
    return Table(key="devices", title="Devices", columns=columns)


def _device_column(run: Simulation, key: str, title: str, devices: Iterable[int]) -> Column:
    """Make a column of devices: their names, or numbers where they have none."""
    if not run.cluster.is_named:
        return Column(key, title, "count", tuple(devices))
    return Column(key, title, "name", tuple(run.cluster.names[device] for device in devices))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _busy(run: Simulation) -> list[float]:
    """Time in which each lane is taken, ms: devices, then those of transfers."""
    busy = [0.0] * len(run.lanes)
    devices = len(run.cluster.devices)
    for event in run.trace:
        if event.kind != "wakeup":
            busy[event.resource + devices * event.on_lane] += event.end - event.start
    return busy


def _links(run: Simulation) -> Table:
    """Show the transfers and bytes of each pair of devices that exchange data."""
    times: dict[tuple[int, int], list[float]] = {}
    for event in run.trace:
        if event.kind == "transfer" and event.source is not None and event.target is not None:
            times.setdefault((event.source, event.target), []).append(event.end - event.start)
    pairs, nbytes = sorted(times), bytes_between(run)
    columns = (
        _device_column(run, "source", "From", [source for source, _ in pairs]),
        _device_column(run, "target", "To", [target for _, target in pairs]),
        Column("transfers", "Transfers", "count", tuple(len(times[pair]) for pair in pairs)),
        Column("size", "Bytes", "bytes", tuple(nbytes[pair] for pair in pairs)),
        Column("time", "Time", "ns", tuple(round(sum(times[pair]) * NS) for pair in pairs)),
    )
    return Table(key="links", title="Transfers between devices", columns=columns)


def bytes_between(run: Simulation) -> dict[tuple[int, int], int]:
    """Bytes that each device sends to each other: outputs once per device, gradients once per edge; of all batches."""
    found: dict[tuple[int, int], int] = {}
    place, batches = run.placement, run.settings.batches
    for producer, children in enumerate(run.net.children):
        nbytes = int(run.tables.nbytes[producer]) * batches
        here = place[producer]
        forward = {(here, place[child]) for child in children}
        backward = [(place[child], here) for child in children] if run.settings.include_backward else []
        for source, target in (*forward, *backward):
            if source != target:
                found[source, target] = found.get((source, target), 0) + nbytes
    return found


def layers_table(run: Simulation) -> Table:
    """List runs of layers, in topological order, that share a device."""
    place = run.placement
    starts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist()]
    ends = [*starts[1:], len(place)]
    order = run.net.order
    columns = (
        _device_column(run, "device", "Device", [place[start] for start in starts]),
        Column("layers", "Layers", "count", tuple(end - start for start, end in zip(starts, ends, strict=True))),
        Column("first", "From", "name", tuple(order[start] for start in starts), fold=True),
        Column("last", "To", "name", tuple(order[end - 1] for end in ends), fold=True),
    )
    return Table(key="runs", title="Layers in order", columns=columns, top=30)


def pictures(run: Simulation) -> Iterator[AnyBlock]:
    """Draw what each device and link does when, and the memory of each device, over one clock."""
    names = run.lanes
    rows: list[list[tuple[int, int, str, str]]] = [[] for _ in names]
    devices = len(run.cluster.devices)
    for event in run.trace:
        if event.kind == "wakeup" or event.end <= event.start:
            continue
        direction = "update" if event.kind == "update" else "backward" if event.backward else "forward"
        kind = direction if not event.on_lane else "transfer"
        batch = f" of batch {event.batch}" if run.settings.batches > 1 else ""
        name = f"{event.layer} {direction}{batch}"
        at = event.resource + devices * event.on_lane
        rows[at].append((round(event.start * NS), round(event.end * NS), name, kind))
    lanes = tuple(
        Lane(
            label=label,
            start=tuple(row[0] for row in found),
            end=tuple(row[1] for row in found),
            names=tuple(row[2] for row in found),
            kinds=tuple(row[3] for row in found),
        )
        for label, found in zip(names, rows, strict=True)
        if found
    )
    yield Spans(key="timeline", title="What each device and link does", x_unit="ns", lanes=lanes, clock="run")
    moments, nbytes = run.memory
    keep = np.append(np.diff(moments) > 0, True)
    edges = (moments[keep] * NS).round().astype(int).tolist()
    if len(edges) > 1:
        yield Curve(
            key="memory",
            title="Memory, the devices stacked",
            x=tuple(edges),
            x_unit="ns",
            stack=tuple(
                Series(f"device{number}", names[number], tuple(map(int, nbytes[number][keep][:-1])))
                for number in sorted(set(run.placement))
            ),
            clock="run",
        )


def _history(placed: PlacedNet) -> Scatter:
    """Draw the best score against the placements tried."""
    found = placed.found
    shown = [one for one in found.history if one.score_ms <= 20 * found.score_ms] or [*found.history]
    x = (*(one.proposals for one in shown), max(found.proposals, shown[-1].proposals + 1))
    y = (*(one.score_ms for one in shown), found.score_ms)
    return Scatter(
        key="history",
        title="Best placement against placements tried",
        x=Axis("placements proposed", "count", log=True),
        y=Axis("time of the best, ms", "number"),
        points=(Points(placed.algorithm.name, x, y, joined="step"),),
        across=(Limit("no placement takes less", found.bound_ms),),
    )


def _model(run: Simulation) -> str:
    if run.mode == "compat":
        return (
            "Times are those of the published model: fp32, gradients of data alone, activations and normalisation "
            "free, every channel shared by both directions. They are corrected without --compat, or in place run with "
            "--accurate."
        )
    settings = run.settings
    update = f" The update is that of {settings.optimizer}, once a step." if settings.include_backward else ""
    return f"Times are predicted from the figures of the devices, not measured; transfers queue on their links.{update}"
