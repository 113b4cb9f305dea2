"""Section ``machines``: the predicted step on one or several machines side by side, and on several devices of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tensortide.cost.coverage import shown
from tensortide.graph.collectives import moves_data
from tensortide.reports.blocks import AnyBlock, Column, Facts, Note, Section, Table, data_facts
from tensortide.reports.sections import Step
from tensortide.reports.sections.machine_groups import WIDE, by_op, by_phase, grouped_table, modules_table
from tensortide.reports.sections.predicted_times import rates_columns, times_columns
from tensortide.timelines.data_parallel import BUCKET_BYTES
from tensortide.timelines.machines import MachineStep
from tensortide.timelines.ratio import work_ratio
from tensortide.timelines.step import ISSUE_NS
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Durations
from tensortide.timing.estimate import captured_elsewhere
from tensortide.timing.estimates import Bound, Provenance
from tensortide.timing.families import compute_dtype
from tensortide.timing.figures import at_least
from tensortide.timing.rates import runs_as_fp32
from tensortide.timing.totals import by_bound
from tensortide.units import format_bytes, format_seconds

__all__ = ["section"]

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
        blocks.append(grouped_table("machine_phases", "By phase", "Phase", [by_phase(own) for own in steps], found))
        blocks.append(modules_table(steps, found))
        blocks.append(grouped_table("machine_ops", "By op", "Op", [by_op(own) for own in steps], found, top=step.top))
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
        *times_columns("step", "Step", times, interval=True),
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
        *times_columns("device_step", "One device", alone),
        Column("exchanged", "Exchanged", "bytes", tuple(one.exchange.nbytes for one in found)),
        Column("collectives", "collectives", "ns", tuple(round(one.exchange.time.time_ns) for one in found)),
        Column("exposed", "exposed", "ns", tuple(one.exchange.exposed_ns for one in found)),
        *times_columns("overlapped", "Step", together),
        *times_columns("apart", "no overlap", apart),
        *rates_columns("per_device", f"{what}, device", together, [size] * len(found), at_width=WIDE),
        *rates_columns("total", f"{what}, all", together, [size * devices for devices in sizes], interval=True),
        Column("devices", "Devices", "count", tuple(sizes), data=True),
    )
    return Table(key="data_parallel", title="Data parallel", columns=columns, heads=1)


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
