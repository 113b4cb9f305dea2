"""Section ``ops``: the most expensive ops in groups, and every op with its cost and the memory while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from tensortide.reports.blocks import Column, Lane, Section, Spans, Table
from tensortide.reports.names import pattern, shared, signatures, source_place
from tensortide.reports.sections import Step

__all__ = ["ORDER", "edges", "of_step", "schedule", "stretches"]

ORDER = 30

FULL = 10_000
"""No terminal is so wide: a column for the page."""


def of_step(step: Step) -> Section:
    """Make the section."""
    about = "by FLOPs; modules that differ by number together"
    return Section("ops", "Most expensive ops", about, (_groups(step), _ops(step)))


class _Group(NamedTuple):
    """Ops of one name and phase in modules that differ only by number: ``transformer.h.*.mlp.c_fc``."""

    op: str
    phase: str
    modules: str
    shapes: str
    source: str
    runs: int
    flops: int
    macs: int
    accessed: int
    first: int


def _groups(step: Step) -> Table:
    rows = sorted((group for group in _grouped(step) if group.accessed or group.flops), key=_expensive)
    whole = step.counted.total.flops
    columns = (
        Column("op", "Op", "name", tuple(row.op for row in rows), fold=True),
        Column("runs", "Runs", "count", tuple(row.runs for row in rows)),
        Column("flops", "FLOPs", "flops", tuple(row.flops for row in rows)),
        Column("share", "share", "share", tuple(row.flops / whole if whole else 0.0 for row in rows)),
        Column("macs", "", "macs", tuple(row.macs for row in rows), data=True),
        Column("accessed", "Bytes", "bytes", tuple(row.accessed for row in rows), at_width=118),
        Column("intensity", "FLOP/B", "flops_per_byte", tuple(map(_intensity, rows)), at_width=96),
        Column("phase", "Phase", "text", tuple(row.phase for row in rows), dim=True),
        Column("module", "Module", "path", tuple(row.modules for row in rows), fold=True),
        Column("shapes", "Inputs → outputs", "code", tuple(row.shapes for row in rows), at_width=FULL, dim=True),
        Column("source", "Source", "text", tuple(row.source for row in rows), at_width=132, fold=True, dim=True),
        Column("first_op", "", "op", tuple(row.first for row in rows), data=True),
    )
    rest = f"and {len(rows) - step.top:,} more kinds of op" if len(rows) > step.top else ""
    return Table(key="groups", columns=columns, top=step.top, rest=rest)


def _expensive(group: _Group) -> tuple[int, int]:
    return -group.flops, -group.accessed


def _intensity(group: _Group) -> float | None:
    return group.flops / group.accessed if group.accessed else None


def _grouped(step: Step) -> Iterator[_Group]:
    """Group the ops that totals count."""
    graph, costs, texts = step.graph, step.counted.costs, signatures(step.graph)
    paths = [graph.module_path(index) for index in range(-1, len(graph.modules))]
    patterns = [pattern(path) for path in paths]
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i in step.counted.running:
        op = graph.ops[i]
        groups.setdefault((graph.calls[op.call].op, step.phases[i], patterns[op.module + 1]), []).append(i)
    for (name, phase, _), members in groups.items():
        known = [cost for i in members if (cost := costs[i].cost) is not None]
        shapes = {texts[i] for i in members}
        more = f"  and {len(shapes) - 1} more" if len(shapes) > 1 else ""
        yield _Group(
            op=name,
            phase=phase,
            modules=shared([paths[module + 1] for module in {graph.ops[i].module for i in members}]),
            shapes=texts[members[0]] + more,
            source=source_place(graph, graph.ops[members[0]].source),
            runs=len(members),
            flops=sum(cost.flops for cost in known),
            macs=sum(cost.macs for cost in known),
            accessed=sum(cost.bytes for cost in known),
            first=members[0],
        )


def _ops(step: Step) -> Table:
    """List every op. A cost that is unknown is None; an op that is not ``taken`` is in no total."""
    graph, count = step.graph, step.counted
    costs, taken = [item.cost for item in count.costs], frozenset(count.running)
    sources = [graph.sources[op.source] if op.source >= 0 else None for op in graph.ops]
    columns = (
        Column("op", "#", "op", tuple(range(len(graph)))),
        Column("name", "Op", "name", tuple(graph.calls[op.call].op for op in graph.ops)),
        Column("module", "Module", "path", tuple(graph.module_path(op.module) for op in graph.ops)),
        Column("phase", "Phase", "text", step.phases, dim=True),
        Column("shapes", "Inputs → outputs", "code", signatures(graph), dim=True),
        Column("flops", "FLOPs", "flops", tuple(None if c is None else c.flops for c in costs), sum=True),
        Column("macs", "", "macs", tuple(None if c is None else c.macs for c in costs), data=True),
        Column("accessed", "Bytes", "bytes", tuple(None if c is None else c.bytes for c in costs), sum=True),
        Column("workspace", "", "bytes", tuple(step.eager.workspace.tolist()), data=True),
        Column("resident", "Memory", "bytes", tuple(step.eager.resident.tolist())),
        *_times(step),
        Column("source", "Source", "text", tuple(source_place(graph, op.source) for op in graph.ops), dim=True),
        Column("cost", "", "text", tuple(item.how for item in count.costs), data=True),
        Column("taken", "", "flag", tuple(i in taken for i in range(len(graph))), data=True),
        Column("file", "", "text", tuple(source.file if source else "" for source in sources), data=True),
        Column("line", "", "number", tuple(source.line if source else None for source in sources), data=True),
        Column("function", "", "text", tuple(source.function if source else "" for source in sources), data=True),
        Column("code", "", "code", tuple(source.code if source else "" for source in sources), data=True),
    )
    return Table(key="ops", title="All ops", columns=columns, only="page")


def _times(step: Step) -> Iterator[Column]:
    if step.durations is not None:
        yield Column("time", "Time", "ns", tuple(step.durations.ns), sum=True)


# -- the step as lanes ------------------------------------------------------------------------------


def edges(step: Step) -> tuple[tuple[int, ...], Literal["ns", "op"]]:
    """Start of each op and end of the last: in ns where durations are known, else numbers of ops."""
    if step.durations is None or not any(step.durations.ns):
        return tuple(range(len(step.graph) + 1)), "op"
    return (0, *accumulate(step.durations.ns)), "ns"


def schedule(step: Step) -> Section:
    """Make a section with phases, modules and ops as lanes, for traces."""
    (at, unit), count = edges(step), len(step.graph)
    paths = [step.graph.module_path(op.module) for op in step.graph.ops]
    names = tuple(step.graph.calls[op.call].op for op in step.graph.ops)
    phases = _lane("phases", stretches([(phase,) for phase in step.phases]), at)
    modules = _lane("modules", stretches(list(map(_stack, paths))), at)
    ops = Lane("ops", at[:-1], at[1:], names, step.phases, rows=tuple(range(count)))
    lanes = (phases, modules, ops)
    return Section("schedule", "Step", blocks=(Spans(key="step", x_unit=unit, lanes=lanes, table="ops", top=0),))


def _lane(label: str, runs: Iterable[tuple[str, int, int]], at: Sequence[int]) -> Lane:
    found = sorted(runs, key=lambda run: (run[1], -run[2]))
    names = tuple(name for name, _, _ in found)
    return Lane(label, tuple(at[a] for _, a, _ in found), tuple(at[b] for _, _, b in found), names)


def _stack(path: str) -> tuple[str, ...]:
    """Enclosing modules of an op, the outermost first, each by its whole path."""
    if path.startswith("("):
        return (path,)
    parts = path.split(".")
    return tuple(".".join(parts[: i + 1]) for i in range(len(parts)))


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
