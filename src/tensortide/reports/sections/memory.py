"""Section ``memory``: the memory curve under both lifetimes, what is alive at its peak, an allocator replayed; section
``lives``: when each storage, or tensor, is live, and how often it lies idle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from tensortide.cost import PHASES
from tensortide.graph.module_paths import as_one, pattern
from tensortide.memory import EXACT, allocator, reserve
from tensortide.memory.lifetimes import lifetimes
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Section, Table
from tensortide.reports.names import role_series, source_place
from tensortide.reports.of_records import column, fact, table
from tensortide.reports.pictures import Curve, Mark, Stretch
from tensortide.reports.render.values import short
from tensortide.reports.sections import Step, modules, ops
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.whole_card import card_table
from tensortide.shown import Show
from tensortide.timelines import Resident, StorageTimeline
from tensortide.timelines.intervals import Life, Lives
from tensortide.timelines.resident import storage_homes, widest_tensors
from tensortide.units import format_bytes, format_percent

ORDER = 40


class PhasePeak(msgspec.Struct, frozen=True):
    """Most bytes resident during any op of a phase; ``share`` is that of the step's peak."""

    phase: Annotated[str, Show("Phase")]
    peak_bytes: Annotated[int, Show("Peak")]
    share: Annotated[float | None, Show("of the step's peak")]
    last_use_peak_bytes: int


class AtPeak(msgspec.Struct, frozen=True):
    """Tensors of one role, or of one kind, that are resident at the peak; ``share`` is that of its bytes."""

    role: Annotated[str, Show("Role", "role")]
    count: Annotated[int, Show("tensors", zero="-")]
    size_bytes: Annotated[int, Show("Bytes")]
    share: Annotated[float, Show("share", bar=1)]
    name: Annotated[str, Show("Tensor", "name", fold=True)] = ""
    tensor: Annotated[str, Show("Type and shape", "code", fold=True)] = ""
    module: Annotated[str, Show("Module", "path", fold=True)] = ""
    source: Annotated[str, Show("Source", at_width=96, dim=True)] = ""

    @property
    def several(self) -> Annotated[str, Show()]:
        """Number of the tensors, where they are several."""
        return f"x{self.count}" if self.count > 1 else ""


def of_step(step: Step) -> Section:
    """Make the section of a report, in which the facts stand with the totals."""
    data = (msgspec.structs.replace(one, data=True) for one in facts_of(step))
    return _section(step, [Facts(rows=tuple(data))])


def document(step: Step, *, allocator: str = EXACT.name) -> Document:
    """Show the memory of ``step`` alone, over time and by module."""
    by_module = modules.by_memory(step)
    return step.document(section(step, allocator=allocator), *([by_module] if by_module else []))


def section(step: Step, *, allocator: str = EXACT.name) -> Section:
    """Make the section alone: with facts, peaks by phase, what was assumed, and the step replayed on ``allocator``."""
    blocks: list[AnyBlock] = [Facts(rows=tuple(facts_of(step))), table(PhasePeak, phase_peaks(step), key="phases")]
    blocks += [_replayed(step, allocator)] if allocator != EXACT.name else []
    return _section(step, [*blocks, *brief(step.graph)])


def _section(step: Step, head: Sequence[AnyBlock]) -> Section:
    blocks = [*head, _curve(step, step.eager, "Eager"), _curve(step, step.last_use, "Last use")]
    if len(step.graph):
        alive = step.eager.alive()
        at = step.graph[step.eager.peak_op]
        remark = f"op {at.index}, {short(at.name)} in {at.module}"
        blocks += [_storages(step), roles(step.eager, alive, remark), tensors(step.eager, alive, step.top, only="text")]
    blocks += card_table(step.whole_card)
    about = "bytes while each op runs, released as in eager mode"
    return Section("memory", "Memory over the step", about, tuple(blocks))


def facts_of(step: Step) -> Iterator[Fact]:
    """State the peak, the peak with last-use release, and the bytes resident throughout; for a GPU also what PyTorch's
    counters would show, and what comes on top."""
    eager, op = step.eager, step.eager.peak_op
    lower = eager.peak_bytes - step.last_use.peak_bytes
    less = f" ({format_percent(lower, eager.peak_bytes)} less)" if lower else ""
    later = f"every tensor released right after its last use{less}"
    yield fact(eager, "peak_bytes", f"at op {op}, {step.phases[op]}" if op >= 0 else "")
    yield fact(eager, "peak_op")
    if eager.device.startswith("cuda"):
        counted = "torch.cuda.max_memory_allocated: blocks of 512 bytes"
        _, _, settings = allocator(step.graph.meta.allocator).title.partition(", ")
        taken = f"torch.cuda.max_memory_reserved, of the pool alone{f', with {settings}' * bool(settings)}"
        yield fact(step.pool, "peak_allocated as steady_allocated_bytes", counted)
        yield fact(step.pool, "peak_reserved as steady_reserved_bytes", taken)
    yield fact(step.last_use, "peak_bytes as last_use_peak_bytes", later, label="with last-use release", level=1)
    yield fact(eager, "persistent_bytes", "resident throughout")
    yield fact(eager, "footprint_bytes", "their sum, whether or not resident together")


def phase_peaks(step: Step) -> list[PhasePeak]:
    """The peak of each phase that occurs, as the framework releases memory and with last-use release."""
    rows = []
    for phase in (one for one in PHASES if one in step.phases):
        own = np.array(step.phases) == phase
        peak, shortest = (int(line.resident[own].max()) for line in (step.eager, step.last_use))
        rows.append(PhasePeak(phase, peak, ops.ratio(peak, step.eager.peak_bytes), shortest))
    return rows


def _replayed(step: Step, name: str) -> Facts:
    """The peaks of an allocator, and the counters that they predict. An op is the first with the peak (None: none)."""
    seen, row = reserve(step.graph, name), allocator(name)
    rows = [Fact("allocator", "", name, data=True)]
    for kind, counter in zip(("allocated", "reserved"), row.counters, strict=True):
        op = int(getattr(seen, kind).argmax()) if len(step.graph) else None
        remark = "" if op is None else f"at op {op}" + f", predicts {counter}" * bool(counter)
        rows.append(fact(seen, f"peak_{kind} as peak_{kind}_bytes", remark, level=0))
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
        death="death_op" if eager else "last_use_death_op",
        variant=variant,
        only="" if eager else "page",
    )


def _storages(step: Step) -> Table:
    """List the storages on the device: alive during the ops ``birth <= op < death`` (-1: from before the step)."""
    graph, homes, tensors = step.graph, storage_homes(step.graph), widest_tensors(step.graph)
    rows = sorted(step.eager.storages(), key=lambda row: -row[1])
    indexes, sizes, births, deaths = zip(*rows, strict=True) if rows else ((),) * 4
    records, last_use = [graph.storages[i] for i in indexes], lifetimes(graph, "last_use").deaths.tolist()
    born = [None if record.birth is None else graph.ops[record.birth] for record in records]
    columns = (
        Column("role", "Role", "role", tuple(record.role.value for record in records), pick=True),
        Column("name", "Tensor", "path", tuple(record.name for record in records)),
        Column("size_bytes", "Bytes", "bytes", sizes, sum=True),
        Column("tensor", "Type and shape", "code", tuple(tensors.get(i, "") for i in indexes), dim=True),
        Column("made_by", "Made by", "name", tuple(graph.calls[op.call].op if op else "" for op in born)),
        Column("module", "Module", "path", tuple(graph.module_path(homes[i]) for i in indexes)),
        Column("birth_op", "From op", "op", births),
        Column("death_op", "Until op", "op", deaths),
        Column("last_use_death_op", "", "op", tuple(last_use[i] for i in indexes), data=True),
        Column("source", "Source", "text", tuple(source_place(graph, op.source) if op else "" for op in born)),
        Column("storage", "", "count", indexes, data=True),
    )
    return Table(key="storages", columns=columns, only="page")


def roles(line: StorageTimeline, alive: Sequence[Resident], remark: str) -> Table:
    """Show the roles resident at the peak of ``line``, the largest first."""
    counts = Counter(storage.role.value for storage in alive)
    sums = [(str(role), int(series[line.peak_op])) for role, series in line.by_role.items()]
    rows = [AtPeak(role, counts[role], nbytes, nbytes / line.peak_bytes) for role, nbytes in sums if nbytes]
    rows.sort(key=lambda row: -row.size_bytes)
    names = ("role", "count", "size_bytes", "share")
    return table(AtPeak, rows, *names, key="roles", title="Resident at the peak", remark=remark)


def tensors(line: StorageTimeline, alive: Sequence[Resident], top: int, *, only: Literal["", "text"] = "") -> Table:
    """Group what is resident at the peak by role, shape and origin, in modules that differ only by number."""
    graph = line.recorded
    homes, shapes = storage_homes(graph), widest_tensors(graph)
    groups: defaultdict[tuple[str, str, str, str, int], list[Resident]] = defaultdict(list)
    for one in alive:
        module = pattern(graph.module_path(homes[one.storage]))
        source = -1 if one.op is None else graph.ops[one.op].source
        shape, name = shapes.get(one.storage, ""), pattern(one.name) or one.op_name
        groups[one.role.value, shape, name, module, source].append(one)
    rows = []
    for (role, shape, _, _, source), some in groups.items():
        module = as_one([graph.module_path(homes[one.storage]) for one in some])
        name = (as_one([one.name for one in some]) or some[0].op_name).removeprefix(f"{module}.")
        nbytes, place = sum(one.nbytes for one in some), source_place(graph, source)
        share = ops.ratio(nbytes, line.peak_bytes) or 0.0
        rows.append(AtPeak(role, len(some), nbytes, share, name, shape, module, place))
    rows.sort(key=lambda row: -row.size_bytes)
    left, data = rows[top:], [column(AtPeak, rows, name, data=True) for name in ("role", "count")]
    more, size = sum(row.count for row in left), format_bytes(sum(row.size_bytes for row in left))
    rest = f"and {more} more tensors, {size} together"
    names = ("size_bytes", "several", "name", "tensor", "module", "source")
    return table(AtPeak, rows, *names, *data, key="tensors", top=top, rest=rest, only=only)


def of_lives(lives: Lives) -> Document:
    """Show every life, the largest first."""
    rows = sorted(lives, key=lambda life: -life.nbytes)
    storage, idle = column(Life, rows, "index", label="Storage"), column(Life, rows, "interval_count", label="idle")
    names = ("nbytes as size_bytes", "first_op", "last_op", "persistent", "use_count")
    every = Section("lives", "Lifetimes", blocks=(table(Life, rows, storage, *names, idle, key="lives", top=15),))
    count = sum(life.interval_count for life in rows)
    return every.document(f"{len(rows):,} lives", f"{count:,} idle intervals, in which no op touches a storage")
