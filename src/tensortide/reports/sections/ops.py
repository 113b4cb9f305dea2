"""Section ``ops``: the most expensive ops in groups, and every op with its cost and the memory while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated, Literal

import msgspec

from tensortide.cost import Total
from tensortide.cost.totals import total_of
from tensortide.graph.model import Source
from tensortide.graph.module_paths import as_one, pattern
from tensortide.reports.blocks import Column, Section, Table
from tensortide.reports.names import signatures, source_place
from tensortide.reports.of_records import column, columns, table
from tensortide.reports.pictures import SpanLane, Spans
from tensortide.reports.sections import Step
from tensortide.shown import Show

ORDER = 30


class OpKind(msgspec.Struct, frozen=True):
    """Ops of one name in one phase, in modules that differ only by number; ``share`` is that of the step's FLOPs."""

    name: Annotated[str, Show("Op", "name", fold=True)]
    runs: Annotated[int, Show("Runs")]
    total: Total
    share: Annotated[float | None, Show("share")]
    phase: Annotated[str, Show("Phase", dim=True)]
    module: Annotated[str, Show("Module", "path", fold=True)]
    shapes: Annotated[str, Show("Inputs → outputs", "code", at_width=10_000, dim=True)]  # on the page alone
    source: Annotated[str, Show("Source", at_width=132, fold=True, dim=True)]
    first_op: int


def of_step(step: Step) -> Section:
    """Make the section."""
    about = "by FLOPs; modules that differ by number together"
    return Section("ops", "Most expensive ops", about, (_groups(step), _ops(step)))


def alike(step: Step) -> Iterator[tuple[str, str, str, list[int]]]:
    """Group the ops that totals count by name, phase and module; of modules that differ only by number together, as in
    ``transformer.h.*.mlp.c_fc``."""
    graph, groups = step.graph, dict[tuple[str, str, str], list[int]]()
    paths = [graph.module_path(index) for index in range(-1, len(graph.modules))]
    patterns = [pattern(path) for path in paths]
    for i in step.counted.running:
        op = graph.ops[i]
        groups.setdefault((graph.calls[op.call].op, step.phases[i], patterns[op.module + 1]), []).append(i)
    for (name, phase, _), some in groups.items():
        yield name, phase, as_one([paths[module + 1] for module in {graph.ops[i].module for i in some}]), some


def _groups(step: Step) -> Table:
    """Show groups of ops alike, the most expensive first."""
    graph, count, texts = step.graph, step.counted, signatures(step.graph)
    rows = []
    for name, phase, module, some in alike(step):
        total = total_of((count.costs[i], graph.trips(i)) for i in some)
        if total.flops or total.accessed_bytes:
            first, more = graph.ops[some[0]], len({texts[i] for i in some}) - 1
            shapes = texts[some[0]] + (f"  and {more} more" if more else "")
            share, source = ratio(total.flops, count.total.flops) or 0.0, source_place(graph, first.source)
            rows.append(OpKind(name, len(some), total, share, phase, module, shapes, source, some[0]))
    rows.sort(key=lambda row: (-row.total.flops, -row.total.accessed_bytes))
    accessed = column(OpKind, rows, "total.accessed_bytes", at_width=118)
    intensity = column(OpKind, rows, "total.intensity_flops_per_byte", at_width=96)
    names = ("name", "runs", "total.flops", "share", "total.macs", accessed, intensity)
    rest = f"and {len(rows) - step.top:,} more kinds of op"
    options = {"top": step.top, "rest": rest, "leads_to": "ops"}
    return table(OpKind, rows, *names, "phase", "module", "shapes", "source", "first_op", key="groups", **options)


def ratio(part: float, whole: float) -> float | None:
    """Divide, where there is something to divide by."""
    return part / whole if whole else None


def _ops(step: Step) -> Table:
    """List every op. A cost that is unknown is None; an op that is not ``taken`` is in no total."""
    graph, count = step.graph, step.counted
    costs, taken = [item.cost for item in count.costs], frozenset(count.running)
    made = (
        Column("op", "#", "op", tuple(range(len(graph)))),
        Column("name", "Op", "name", tuple(graph.calls[op.call].op for op in graph.ops)),
        Column("module", "Module", "path", tuple(graph.module_path(op.module) for op in graph.ops)),
        Column("phase", "Phase", "text", step.phases, dim=True, pick=True),
        Column("shapes", "Inputs → outputs", "code", signatures(graph), dim=True),
        Column("flops", "FLOPs", "flops", tuple(None if c is None else c.flops for c in costs), sum=True),
        Column("macs", "", "macs", tuple(None if c is None else c.macs for c in costs), data=True),
        Column("accessed_bytes", "Bytes", "bytes", tuple(None if c is None else c.bytes for c in costs), sum=True),
        Column("workspace_bytes", "", "bytes", tuple(step.eager.workspace.tolist()), data=True),
        Column("resident_bytes", "Memory", "bytes", tuple(step.eager.resident.tolist())),
        *([Column("time_ns", "Time", "ns", tuple(step.durations.ns), sum=True)] if step.durations else []),
        Column("source", "Source", "text", tuple(source_place(graph, op.source) for op in graph.ops), dim=True),
        Column("cost", "", "text", tuple(item.how for item in count.costs), data=True),
        Column("taken", "", "flag", tuple(i in taken for i in range(len(graph))), data=True),
        *columns(Source, [graph.sources[op.source] if op.source >= 0 else None for op in graph.ops]),
    )
    return Table(key="ops", title="All ops", columns=made, only="page")


# -- the step as lanes ------------------------------------------------------------------------------


def edges(step: Step) -> tuple[tuple[int, ...], Literal["ns", "op"]]:
    """Start of each op and end of the last: in ns where durations are known, else numbers of ops."""
    if step.durations is None or not any(step.durations.ns):
        return tuple(range(len(step.graph) + 1)), "op"
    return (0, *accumulate(step.durations.ns)), "ns"


def schedule(step: Step) -> Section:
    """Make a section with phases, modules and ops as lanes, for traces."""
    (at, unit), graph = edges(step), step.graph
    names = tuple(graph.calls[op.call].op for op in graph.ops)
    lanes = (
        _lane("phases", [(phase,) for phase in step.phases], at),
        _lane("modules", [_stack(graph.module_path(op.module)) for op in graph.ops], at),
        SpanLane("ops", at[:-1], at[1:], names, step.phases, rows=tuple(range(len(graph)))),
    )
    return Section("schedule", "Step", blocks=(Spans(key="step", x_unit=unit, lanes=lanes, table="ops", top=0),))


def _lane(label: str, stacks: Sequence[tuple[str, ...]], at: Sequence[int]) -> SpanLane:
    found = sorted(stretches(stacks), key=lambda run: (run[1], -run[2]))
    names = tuple(name for name, _, _ in found)
    return SpanLane(label, tuple(at[a] for _, a, _ in found), tuple(at[b] for _, _, b in found), names)


def _stack(path: str) -> tuple[str, ...]:
    """Enclosing modules of an op, the outermost first, each by its whole path."""
    parts = [path] if path.startswith("(") else path.split(".")
    return tuple(accumulate(parts, "{}.{}".format))


def stretches(stacks: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, int, int]]:
    """Find the stretches of consecutive entries that share a name at the same level, below the same names."""
    open_: list[tuple[str, int]] = []
    for i, stack in enumerate([*stacks, ()]):
        common = 0
        while common < min(len(open_), len(stack)) and open_[common][0] == stack[common]:
            common += 1
        while len(open_) > common:
            name, start = open_.pop()
            yield name, start, i
        open_.extend((name, i) for name in stack[common:])
