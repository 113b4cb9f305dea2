"""Section ``memory``: the memory curve under both lifetimes, what is alive at its peak, an allocator replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from tensortide.cost import PHASES
from tensortide.memory import EXACT, allocator, reserve
from tensortide.memory.lifetimes import lifetimes
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Section, Table
from tensortide.reports.names import pattern, role_series, shared, source_place, widest_tensors
from tensortide.reports.pictures import Curve, Mark, Stretch
from tensortide.reports.sections import Step, modules, ops
from tensortide.reports.sections.assumed import brief
from tensortide.timelines import Resident, StorageTimeline
from tensortide.timelines.resident import storage_homes
from tensortide.units import format_bytes, format_percent

__all__ = ["ORDER", "document", "facts", "of_step", "phase_peaks", "section"]

ORDER = 40


def of_step(step: Step) -> Section:
    """Make the section of a report, in which the facts stand with the totals."""
    return _section(step, [Facts(rows=tuple(facts(step, data=True)))])


def document(step: Step, *, allocator: str = EXACT.name) -> Document:
    """Show the memory of ``step`` alone, over time and by module."""
    by_module = modules.by_memory(step)
    return step.document(section(step, allocator=allocator), *([by_module] if by_module else []))


def section(step: Step, *, allocator: str = EXACT.name) -> Section:
    """Make the section alone: with facts, peaks by phase, what was assumed, and the step replayed on ``allocator``."""
    blocks: list[AnyBlock] = [Facts(rows=tuple(facts(step))), _phases(step)]
    blocks += [_replayed(step, allocator)] if allocator != EXACT.name else []
    blocks += brief(step.graph)
    return _section(step, blocks)


def _section(step: Step, head: Sequence[AnyBlock]) -> Section:
    blocks = [*head, _curve(step, step.eager, "Eager"), _curve(step, step.last_use, "Last use")]
    if len(step.graph):
        alive = step.eager.alive()
        blocks += [_storages(step), _roles(step, alive), _tensors(step, alive)]
    about = "bytes while each op runs, released as in eager mode"
    return Section("memory", "Memory over the step", about, tuple(blocks))


def facts(step: Step, *, data: bool = False) -> Iterator[Fact]:
    """State the peak, the peak with last-use release, and the bytes resident throughout."""
    eager, short, op = step.eager, step.last_use.peak_bytes, step.eager.peak_op
    where = f"at op {op}, {step.phases[op]}" if op >= 0 else ""
    lower, later = eager.peak_bytes - short, "with every tensor released right after its last use"
    less = f" ({format_percent(lower, eager.peak_bytes)} less)" if lower else ""
    yield Fact("peak", "Peak memory", eager.peak_bytes, "bytes", where, data=data)
    yield Fact("peak_op", "", op, "op", data=True)
    if eager.device.startswith("cuda"):
        yield from _pool(step, data)
    yield Fact("last_use_peak", "at last use", short, "bytes", later + less, level=1, data=data)
    yield Fact("persistent", "persistent", eager.persistent_bytes, "bytes", "resident throughout", 1, data=data)
    whole = "their sum, whether or not resident together"
    yield Fact("footprint", "all storages", eager.footprint_bytes, "bytes", whole, 1, data=data)


def _pool(step: Step, data: bool) -> Iterator[Fact]:
    """State what PyTorch's counters for the GPU would show, and what comes on top."""
    pool = step.pool
    counted = "torch.cuda.max_memory_allocated: blocks of 512 bytes"
    yield Fact("steady_allocated", "allocated", pool.peak_allocated, "bytes", counted, 1, data=data)
    remark = "torch.cuda.max_memory_reserved; the CUDA context, 0.3 to 0.5 GiB, comes on top"
    yield Fact("steady_reserved", "reserved", pool.peak_reserved, "bytes", remark, 1, data=data)


def phase_peaks(line: StorageTimeline, phases: Sequence[str]) -> dict[str, int]:
    """Most bytes resident during any op of each phase that occurs."""
    at = np.array(phases)
    return {phase: int(line.resident[at == phase].max()) for phase in PHASES if phase in phases}


def _phases(step: Step) -> Table:
    peaks, short = (phase_peaks(line, step.phases) for line in (step.eager, step.last_use))
    most = step.eager.peak_bytes
    columns = (
        Column("phase", "Phase", "text", tuple(peaks)),
        Column("peak", "Peak", "bytes", tuple(peaks.values())),
        Column("share", "of the step's", "share", tuple(n / most if most else None for n in peaks.values())),
        Column("last_use_peak", "", "bytes", tuple(short.values()), data=True),
    )
    return Table(key="phases", columns=columns)


def _replayed(step: Step, name: str) -> Facts:
    """The peaks of an allocator, and the counters that they predict. An op is the first with the peak (None: none)."""
    seen, row = reserve(step.graph, name), allocator(name)
    rows = [Fact("allocator", "", name, data=True)]
    kinds = (("allocated", seen.allocated, seen.peak_allocated), ("reserved", seen.reserved, seen.peak_reserved))
    for (kind, series, peak), counter in zip(kinds, row.counters, strict=True):
        op = int(series.argmax()) if len(step.graph) else None
        remark = "" if op is None else f"at op {op}" + f", predicts {counter}" * bool(counter)
        rows.append(Fact(f"peak_{kind}", kind, peak, "bytes", remark))
        rows.append(Fact(f"peak_{kind}_op", "", op, "op", data=True))
    return Facts(key="allocator", title=row.title, remark=row.caveat, rows=tuple(rows))


def _curve(step: Step, line: StorageTimeline, variant: str) -> Curve:
    """Bytes of each role during each op; the second lifetimes are a variant for the page."""
    (at, unit), eager = ops.edges(step), line is step.eager
    peak, op = format_bytes(line.peak_bytes), line.peak_op
    return Curve(
        key="resident" if eager else "last_use",
        x=at,
        x_unit=unit,
        stack=role_series(line.by_role),
        marks=(Mark(op, f"peak {peak} at op {op}, {step.phases[op]}"),) if op >= 0 else (),
        bands=tuple(Stretch(*run) for run in ops.stretches([(phase,) for phase in step.phases])),
        table="ops",
        alive="storages" if len(step.graph) else "",
        death="death" if eager else "last_use_death",
        variant=variant,
        only="" if eager else "page",
    )


def _storages(step: Step) -> Table:
    """List the storages on the device: alive during the ops ``birth <= op < death`` (-1: from before the step)."""
    graph, homes, tensors = step.graph, storage_homes(step.graph), widest_tensors(step.graph)
    short = lifetimes(graph, "last_use").deaths.tolist()
    rows = sorted(step.eager.storages(), key=lambda row: -row[1])
    makers = [graph.storages[i].birth for i, _, _, _ in rows]
    born = [None if op is None else graph.ops[op] for op in makers]
    columns = (
        Column("role", "Role", "role", tuple(graph.storages[i].role.value for i, _, _, _ in rows), pick=True),
        Column("name", "Tensor", "path", tuple(graph.storages[i].name for i, _, _, _ in rows)),
        Column("size", "Bytes", "bytes", tuple(nbytes for _, nbytes, _, _ in rows), sum=True),
        Column("tensor", "Type and shape", "code", tuple(tensors.get(i, "") for i, _, _, _ in rows), dim=True),
        Column("made_by", "Made by", "name", tuple(graph.calls[op.call].op if op else "" for op in born)),
        Column("module", "Module", "path", tuple(graph.module_path(homes[i]) for i, _, _, _ in rows)),
        Column("birth", "From op", "op", tuple(birth for _, _, birth, _ in rows)),
        Column("death", "Until op", "op", tuple(death for _, _, _, death in rows)),
        Column("last_use_death", "", "op", tuple(short[i] for i, _, _, _ in rows), data=True),
        Column("source", "Source", "text", tuple(source_place(graph, op.source) if op else "" for op in born)),
        Column("storage", "", "count", tuple(i for i, _, _, _ in rows), data=True),
    )
    return Table(key="storages", columns=columns, only="page")


def _roles(step: Step, alive: Sequence[Resident]) -> Table:
    """Show the roles resident at the peak, the largest first."""
    op, peak = step.eager.peak_op, step.eager.peak_bytes
    counts = Counter(storage.role.value for storage in alive)
    sums = {str(role): int(series[op]) for role, series in step.eager.by_role.items()}
    rows = sorted(((role, nbytes) for role, nbytes in sums.items() if nbytes), key=lambda row: -row[1])
    name = step.graph[op].name.removeprefix("aten.").removesuffix(".default")
    return Table(
        key="roles",
        title="Resident at the peak",
        remark=f"op {op}, {name} in {step.graph[op].module}",
        columns=(
            Column("role", "Role", "role", tuple(role for role, _ in rows)),
            Column("count", "tensors", "count", tuple(counts[role] for role, _ in rows), zero="-"),
            Column("size", "Bytes", "bytes", tuple(nbytes for _, nbytes in rows)),
            Column("share", "share", "share", tuple(nbytes / peak for _, nbytes in rows), bar=1),
        ),
    )


def _tensors(step: Step, alive: Sequence[Resident]) -> Table:
    """Group what is resident at the peak by role, shape and origin, in modules that differ only by number."""
    graph, homes, tensors = step.graph, storage_homes(step.graph), widest_tensors(step.graph)
    groups: dict[tuple[str, str, str, str, int], list[Resident]] = {}
    for one in alive:
        module = graph.module_path(homes[one.storage])
        source = -1 if one.op is None else graph.ops[one.op].source
        key = (one.role.value, pattern(one.name) or one.op_name, tensors.get(one.storage, ""), pattern(module), source)
        groups.setdefault(key, []).append(one)
    rows = sorted(groups.items(), key=lambda item: -sum(one.nbytes for one in item[1]))
    modules = [shared([graph.module_path(homes[one.storage]) for one in some]) for _, some in rows]
    names = [shared([one.name for one in some]) or some[0].op_name for _, some in rows]
    sums = tuple(sum(one.nbytes for one in some) for _, some in rows)
    short = tuple(name.removeprefix(f"{module}.") for name, module in zip(names, modules, strict=True))
    counts = tuple(len(some) for _, some in rows)
    rest = f"and {sum(counts[step.top :])} more tensors, {format_bytes(sum(sums[step.top :]))} together"
    return Table(
        key="tensors",
        columns=(
            Column("size", "Bytes", "bytes", sums),
            Column("several", "", "text", tuple(f"x{n}" if n > 1 else "" for n in counts)),
            Column("name", "Tensor", "name", short, fold=True),
            Column("tensor", "Type and shape", "code", tuple(key[2] for key, _ in rows), fold=True),
            Column("module", "Module", "path", tuple(modules), fold=True),
            Column("source", "Source", "text", tuple(source_place(graph, key[4]) for key, _ in rows), 96, dim=True),
            Column("role", "", "role", tuple(key[0] for key, _ in rows), data=True),
            Column("count", "", "count", counts, data=True),
        ),
        top=step.top,
        rest=rest if len(rows) > step.top else "",
        only="text",
    )
