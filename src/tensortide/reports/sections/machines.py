"""Section ``machines``: the predicted step on one or several machines side by side, and on several devices of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, TypeAlias

import msgspec

from tensortide.cost.coverage import shown
from tensortide.graph.communication import moves_data
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH
from tensortide.graph.module_paths import as_one, pattern
from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.sections import Step
from tensortide.reports.sections.predicted_times import legend, rates_columns, times_columns
from tensortide.shown import Show
from tensortide.timelines.data_parallel import BUCKET_BYTES
from tensortide.timelines.machines import MachineStep, Shares
from tensortide.timelines.ratio import work_ratio
from tensortide.timelines.step import ISSUE_NS
from tensortide.timing.estimate import captured_elsewhere
from tensortide.timing.estimates import Estimate, Provenance
from tensortide.timing.families import compute_dtype
from tensortide.timing.rates import runs_as_fp32
from tensortide.timing.totals import total, unpredicted_ns
from tensortide.units import format_bytes, format_seconds

WIDE = 130
"""From so many columns on every time has its interval and provenance beside it."""
OWN_KERNELS = "its own kernels take other times: capture with --machine"
Name: TypeAlias = tuple[str, ...]
"""The name that ops are shown under: of a module with those around it."""
_Names: TypeAlias = Callable[[Step, int], list[Name]]
_SAME_HOST = "Both are taken to have the same host; errors of their ops are taken as independent."
_SAME_DEVICE = "They have the same device, and are taken to have the same host: errors of both are common and cancel."


class _Unknown(msgspec.Struct, frozen=True):
    name: Annotated[str, Show("Op", "name", fold=True)]
    machine: Annotated[str, Show("Machine", if_any=True)]
    count: Annotated[int, Show("Ops")]
    reason: Annotated[str, Show("Why", fold=True)]


def section(step: Step, found: Sequence[MachineStep]) -> Section:
    """Show ``step`` on each of the machines of ``found``."""
    steps = step.on(found)
    blocks: list[AnyBlock] = [*_verdict(found), *_machines(steps, found), _bounds(found)]
    if any(one.nodes.size > 1 for one in found):
        blocks.append(_parallel(step, found))
    if len(found) > 1:
        bases = chain.from_iterable((*one.line.ops.by_provenance_ns, one.step_time.provenance) for one in found)
        blocks.append(legend(bases))
        blocks.append(_grouped("phase", steps, found, lambda own, op: [(own.phases[op],)]))
        blocks.append(_grouped("module", steps, found, _modules, depth=step.depth))
        blocks.append(_grouped("op", steps, found, lambda own, op: [(shown(own.graph[op].name),)], step.top))
    blocks += (*unknown(steps, found), *(Note(text=text) for text in _remarks(steps, found)))
    return Section("machines", "Predicted step", blocks=tuple(blocks))


def _verdict(found: Sequence[MachineStep]) -> Iterator[AnyBlock]:
    """Say which machine does most of the steps, one for each device, and whether the interval of that settles it.

    Stand-ins for unknown times decide nothing: machines with such ops are not ranked.
    """
    known = [one for one in found if not one.step_time.unknown]
    untold = [f"{one.machine} ({one.step_time.unknown:,})" for one in found if one not in known]
    if len(found) > 1 and untold:
        yield Note(text=f"Not ranked, for ops of unknown time there: {', '.join(untold)}.", kind="verdict")
    if len(known) < 2:
        return
    best, second, *rest = sorted(known, key=lambda one: one.step_time.time_ns / one.nodes.size)
    ratio = work_ratio(best, second)
    settled = "as good in every figure, it is not slower" if ratio.no_slower else "which one is faster is not settled"
    text = (
        f"{best.machine} does {ratio.value:.2f} times the work of {second.machine} in the same time, "
        f"80 % interval {ratio.low:.2f} to {ratio.high:.2f}: {'it is the faster one' if ratio.low > 1 else settled}."
    )
    for other in rest:
        behind = work_ratio(best, other)
        text += f" That of {other.machine}: {behind.value:.2f} times ({behind.low:.2f} to {behind.high:.2f})."
    yield Note(text=f"{text} {_SAME_DEVICE if ratio.same_device else _SAME_HOST}", kind="verdict")
    yield facts(ratio, "value as ratio", "low as ratio_low", "high as ratio_high", data=True)


def _machines(steps: Sequence[Step], found: Sequence[MachineStep]) -> Iterator[AnyBlock]:
    """Warn of machines on which the step does not fit, and show what it takes on each."""
    rooms = [(step.eager.peak_bytes, one.nodes.device.usable_bytes) for step, one in zip(steps, found, strict=True)]
    for one, (peak, room) in zip(found, rooms, strict=True):
        if room is not None and peak > room:
            text = f"{one.machine}: the step does not fit: it needs {format_bytes(peak)}, the device has "
            yield Note(text=f"{text}{format_bytes(room)}. See tensortide fit.", kind="warning")
    used = tuple(peak / room if room else None for peak, room in rooms)
    memory = Column("memory_used_share", "Memory", "share", used, at_width=110)
    times = times_columns("step", "Step", [one.step_time for one in found], interval=0)
    figures = ("line.busy_ns", "line.waiting_ns", "mfu_share", "step_time.provenance")
    data = ("step_time.unknown", "ops", "line.issuing_ns", "line.syncs")
    yield table(MachineStep, found, "machine", *times, *figures, *data, memory, key="machines", heads=1)


def _bounds(found: Sequence[MachineStep]) -> Table:
    """Show what the time of the step goes to, as shares of it."""
    names = ("machine", *(f"shares.{name}" for name in Shares._fields[:-1]))
    last = column(MachineStep, found, "shares.exposed_share", data=not any(one.exchange.nbytes for one in found))
    remark = "shares of the step; launches: of small ops; host: the device waits for it"
    return table(MachineStep, found, *names, last, key="bounds", title="Bound by", remark=remark, heads=1)


def _parallel(step: Step, found: Sequence[MachineStep]) -> Table:
    batch = step.graph.meta.hyperparameters.get("batch")
    size, what = (batch, "samples") if isinstance(batch, int) else (1, "steps")
    together, sizes = [one.step_time for one in found], [size * one.nodes.size for one in found]
    names: tuple[str | Column, ...] = (
        "machine",
        *times_columns("device_step", "One device", [one.line.estimate for one in found]),
        "exchange.nbytes as exchanged_bytes",
        column(MachineStep, found, "exchange.time.time_ns as collectives_ns", label="collectives", data=False),
        "exchange.exposed_ns",
        *times_columns("overlapped", "Step", together),
        *times_columns("apart", "no overlap", [one.step_time_apart for one in found]),
        *rates_columns(f"{what}_per_s_and_device", f"{what}/s, device", together, [size] * len(found), at_width=WIDE),
        *rates_columns(f"{what}_per_s", f"{what}/s, all", together, sizes, interval=True),
        "nodes.size as devices",
    )
    remark = "exchanged: gradients; exposed: not hidden by computation; no overlap: all exposed"
    return table(MachineStep, found, *names, key="data_parallel", title="Data parallel", remark=remark, heads=1)


def _grouped(
    what: str,
    steps: Sequence[Step],
    found: Sequence[MachineStep],
    names: _Names,
    top: int | None = None,
    depth: int = 0,
) -> Table:
    """Sums of ops by ``what`` they are, a time for each machine; the largest first, as a tree to ``depth``."""
    groups = [defaultdict[Name, list[int]](list) for _ in steps]
    for step, of in zip(steps, groups, strict=True):
        for op in range(len(step.graph)):
            for name in names(step, op):
                of[name].append(op)
    pairs = list(zip(found, groups, strict=True))
    sums = [{name: total(one.durations, ops) for name, ops in of.items()} for one, of in pairs]
    most = {name: max(of[name].time_ns for of in sums if name in of) for of in sums for name in of}

    def place(name: Name) -> list[tuple[float, str]]:
        return [(-most[name[:level]], name[level - 1]) for level in range(1, len(name) + 1)]

    rows = sorted(most, key=place)
    paths = [_paths(steps, groups, name) for name in rows] if depth else []
    whole = tuple(map(as_one, paths))
    heads = tuple(path.rpartition(".")[2] for path in whole) or tuple(name[-1] for name in rows)
    made = [Column("name" if what == "op" else what, what.capitalize(), "path" if depth else "name", heads, fold=True)]
    if depth:
        made.append(Column("path", "", "path", whole, data=True))
        made.append(Column("count", "", "count", tuple(map(len, paths)), data=True))
    for i, (one, of) in enumerate(pairs):
        times = [sums[i].get(name) for name in rows]
        without = [unpredicted_ns(one.durations, of.get(name, ())) for name in rows]
        made += times_columns(f"time_{i}", one.machine, times, without, interval=WIDE)
        made.append(column(Estimate, times, f"provenance as provenance_{i}", at_width=WIDE))
        made.append(column(Estimate, times, f"unknown as unknown_{i}"))
    remark = f"to depth {depth}, with what is inside" if depth else "sums of op times"
    flat = Table(key=f"machine_{what}s", title=f"By {what}", remark=remark, columns=tuple(made), top=top, heads=1)
    depths = tuple(len(name) - 1 for name in rows)
    return msgspec.structs.replace(flat, depth=depths, to_depth=depth) if depth else flat


def _modules(step: Step, op: int) -> list[Name]:
    """The modules that an op is in, to ``step.depth``; those that differ by number alone are one."""
    path, modules = step.graph.module_path(step.graph.ops[op].module), step.graph.modules
    rooted = path not in (ROOT_PATH, OUTSIDE_PATH) and any(not module.path for module in modules)
    names = (*([ROOT_PATH] if rooted else []), *pattern(path).split("."))
    return [names[:level] for level in range(1, min(len(names), step.depth + 1) + 1)]


def _paths(steps: Sequence[Step], groups: Sequence[Mapping[Name, Sequence[int]]], name: Name) -> list[str]:
    """The whole paths of the modules called ``name`` here."""
    level, ops = len(name) - (name[0] == ROOT_PATH), zip(steps, (of.get(name, ()) for of in groups), strict=True)
    paths = (step.graph.module_path(step.graph.ops[op].module) for step, some in ops for op in some)
    return list({".".join(path.split(".")[:level]) or ROOT_PATH for path in paths})


def unknown(steps: Sequence[Step], found: Sequence[MachineStep] = ()) -> Iterator[Table]:
    """Name the ops whose time is not predicted, and why; on which machine, if there are several."""
    counts, whole = Counter[tuple[str, str, str]](), sum(len(step.graph) for step in steps)
    for number, step in enumerate(steps):
        durations = found[number].durations if found else step.durations
        machine = found[number].machine if len(found) > 1 else ""
        forecast = None if durations is None else durations.forecast
        rows = () if forecast is None else [forecast.rows[row] for row in forecast.index]
        for op, row in zip(step.graph, rows, strict=bool(rows)):
            if row.provenance is Provenance.UNKNOWN:
                rate = f"no rate of {compute_dtype(op.inputs or op.outputs)} in the catalogue"
                reason = rate if step.counted.costs[op.index].cost is not None else "no cost rule"
                counts[shown(op.name), machine, reason] += 1
    if counts:
        kinds = [_Unknown(op, machine, count, reason) for (op, machine, reason), count in counts.most_common()]
        title = f"Unknown times: {counts.total():,} of {whole:,} ops"
        remark = "counted by their bytes alone: they may take far longer"
        yield table(_Unknown, kinds, key="unknown", title=title, remark=remark, top=steps[0].top)


def _remarks(steps: Sequence[Step], found: Sequence[MachineStep]) -> Iterator[str]:
    unknown = max(one.step_time.unknown for one in found)
    if unknown:
        ops = f"~ {unknown:,} op{'s' * (unknown != 1)} of unknown time"
        yield f"{ops}: with the time of their bytes alone, which may be far too short"
    for own, one in zip(steps, found, strict=True):
        device, costs = one.nodes.device, zip(own.graph, own.counted.costs, strict=True)
        if elsewhere := captured_elsewhere(own.graph, device):
            yield f"{one.machine}: the step consists {elsewhere}; {OWN_KERNELS}"
        dtypes = {compute_dtype(op.inputs or op.outputs) for op, cost in costs if cost.cost and cost.cost.macs}
        for dtype in sorted(dtype for dtype in dtypes if runs_as_fp32(device, dtype)):
            yield f"{device.name} has no units for {dtype}: its products are taken at the rate of float32"
    yield (
        "MFU: products of the step at 2 FLOPs per multiply-accumulate (causal attention: half), recomputation left "
        "out, at the dense peak of their dtypes, over the step's time. Other sources count otherwise."
    )
    if any(one.line.host.issue_ns for one in found):
        yield (
            f"The host issues an op in {format_seconds(ISSUE_NS / 1e9)} (NeuSight's tables: six GPUs, PyTorch); a "
            "device that is faster waits for it, idle. --launch graph: captured launches, as a step of JAX always has."
        )
    if any(one.nodes.size > 1 for one in found):
        yield (
            "Each device takes the whole step on data of its own, and gradients are all-reduced in buckets of "
            f"{format_bytes(BUCKET_BYTES)}. Not modelled: computation that slows down beside communication, "
            "stragglers, input pipelines, sharded states, tensor and pipeline parallelism."
        )
        if not any(one.exchange.nbytes for one in found):
            yield "No gradients are exchanged: the step has none."
        if any(moves_data(op.name) for op in steps[0].graph):
            yield "The step was captured with collectives of its own: they are among all devices, and none is hidden."
