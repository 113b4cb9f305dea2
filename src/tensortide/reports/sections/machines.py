"""Section ``machines``: the predicted step on one or several machines side by side, and on several devices of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from tensortide.cost.coverage import shown
from tensortide.graph.collectives import moves_data
from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table
from tensortide.reports.names import pattern
from tensortide.reports.sections import Step
from tensortide.reports.sections.modules import OUTSIDE_PATH, ROOT_PATH
from tensortide.timelines.data_parallel import BUCKET_BYTES
from tensortide.timelines.machines import MachineStep
from tensortide.timelines.step import ISSUE_NS
from tensortide.timing.durations import Durations
from tensortide.timing.estimates import Bound, Estimate, Provenance
from tensortide.timing.families import compute_dtype
from tensortide.timing.figures import at_least
from tensortide.timing.totals import by_bound, total, unpredicted_ns
from tensortide.units import format_bytes, format_seconds

__all__ = ["section"]

WIDE = 130
"""From so many columns on every time has its interval and provenance beside it."""

Groups = Mapping[str, Sequence[int]]
"""Ops by what they are shown under."""

_HOST = (
    "The host issues an op in {issue} (NeuSight's tables: six GPUs, PyTorch); a device that is faster waits for it. "
    "--launch graph: captured launches."
)
_MFU = (
    "MFU: products of the step at 2 FLOPs per multiply-accumulate (causal attention: half), recomputation left out, at "
    "the dense peak of their dtypes, over the step's time. Other sources count otherwise."
)
_PARALLEL = (
    "Each device takes the whole step on data of its own, and gradients are all-reduced in buckets of {bucket}. "
    "Not modelled: computation that slows down beside communication, stragglers, input pipelines, sharded states, "
    "tensor and pipeline parallelism."
)


def section(step: Step, found: Sequence[MachineStep]) -> Section:
    """Show ``step`` on each of the machines of ``found``."""
    blocks: list[AnyBlock] = [*_verdict(found), _machines(step, found), _bounds(found)]
    if any(one.machines.size > 1 for one in found):
        blocks.append(_parallel(step, found))
    if len(found) > 1:
        blocks.append(_grouped("machine_phases", "By phase", "Phase", _by(step, lambda i: step.phases[i]), found))
        blocks.append(_modules(step, found))
        ops = _by(step, lambda i: shown(step.graph[i].name))
        blocks.append(_grouped("machine_ops", "By op", "Op", ops, found, top=step.top))
    blocks += (*unknown(step, found[0].durations), *(Note(text=text) for text in _remarks(step, found)))
    return Section("machines", "Predicted step", blocks=tuple(blocks))


def _verdict(found: Sequence[MachineStep]) -> Iterator[Note]:
    """Say which machine does most of the steps, one for each device, and whether the intervals settle it."""
    if len(found) < 2:
        return
    ranked = sorted(found, key=lambda one: one.step().time_ns / one.machines.size)
    best, second = ranked[:2]
    ratio = second.step().time_ns / second.machines.size / (best.step().time_ns / best.machines.size)
    apart = best.step().high_ns / best.machines.size < second.step().low_ns / second.machines.size
    alone = best.machines.size == second.machines.size == 1
    if apart:
        settled = "their intervals do not overlap"
    elif alone and at_least(best.machines.device, second.machines.device):
        settled = "it is as good in every figure, so it is not slower; their intervals overlap, so by how much is open"
    else:
        settled = "their intervals overlap, so this is not settled"
    text = f"{best.machines} does {ratio:.2f} times the work of {second.machines} in the same time; {settled}."
    yield Note(text=text, kind="verdict")


def _machines(step: Step, found: Sequence[MachineStep]) -> Table:
    times = [one.step() for one in found]
    peak = step.eager.peak_bytes
    room = [one.machines.device.usable_bytes for one in found]
    columns = (
        Column("machine", "Machine", "text", tuple(str(one.machines) for one in found)),
        *_times("step", "Step", times, interval=True),
        Column("busy", "On device", "ns", tuple(one.line.busy_ns for one in found)),
        Column("waiting", "Idle", "ns", tuple(_idle(one) for one in found)),
        Column("mfu", "MFU", "share", tuple(one.mfu for one in found)),
        Column("provenance", "rests on", "text", tuple(str(time.provenance) for time in times)),
        Column("unknown", "Unknown ops", "count", tuple(time.unknown for time in times), data=True),
        Column("issuing", "Host issues", "ns", tuple(one.line.issuing_ns for one in found), data=True),
        Column("syncs", "Synchronizing ops", "count", tuple(one.line.syncs for one in found), data=True),
        Column("memory_used", "Memory", "share", tuple(peak / usable if usable else None for usable in room), at_width=110),
    )
    return Table(key="machines", columns=columns, heads=1)


def _idle(one: MachineStep) -> int:
    return max(0, round(one.line.estimate.time_ns) - one.line.busy_ns)


def _bounds(found: Sequence[MachineStep]) -> Table:
    """Show what the time of the step goes to, as shares of it."""
    wholes = [one.step().time_ns for one in found]
    bounds = [by_bound(one.durations, _running(one)) for one in found]

    def shares(bound: Bound) -> tuple[float | None, ...]:
        return tuple(ns.get(bound, 0) / whole if whole else None for ns, whole in zip(bounds, wholes, strict=True))

    idle = tuple(_idle(one) / whole if whole else None for one, whole in zip(found, wholes, strict=True))
    exposed = tuple(
        one.exchange.exposed_ns / whole if whole else None for one, whole in zip(found, wholes, strict=True)
    )
    columns = (
        Column("machine", "Machine", "text", tuple(str(one.machines) for one in found)),
        Column("bound_compute", "arithmetic", "share", shares("compute")),
        Column("bound_memory", "bytes", "share", shares("memory")),
        Column("bound_launch", "launches", "share", shares("launch")),
        Column("bound_host", "views", "share", shares("host"), data=not any(bound.get("host") for bound in bounds)),
        Column("idle", "host", "share", idle),
        Column("exposed", "communication", "share", exposed, data=not any(one.exchange.nbytes for one in found)),
    )
    return Table(key="bounds", title="Bound by", remark="shares of the step", columns=columns, heads=1)


def _running(one: MachineStep) -> list[int]:
    """Ops that take the device time."""
    return [i for i, ns in enumerate(one.line.clocks.device) if ns]


def _parallel(step: Step, found: Sequence[MachineStep]) -> Table:
    alone, apart = [one.line.estimate for one in found], [one.step(overlap=False) for one in found]
    together = [one.step() for one in found]
    batch = step.graph.meta.hyperparameters.get("batch")
    size = batch if isinstance(batch, int) else 1
    rates = [size * 1e9 / time.time_ns if time.time_ns else None for time in together]
    totals = [None if r is None else r * one.machines.size for r, one in zip(rates, found, strict=True)]
    rates, totals = ([None if r is None else float(f"{r:.4g}") for r in some] for some in (rates, totals))
    what = "samples/s" if isinstance(batch, int) else "steps/s"
    columns = (
        Column("machine", "Machine", "text", tuple(str(one.machines) for one in found)),
        *_times("device_step", "One device", alone),
        Column("exchanged", "Exchanged", "bytes", tuple(one.exchange.nbytes for one in found)),
        Column("collectives", "collectives", "ns", tuple(round(one.exchange.time.time_ns) for one in found)),
        Column("exposed", "exposed", "ns", tuple(one.exchange.exposed_ns for one in found)),
        *_times("overlapped", "Step", together),
        *_times("apart", "no overlap", apart),
        Column("per_device", f"{what}, device", "amount", tuple(rates)),
        Column("total", f"{what}, all", "amount", tuple(totals)),
        Column("devices", "Devices", "count", tuple(one.machines.size for one in found), data=True),
    )
    return Table(key="data_parallel", title="Data parallel", columns=columns, heads=1)


def _by(step: Step, name: Callable[[int], str]) -> dict[str, list[int]]:
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index in range(len(step.graph)):
        groups[name(index)].append(index)
    return groups


def _modules(step: Step, found: Sequence[MachineStep]) -> Table:
    """The module tree to ``step.depth``, with what is inside; modules that differ by number alone share a row."""
    inside: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, op in enumerate(step.graph.ops):
        path = step.graph.module_path(op.module)
        names = (path,) if path in (ROOT_PATH, OUTSIDE_PATH) else tuple(pattern(path).split("."))
        for level in range(1, min(len(names), step.depth + 1) + 1):
            inside[names[:level]].append(index)
    first = {name: total(found[0].durations, ops).time_ns for name, ops in inside.items()}

    def place(name: tuple[str, ...]) -> list[tuple[float, str]]:
        return [(-first[name[:level]], name[level - 1]) for level in range(1, len(name) + 1)]

    rows = sorted(inside, key=place)
    groups = {".".join(row): inside[row] for row in rows}
    table = _grouped("machine_modules", "By module", "Module", groups, found, sort=False)
    head = Column("module", "Module", "path", tuple(row[-1] for row in rows), fold=True)
    depth = tuple(len(row) - 1 for row in rows)
    return Table(
        key="machine_modules",
        title="By module",
        remark=f"to depth {step.depth}, with what is inside",
        columns=(head, *table.columns[1:]),
        depth=depth,
        to_depth=step.depth,
        heads=1,
    )


def unknown(step: Step, durations: Durations) -> Iterator[Table]:
    """Name the ops whose time is not predicted, and why."""
    forecast = durations.forecast
    rows = () if forecast is None else [forecast.rows[row] for row in forecast.index]
    counts = Counter[tuple[str, str]]()
    for op, row in zip(step.graph, rows, strict=bool(rows)):
        if row.provenance is Provenance.UNKNOWN:
            priced = step.counted.costs[op.index].cost is not None
            dtype = compute_dtype(op.inputs or op.outputs)
            counts[shown(op.name), f"no rate of {dtype} in the catalogue" if priced else "no cost rule"] += 1
    if not counts:
        return
    keys = [key for key, _ in counts.most_common()]
    columns = (
        Column("op", "Op", "name", tuple(name for name, _ in keys), fold=True),
        Column("count", "Ops", "count", tuple(counts[key] for key in keys)),
        Column("reason", "Why", "text", tuple(reason for _, reason in keys)),
    )
    title = f"Unknown times: {counts.total():,} of {len(step.graph):,} ops"
    yield Table(
        key="unknown",
        title=title,
        remark="counted by their bytes; intervals do not cover them",
        columns=columns,
        top=step.top,
    )


def _grouped(
    key: str,
    title: str,
    label: str,
    groups: Groups,
    found: Sequence[MachineStep],
    *,
    top: int | None = None,
    sort: bool = True,
) -> Table:
    """Sums of ops by group, a time for each machine."""
    sums = {name: [total(one.durations, ops) for one in found] for name, ops in groups.items()}
    missing = {name: [unpredicted_ns(one.durations, ops) for one in found] for name, ops in groups.items()}
    names = sorted(sums, key=lambda name: -max(time.time_ns for time in sums[name])) if sort else list(sums)
    columns = [Column(label.lower(), label, "name", tuple(names), fold=True)]
    for i, one in enumerate(found):
        times = [sums[name][i] for name in names]
        without = [missing[name][i] for name in names]
        columns += _times(f"time_{i}", str(one.machines), times, without, interval=True, at_width=WIDE)
        columns.append(
            Column(f"provenance_{i}", "rests on", "text", tuple(str(t.provenance) for t in times), at_width=WIDE)
        )
        columns.append(Column(f"unknown_{i}", "Unknown ops", "count", tuple(time.unknown for time in times), data=True))
    return Table(key=key, title=title, remark="ops alone", columns=tuple(columns), top=top, heads=1)


def _times(
    key: str,
    label: str,
    times: Sequence[Estimate],
    without: Sequence[int] = (),
    *,
    interval: bool = False,
    at_width: int = 0,
) -> Iterator[Column]:
    """A column of times, and with ``interval`` one of their 80 % intervals, from a width on; ends as data.

    ``without``: nanoseconds to add that no interval is known of.
    """
    added = without or [0] * len(times)
    known = [round(time.time_ns) + ns for time, ns in zip(times, added, strict=True)]
    lows = [round(time.low_ns) + ns for time, ns in zip(times, added, strict=True)]
    highs = [round(time.high_ns) + ns for time, ns in zip(times, added, strict=True)]
    signs = tuple("~" * bool(time.unknown) for time in times)
    yield Column(key, label, "ns", tuple(known), before=signs)
    if interval:
        ends = zip(times, lows, highs, strict=True)
        text = (f"{_time(a)} to {_time(b)}" if time.time_ns else "" for time, a, b in ends)
        yield Column(f"{key}_interval", "8 of 10 cases", "text", tuple(text), at_width=at_width, dim=True)
    yield Column(f"{key}_low", "", "ns", tuple(lows), data=True)
    yield Column(f"{key}_high", "", "ns", tuple(highs), data=True)


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


def _remarks(step: Step, found: Sequence[MachineStep]) -> Iterator[str]:
    unknown = max(one.step().unknown for one in found)
    if unknown:
        yield f"~ {unknown:,} ops of unknown time count with the time of their bytes; intervals do not cover them"
    yield _MFU
    if any(one.line.host.issue_ns for one in found):
        yield _HOST.format(issue=_time(ISSUE_NS))
    if any(one.machines.size > 1 for one in found):
        yield _PARALLEL.format(bucket=format_bytes(BUCKET_BYTES))
        if not any(one.exchange.nbytes for one in found):
            yield "No gradients are exchanged: the step has none."
        if any(moves_data(op.name) for op in step.graph):
            yield "The step was captured with collectives of its own: they are among all devices, and none is hidden."
    peak = step.eager.peak_bytes
    for one in found:
        room = one.machines.device.usable_bytes
        if room is not None and peak > room:
            yield f"{one.machines}: the step needs {format_bytes(peak)}, the device has {format_bytes(room)} for it"
