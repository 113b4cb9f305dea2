"""Section ``placement``: on which device each layer of a network runs, what a step takes, and how good that is.

Others list given placements, and show a configured search: section ``measured`` has what was measured after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from tensortide.placements.parts import DeviceUse, LinkUse, Stretch
from tensortide.reports.blocks import AnyBlock, Document, Fact, Note, Section, Table, Value
from tensortide.reports.of_records import column, fact, facts, table
from tensortide.reports.pictures import Axis, Curve, Limit, Points, Scatter, Series, SpanLane, Spans
from tensortide.shown import Show
from tensortide.studies.placement.scores import Scored
from tensortide.units import fixed, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.placements import Simulation
    from tensortide.placements.search import SearchResult
    from tensortide.studies.placement.configured import ConfiguredRun
    from tensortide.studies.placement.placed_net import NetSubject, PlacedNet

_ENDS: Mapping[str, str] = {
    "budget": "The search used its whole budget.",
    "finished": "The algorithm had nothing left to try.",
    "proved": "The placement is proved optimal in this model.",
    "time": "The time limit ended the search: another run may differ.",
    "interrupted": "The search was stopped by hand; this is the best so far.",
}
_PUBLISHED = (
    "Times are those of the published model: fp32, gradients of data alone, activations and normalisation free, every "
    "channel shared by both directions. They are corrected without --compat, or in place run with --accurate."
)
_NOT_MEASURED = Note(
    text="Nothing was measured, though the configuration names a benchmarking_function or benchmark_solution: "
    "--measure trains real batches on this machine, --by FILE.py:NAME takes a function of yours.",
    kind="warning",
)
_PREDICTED = "Times are predicted from the figures of the devices, not measured; transfers queue on their links."


def document(placed: PlacedNet) -> Document:
    """Show ``placed``."""
    run, settings, batches = placed.simulated, placed.simulated.settings, placed.simulated.settings.batches
    several = f", {batches} batches, {min(batches, settings.pipeline_batches)} in flight" if batches > 1 else ""
    subtitle = f"{len(placed.subject.net.order)} layers on {run.cluster.name}, {run.mode} mode{several}"
    batch = run.net.batch(settings.batch_size)
    given: dict[str, Value] = {"batch": batch, "algorithm": placed.algorithm.name, "seed": placed.search.seed}
    data = ["simulated.makespan as makespan_ms"]
    data += [f"search.{name}" for name in ("score_ms", "bound_ms", "proposals", "proved")]
    update = f" The update is that of {settings.optimizer}, once a step." if settings.include_backward else ""
    blocks: tuple[AnyBlock, ...] = (
        _verdict(placed),
        facts(placed, *_facts(placed), *data, fact(run, "fits", data=True), "simulated.mode", "gap_share"),
        end(placed.search, run.fits),
        *_tables(run),
        *_pictures(run),
        *history(placed.search, placed.algorithm.name),
        Note(text=_PUBLISHED if run.mode == "compat" else _PREDICTED + update, kind="assumption"),
    )
    return Section("placement", "Placement", blocks=blocks).document(run.net.name, subtitle, settings=given)


def end(found: SearchResult, fits: bool) -> Note:
    """Say why a search ended. A proof is of scores: where nothing fits, with the penalty of over-use."""
    proved = "No placement has less time and penalty of over-use together: that is proved."
    return Note(text=proved if found.proved and not fits else _ENDS[found.ended])


def searched(found: SearchResult) -> Iterator[Fact]:
    """Show what a search has tried."""
    yield fact(found, "evaluations", f"distinct placements, of {found.proposals:,} proposed")
    if found.resumed:
        yield fact(found, "resumed")
    yield fact(found, "ended")


def _tables(run: Simulation) -> Iterator[Table]:
    model = column(DeviceUse, run.devices, "type", label="Model", at_width=0)
    layers = column(DeviceUse, run.devices, "units", label="Layers")
    used = column(DeviceUse, run.devices, "used_share", bar=90)
    names = ("device", model, layers, "busy_ns", "idle_share", "peak_bytes", "capacity_bytes", used)
    yield table(DeviceUse, run.devices, *names, key="devices", title="Devices")
    if run.links:
        moved = ("source", "target", "transfers", "size_bytes", column(LinkUse, run.links, "time_ns", label="Time"))
        yield table(LinkUse, run.links, *moved, key="links", title="Transfers between devices")
    yield layer_runs(run)


def layer_runs(run: Simulation) -> Table:
    """List runs of layers, in topological order, that share a device."""
    layers = column(Stretch, run.stretches, "units", label="Layers")
    return table(Stretch, run.stretches, "device", layers, "first", "last", key="runs", title="Layers in order", top=30)


def where(run: Simulation) -> str:
    """Say on how many devices layers are, or on which one."""
    return (
        f"{run.used_devices} devices" if run.used_devices > 1 else f"device {run.cluster.names[run.placement[0]]} alone"
    )


def _verdict(placed: PlacedNet) -> Note:
    run, single = placed.simulated, placed.single
    if not run.fits:
        above = zip(run.cluster.names, run.over_use, strict=True)
        over = ", ".join(f"device {name} by {used:,.0f} bytes" for name, used in above if used)
        return Note(text=f"No placement was found that fits: the best is over memory on {over}.", kind="failure")
    against = "; no single device has the memory"
    if single is not None:
        ratio = single.makespan / run.makespan if run.makespan else 1.0
        alone = f"all on device {run.cluster.names[single.placement[0]]}"
        better = "no other placement found is faster" if ratio <= 1 + 1e-9 else faster(ratio, "one device", alone)
        if ratio < 1 - 1e-9:  # a configured search, which proposes no single device of its own accord
            better = f"{alone} takes {format_seconds(single.makespan / 1e3)}, which this search has not found"
        against = f": {better}"
    return Note(text=f"{format_seconds(run.makespan / 1e3)} on {where(run)}{against}.", kind="verdict")


def _facts(placed: PlacedNet) -> Iterator[Fact]:
    run, found, batches = placed.simulated, placed.search, placed.simulated.settings.batches
    examples = f"{run.net.batch(run.settings.batch_size):,}"
    remark = f"of {batches:,} batches of {examples}" if batches > 1 else f"of a batch of {examples}"
    yield fact(run, "makespan_ns", remark + ", forward pass" * (not run.settings.include_backward))
    if batches > 1:
        yield fact(run, "per_batch_ns")
    if placed.gap_share is not None:
        gap = "proved optimal" if found.proved else f"gap at most {format_percent(placed.gap_share, 1)}"
        yield fact(found, "bound_ns", gap)
    single = placed.single and f"device {run.cluster.names[placed.single.placement[0]]}"
    yield fact(placed, "single_ns", single or "none has the memory")
    yield fact(run, "jumps", f"of {run.edges} between layers")
    if placed.shared:
        yield fact(placed, "shared", "each computes a part of the output channels")
    yield from searched(found)


def _pictures(run: Simulation) -> Iterator[AnyBlock]:
    """Draw what each device and link does when, and the memory of each device, over one clock."""
    rows: list[list[tuple[int, int, str, str]]] = [[] for _ in run.lanes]
    for event in run.trace:
        if event.kind == "wakeup" or event.end <= event.start:
            continue
        direction = "update" if event.kind == "update" else "backward" if event.backward else "forward"
        name = f"{event.layer} {direction}" + f" of batch {event.batch}" * (run.settings.batches > 1)
        at = event.resource + len(run.cluster.devices) * event.on_lane
        kind = "transfer" if event.on_lane else direction
        rows[at].append((round(event.start * 1e6), round(event.end * 1e6), name, kind))
    named = [(label, zip(*own, strict=True)) for label, own in zip(run.lanes, rows, strict=True) if own]
    lanes = tuple(SpanLane(label, start, end, names, kinds) for label, (start, end, names, kinds) in named)
    yield Spans(key="timeline", title="What each device and link does", x_unit="ns", lanes=lanes, clock="run")
    moments, nbytes = run.memory
    keep = np.append(np.diff(moments) > 0, True)
    edges = (moments[keep] * 1e6).round().astype(int).tolist()
    if len(edges) > 1:
        stack = tuple(
            Series(f"device{number}", run.lanes[number], tuple(nbytes[number][keep][:-1].tolist()))
            for number in sorted(set(run.placement))
        )
        title = "Memory, the devices stacked"
        yield Curve(key="memory", title=title, x=tuple(edges), x_unit="ns", stack=stack, clock="run")


def history(found: SearchResult, algorithm: str) -> Iterator[Scatter]:
    """Draw the best score against the placements tried, if there was more than one."""
    if len(found.history) < 2:
        return
    shown = [one for one in found.history if one.score_ms <= 20 * found.score_ms] or [*found.history]
    x = (*(one.proposals for one in shown), max(found.proposals, shown[-1].proposals + 1))
    y = (*(one.score_ms for one in shown), found.score_ms)
    yield Scatter(
        key="history",
        title="Best placement against placements tried",
        x=Axis("placements proposed", "count", log=True),
        y=Axis("time of the best, ms", "number"),
        points=(Points(algorithm, x, y, joined="step"),),
        across=(Limit("no placement takes less", found.bound_ms),),
    )


def faster(ratio: float, one: str, alone: str) -> str:
    """Say how much faster a step is than on ``one``, which means ``alone``: as good is what two digits do not tell.

    >>> faster(1.28, "one device", "all on gpu0")
    '1.28 times as fast as one device'
    >>> faster(1.003, "one device", "all on gpu0"), faster(0.9999, "one device", "all on gpu0")
    ('one device is as good (all on gpu0 takes 0.3 % longer)', 'one device is as good (all on gpu0 takes <0.1 % less)')
    """
    if not alike(ratio):
        return f"{fixed(ratio, 2)} times as fast as {one}"
    difference = f"{format_percent(abs(ratio - 1))} {'longer' if ratio >= 1 else 'less'}"
    return f"{one} is as good ({alone} takes {difference})"


def alike(ratio: float) -> bool:
    """Return whether two digits tell no difference."""
    return fixed(ratio, 2) == "1.00"


def scores(subject: NetSubject, found: Sequence[Scored], *, by_time: bool = True) -> Document:
    """Show given placements of ``subject``, the fastest that fits first, or by name."""
    rows = sorted(found, key=lambda one: (not one.run.fits, one.run.makespan)) if by_time else [*found]
    jumps = column(Scored, rows, "run.jumps", label="Edges across")
    names = ("path", "run.makespan_ns", "run.fits", "run.over_bytes", "run.used_devices")
    made = table(Scored, rows, *names, jumps, "extra", "missing", key="scores", heads=1)
    settings, net = subject.settings, subject.net
    subtitle = f"{len(net.order)} layers on {subject.cluster.name}, {settings.mode.name} mode"
    given = {"batch": net.batch(settings.batch_size), "batches": settings.batches}
    section = Section("scores", "Placements", blocks=(made, *_partial(rows)))
    return section.document(net.name, subtitle, settings=given)


def _partial(rows: Sequence[Scored]) -> Iterator[Note]:
    """Say which placements lack layers, and which name layers that the net does not have."""
    missing = [f"{one.path.name} lacks {one.missing} of {len(one.given.devices)}" for one in rows if one.missing]
    extra = [f"{one.path.name} has {one.extra}" for one in rows if one.extra]
    keep = "Layers that a placement lacks keep the device of the net, or else 0"
    ignored = "Names that are no layer of the net are ignored"
    for text, names in ((keep, missing), (ignored, extra)):
        if names:
            listed = ", ".join([*names[:5], *[f"and {len(names) - 5} more"] * (len(names) > 5)])
            yield Note(text=f"{text}: {listed}.", kind="warning")


# -- configured searches ----------------------------------------------------------------------------


def of_configured(done: ConfiguredRun) -> Document:
    """Show ``done``: the search, and what was measured after it."""
    made = document(done.placed)
    if done.second is None and done.config.measures:
        section = msgspec.structs.replace(made.sections[0], blocks=(*made.sections[0].blocks, _NOT_MEASURED))
        made = msgspec.structs.replace(made, sections=(section, *made.sections[1:]))
    return made if done.second is None else msgspec.structs.replace(made, sections=(*made.sections, _fastest(done)))


class _Measured(msgspec.Struct, frozen=True):
    measured_time_ns: Annotated[int, Show("Fastest measured")]
    predicted_time_ns: Annotated[int, Show("predicted for it", level=1)]
    of_simulated_ns: Annotated[int | None, Show("Measured, of the fastest in simulation")]
    measured: Annotated[int, Show("Placements measured")]
    out_of_memory: Annotated[int, Show("out of memory", level=1, if_any=True)]


def _fastest(done: ConfiguredRun) -> Section:
    """Show the placement that was fastest in measurements, beside the one of the simulation."""
    best, found = done.fastest, done.placed.placement
    ns = {layers: None if ms is None else round(ms * 1e6) for layers, ms in done.times.items()}
    least = None if best is None else ns[best]
    if best is None or least is None:
        text = f"No placement of {len(ns):,} that were measured had the memory."
        return Section("measured", "Measured", blocks=(Note(text=text, kind="failure"),))
    run, lacking = done.placed.subject.run(best), sum(one is None for one in ns.values())
    several = "the only one" if len(ns) == 1 else f"the fastest of {len(ns):,}"
    text = f"{least / 1e6:.4g} ms measured on {where(run)}: {several} that were measured."
    made = _Measured(least, run.makespan_ns, ns.get(found), len(ns), lacking)
    remark = "the same placement" if found == best else "" if found in ns else "not measured"
    times = ("measured_time_ns", "predicted_time_ns", fact(made, "of_simulated_ns", remark))
    shown = facts(made, *times, fact(made, "measured", done.timed and f"each {done.timed}"), "out_of_memory")
    blocks = (Note(text=text, kind="verdict"), shown, layer_runs(run))
    return Section("measured", "Measured", blocks=blocks)
