"""Section ``machines``: the predicted step on one or several machines side by side, and on several devices of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from tensortide.cost.coverage import shown
from tensortide.graph.collectives import moves_data
from tensortide.reports.blocks import AnyBlock, Column, Facts, Note, Section, Table, data_facts
from tensortide.reports.names import pattern
from tensortide.reports.sections import Step
from tensortide.reports.sections.modules import OUTSIDE_PATH, ROOT_PATH
from tensortide.timelines.data_parallel import BUCKET_BYTES
from tensortide.timelines.machines import MachineStep
from tensortide.timelines.ratio import work_ratio
from tensortide.timelines.step import ISSUE_NS
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Durations
from tensortide.timing.estimate import captured_elsewhere
from tensortide.timing.estimates import Bound, Estimate, Provenance
from tensortide.timing.families import compute_dtype
from tensortide.timing.figures import at_least
from tensortide.timing.rates import runs_as_fp32
from tensortide.timing.totals import by_bound, total, unpredicted_ns
from tensortide.units import format_bytes, format_count, format_seconds

__all__ = ["section"]

WIDE = 130
"""From so many columns on every time has its interval and provenance beside it."""

Name: TypeAlias = tuple[str, ...]
Groups: TypeAlias = Mapping[Name, Sequence[int]]
"""Ops of one machine's step by the name that they are shown under: of a module with those around it."""

_HOST = (
    "The host issues an op in {issue} (NeuSight's tables: six GPUs, PyTorch); a device that is faster waits for it. "
    "--launch graph: captured launches, as a step of JAX always has."
)
_SAME_HOST = "Both are taken to have the same host; errors of their ops are taken as independent."
_SAME_DEVICE = "They have the same device, and are taken to have the same host: errors of both are common and cancel."
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
    steps = step.on(found)
    blocks: list[AnyBlock] = [*_verdict(found), *_too_large(steps, found), _machines(steps, found), _bounds(found)]
    if any(one.machines.size > 1 for one in found):
        blocks.append(_parallel(step, found))
    if len(found) > 1:
        blocks.append(_grouped("machine_phases", "By phase", "Phase", [_phases(own) for own in steps], found))
        blocks.append(_modules(steps, found))
        blocks.append(_grouped("machine_ops", "By op", "Op", [_ops(own) for own in steps], found, top=step.top))
    blocks += (*unknown(steps, found), *(Note(text=text) for text in _remarks(steps, found)))
    return Section("machines", "Predicted step", blocks=tuple(blocks))


def _verdict(found: Sequence[MachineStep]) -> Iterator[AnyBlock]:
    """Say which machine does most of the steps, one for each device, and whether the interval of that settles it.

    Stand-ins for unknown times decide nothing: machines with such ops are not ranked.
    """
    known = [one for one in found if not one.step_time().unknown]
    untold = [f"{one.machines} ({one.step_time().unknown:,})" for one in found if one not in known]
    told = sorted(known, key=lambda one: one.step_time().time_ns / one.machines.size)
    if len(found) > 1 and untold:
        yield Note(text=f"Not ranked, for ops of unknown time there: {', '.join(untold)}.", kind="verdict")
    if len(told) < 2:
        return
    best, second, *rest = told
    ratio = work_ratio(best, second)
    no_slower = _no_slower(best, second)
    low = max(1.0, ratio.low) if no_slower else ratio.low
    between = f"{low:.2f} to {ratio.high:.2f} in 8 of 10 cases"
    if ratio.low > 1:
        settled = "it is the faster one"
    elif no_slower:
        settled = "as good in every figure, it is not slower"
    else:
        settled = "which one is faster is not settled"
    text = f"{best.machines} does {ratio.value:.2f} times the work of {second.machines} in the same time, {between}: "
    others = "".join(f" {_more(best, other)}" for other in rest)
    how = _SAME_DEVICE if ratio.same_device else _SAME_HOST
    yield Note(text=f"{text}{settled}.{others} {how}", kind="verdict")
    yield Facts(rows=tuple(data_facts("number", ratio=ratio.value, ratio_low=low, ratio_high=ratio.high)))


def _no_slower(best: MachineStep, other: MachineStep) -> bool:
    """Tell whether ``best`` cannot be the slower one: single devices, one as good as the other in every figure."""
    alone = best.machines.size == other.machines.size == 1
    return alone and at_least(best.machines.device, other.machines.device)


def _more(best: MachineStep, other: MachineStep) -> str:
    """Return how much more ``best`` does than one of those behind the second."""
    ratio = work_ratio(best, other)
    low = max(1.0, ratio.low) if _no_slower(best, other) else ratio.low
    return f"That of {other.machines}: {ratio.value:.2f} times ({low:.2f} to {ratio.high:.2f})."


def _too_large(steps: Sequence[Step], found: Sequence[MachineStep]) -> Iterator[Note]:
    """Warn of machines on which the step does not fit."""
    for step, one in zip(steps, found, strict=True):
        peak, room = step.eager.peak_bytes, one.machines.device.usable_bytes
        if room is not None and peak > room:
            text = f"{one.machines}: the step does not fit: it needs {format_bytes(peak)}, the device has "
            yield Note(text=f"{text}{format_bytes(room)} for it.", kind="warning")


def _machines(steps: Sequence[Step], found: Sequence[MachineStep]) -> Table:
    times = [one.step_time() for one in found]
    peaks = [step.eager.peak_bytes for step in steps]
    room = [one.machines.device.usable_bytes for one in found]
    used = tuple(peak / usable if usable else None for peak, usable in zip(peaks, room, strict=True))
    columns = (
        Column("machine", "Machine", "text", tuple(str(one.machines) for one in found)),
        *_times("step", "Step", times, interval=True),
        Column("busy", "On device", "ns", tuple(one.line.busy_ns for one in found), at_width=90),
        Column("waiting", "Idle", "ns", tuple(_idle(one) for one in found)),
        Column("mfu", "MFU", "share", tuple(one.mfu for one in found)),
        Column("provenance", "rests on", "text", tuple(str(time.provenance) for time in times)),
        Column("unknown", "Unknown ops", "count", tuple(time.unknown for time in times), data=True),
        Column("ops", "Ops", "count", tuple(len(step.graph) for step in steps), data=True),
        Column("issuing", "Host issues", "ns", tuple(one.line.issuing_ns for one in found), data=True),
        Column("syncs", "Synchronizing ops", "count", tuple(one.line.syncs for one in found), data=True),
        Column("memory_used", "Memory", "share", used, at_width=110),
    )
    return Table(key="machines", columns=columns, heads=1)


def _idle(one: MachineStep) -> int:
    return max(0, round(one.line.estimate.time_ns) - one.line.busy_ns)


def _bounds(found: Sequence[MachineStep]) -> Table:
    """Show what the time of the step goes to, as shares of it."""
    wholes = [one.step_time().time_ns for one in found]
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
    alone, apart = [one.line.estimate for one in found], [one.step_time(overlap=False) for one in found]
    together = [one.step_time() for one in found]
    batch = step.graph.meta.hyperparameters.get("batch")
    size = batch if isinstance(batch, int) else 1
    what = "samples/s" if isinstance(batch, int) else "steps/s"
    sizes = [one.machines.size for one in found]
    columns = (
        Column("machine", "Machine", "text", tuple(str(one.machines) for one in found)),
        *_times("device_step", "One device", alone),
        Column("exchanged", "Exchanged", "bytes", tuple(one.exchange.nbytes for one in found)),
        Column("collectives", "collectives", "ns", tuple(round(one.exchange.time.time_ns) for one in found)),
        Column("exposed", "exposed", "ns", tuple(one.exchange.exposed_ns for one in found)),
        *_times("overlapped", "Step", together),
        *_times("apart", "no overlap", apart),
        *_rates("per_device", f"{what}, device", together, [size] * len(found), at_width=WIDE),
        *_rates("total", f"{what}, all", together, [size * devices for devices in sizes], interval=True),
        Column("devices", "Devices", "count", tuple(sizes), data=True),
    )
    return Table(key="data_parallel", title="Data parallel", columns=columns, heads=1)


def _rates(
    key: str,
    label: str,
    times: Sequence[Estimate],
    sizes: Sequence[int],
    *,
    interval: bool = False,
    at_width: int = 0,
) -> Iterator[Column]:
    """Columns of samples per second, ``sizes`` in each of ``times``, to the digits that are known."""

    def rates(ends: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(float(f"{n * 1e9 / ns:.4g}") if ns else None for n, ns in zip(sizes, ends, strict=True))

    least, most = rates([0.0 if time.unknown else time.high_ns for time in times]), rates([t.low_ns for t in times])
    yield Column(key, label, "amount", rates([time.time_ns for time in times]), at_width=at_width)
    if interval:
        pairs = zip(least, most, strict=True)
        ends = (
            f"{format_count(a)} to {format_count(b or 0)}" if a else f"up to {format_count(b or 0)}" for a, b in pairs
        )
        yield Column(f"{key}_interval", "8 of 10 cases", "text", tuple(ends), dim=True)
    yield Column(f"{key}_low", "", "amount", least, data=True)
    yield Column(f"{key}_high", "", "amount", most, data=True)


def _by(step: Step, name: Callable[[int], str]) -> Groups:
    groups: defaultdict[Name, list[int]] = defaultdict(list)
    for index in range(len(step.graph)):
        groups[(name(index),)].append(index)
    return groups


def _phases(step: Step) -> Groups:
    return _by(step, step.phases.__getitem__)


def _ops(step: Step) -> Groups:
    return _by(step, lambda index: shown(step.graph[index].name))


def _modules(steps: Sequence[Step], found: Sequence[MachineStep]) -> Table:
    """The module tree, with what is inside; modules that differ by number alone share a row."""
    depth = steps[0].depth
    groups = [_inside(step) for step in steps]
    most: defaultdict[Name, float] = defaultdict(float)
    for one, of in zip(found, groups, strict=True):
        for name, ops in of.items():
            most[name] = max(most[name], total(one.durations, ops).time_ns)

    def place(name: Name) -> list[tuple[float, str]]:
        return [(-most[name[:level]], name[level - 1]) for level in range(1, len(name) + 1)]

    rows = sorted(most, key=place)
    table = _grouped("machine_modules", "By module", "Module", groups, found, names=rows)
    head = Column("module", "Module", "path", tuple(row[-1] for row in rows), fold=True)
    return replace(
        table,
        remark=f"to depth {depth}, with what is inside",
        columns=(head, *table.columns[1:]),
        depth=tuple(len(row) - 1 for row in rows),
        to_depth=depth,
    )


def _inside(step: Step) -> Groups:
    """Ops by every module that they are in, to ``step.depth``."""
    inside: defaultdict[Name, list[int]] = defaultdict(list)
    rooted = any(not module.path for module in step.graph.modules)
    for index, op in enumerate(step.graph.ops):
        path = step.graph.module_path(op.module)
        above = (ROOT_PATH,) if rooted and path not in (ROOT_PATH, OUTSIDE_PATH) else ()
        names = (*above, *pattern(path).split("."))
        for level in range(1, min(len(names), step.depth + 1) + 1):
            inside[names[:level]].append(index)
    return inside


def unknown(steps: Sequence[Step], found: Sequence[MachineStep] = ()) -> Iterator[Table]:
    """Name the ops whose time is not predicted, and why; on which machine, if there are several."""
    counts = Counter[tuple[str, str, str]]()
    for number, step in enumerate(steps):
        durations = found[number].durations if found else step.durations
        machine = str(found[number].machines) if len(found) > 1 else ""
        for op, reason in _reasons(step, durations):
            counts[machine, op, reason] += 1
    if not counts:
        return
    keys = [key for key, _ in counts.most_common()]
    columns = (
        Column("op", "Op", "name", tuple(name for _, name, _ in keys), fold=True),
        Column("machine", "Machine", "text", tuple(machine for machine, _, _ in keys), data=len(found) < 2),
        Column("count", "Ops", "count", tuple(counts[key] for key in keys)),
        Column("reason", "Why", "text", tuple(reason for _, _, reason in keys), fold=True),
    )
    whole = sum(len(step.graph) for step in steps)
    yield Table(
        key="unknown",
        title=f"Unknown times: {counts.total():,} of {whole:,} ops",
        remark="counted by their bytes alone: they may take far longer",
        columns=columns,
        top=steps[0].top,
    )


def _reasons(step: Step, durations: Durations | None) -> Iterator[tuple[str, str]]:
    """Each op of unknown time, and why it is."""
    forecast = None if durations is None else durations.forecast
    rows = () if forecast is None else [forecast.rows[row] for row in forecast.index]
    for op, row in zip(step.graph, rows, strict=bool(rows)):
        if row.provenance is Provenance.UNKNOWN:
            priced = step.counted.costs[op.index].cost is not None
            dtype = compute_dtype(op.inputs or op.outputs)
            yield shown(op.name), f"no rate of {dtype} in the catalogue" if priced else "no cost rule"


def _grouped(
    key: str,
    title: str,
    label: str,
    groups: Sequence[Groups],
    found: Sequence[MachineStep],
    *,
    top: int | None = None,
    names: Sequence[Name] = (),
) -> Table:
    """Sums of ops by group, a time for each machine; the largest first, or ``names`` in their order."""
    sums = [
        {name: total(one.durations, ops) for name, ops in of.items()} for one, of in zip(found, groups, strict=True)
    ]
    every = names or sorted({name for of in sums for name in of}, key=lambda name: _largest_first(sums, name))
    columns = [Column(label.lower(), label, "name", tuple(".".join(name) for name in every), fold=True)]
    for i, one in enumerate(found):
        times = [sums[i].get(name) for name in every]
        without = [unpredicted_ns(one.durations, groups[i].get(name, ())) for name in every]
        columns += _times(f"time_{i}", str(one.machines), times, without, interval=True, at_width=WIDE)
        columns.append(
            Column(
                f"provenance_{i}",
                "rests on",
                "text",
                tuple("" if t is None else str(t.provenance) for t in times),
                at_width=WIDE,
            )
        )
        columns.append(
            Column(f"unknown_{i}", "Unknown ops", "count", tuple(t.unknown if t else 0 for t in times), data=True)
        )
    return Table(key=key, title=title, remark="ops alone", columns=tuple(columns), top=top, heads=1)


def _largest_first(sums: Sequence[Mapping[Name, Estimate]], name: Name) -> tuple[float, Name]:
    return -max(of[name].time_ns for of in sums if name in of), name


def _times(
    key: str,
    label: str,
    times: Sequence[Estimate | None],
    without: Sequence[int] = (),
    *,
    interval: bool = False,
    at_width: int = 0,
) -> Iterator[Column]:
    """A column of times, and with ``interval`` one of their 80 % intervals, from a width on; ends as data.

    ``without``: nanoseconds to add that no interval is known of. None: there is no such time.
    """
    added = without or [0] * len(times)
    pairs = list(zip(times, added, strict=True))
    known = [None if time is None else round(time.time_ns) + ns for time, ns in pairs]
    ends = [(None, None) if time is None else ends_ns(time, ns) for time, ns in pairs]
    signs = tuple("~" * bool(time and time.unknown) for time in times)
    yield Column(key, label, "ns", tuple(known), before=signs)
    if interval:
        text = tuple(interval_text(time, ns) if time and time.time_ns else "" for time, ns in pairs)
        yield Column(f"{key}_interval", "8 of 10 cases", "text", text, at_width=at_width, dim=True)
    yield Column(f"{key}_low", "", "ns", tuple(low for low, _ in ends), data=True)
    yield Column(f"{key}_high", "", "ns", tuple(high for _, high in ends), data=True)


def ends_ns(time: Estimate, missing: int = 0) -> tuple[int, int | None]:
    """The ends of the 80 % interval of a sum, with ``missing`` nanoseconds of ops of unknown time: with such ops the
    upper end is not known."""
    return round(time.low_ns) + missing, None if time.unknown else round(time.high_ns) + missing


def interval_text(time: Estimate, missing: int = 0) -> str:
    """Say the same in words."""
    low, high = ends_ns(time, missing)
    return f"{_time(low)} or more" if high is None else f"{_time(low)} to {_time(high)}"


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


def _narrow(step: Step, device: Device) -> list[str]:
    """The dtypes of products of ``step`` that ``device`` computes at the rate of fp32."""
    costs = zip(step.graph, step.counted.costs, strict=True)
    found = {compute_dtype(op.inputs or op.outputs) for op, cost in costs if cost.cost is not None and cost.cost.macs}
    return sorted(dtype for dtype in found if runs_as_fp32(device, dtype))


def _remarks(steps: Sequence[Step], found: Sequence[MachineStep]) -> Iterator[str]:
    unknown = max(one.step_time().unknown for one in found)
    if unknown:
        ops = f"~ {unknown:,} op{'s' * (unknown != 1)} of unknown time"
        yield f"{ops}: with the time of their bytes alone, which may be far too short"
    for own, one in zip(steps, found, strict=True):
        if elsewhere := captured_elsewhere(own.graph, one.machines.device):
            yield f"{one.machines}: the step consists {elsewhere}"
        for dtype in _narrow(own, one.machines.device):
            yield f"{one.machines.device.name} has no units for {dtype}: its products are taken at the rate of float32"
    yield _MFU
    if any(one.line.host.issue_ns for one in found):
        yield _HOST.format(issue=_time(ISSUE_NS))
    if any(one.machines.size > 1 for one in found):
        yield _PARALLEL.format(bucket=format_bytes(BUCKET_BYTES))
        if not any(one.exchange.nbytes for one in found):
            yield "No gradients are exchanged: the step has none."
        if any(moves_data(op.name) for op in steps[0].graph):
            yield "The step was captured with collectives of its own: they are among all devices, and none is hidden."
