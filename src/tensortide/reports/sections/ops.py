"""Section ``ops``: the most expensive ops in groups, and every op with its cost and the memory while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

from tensortide.reports.blocks import Column, Section, Table
from tensortide.reports.names import pattern, shared, signatures, source_place
from tensortide.reports.pictures import Lane, Spans
from tensortide.reports.sections import Step

__all__ = ["ORDER", "edges", "of_step", "ratio", "schedule", "stretches"]

ORDER = 30

FULL = 10_000
"""No terminal is so wide: a column for the page."""


def of_step(step: Step) -> Section:
    """Make the section."""
    about = "by FLOPs; modules that differ by number together"
    return Section("ops", "Most expensive ops", about, (_groups(step), _ops(step)))


def _groups(step: Step) -> Table:
    """Group the ops that totals count by name, phase and module; of modules that differ only by number together, as in
    ``transformer.h.*.mlp.c_fc``. The most expensive group is first."""
    graph, costs, texts, whole = step.graph, step.counted.costs, signatures(step.graph), step.counted.total.flops
    paths = [graph.module_path(index) for index in range(-1, len(graph.modules))]
    patterns = [pattern(path) for path in paths]
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i in step.counted.running:
        op = graph.ops[i]
        groups.setdefault((graph.calls[op.call].op, step.phases[i], patterns[op.module + 1]), []).append(i)
    rows = []
    for (name, phase, _), members in groups.items():
        known = [cost for i in members if (cost := costs[i].cost) is not None]
        sums = [sum(values) for values in zip(*((c.flops, c.bytes, c.macs) for c in known), strict=True)] or [0, 0, 0]
        if any(sums[:2]):
            more = len({texts[i] for i in members}) - 1
            shapes = texts[members[0]] + (f"  and {more} more" if more else "")
            module = shared([paths[module + 1] for module in {graph.ops[i].module for i in members}])
            rows.append((*sums, name, phase, len(members), module, shapes, members[0]))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    flops, accessed, macs, ops, phases, runs, modules, signs, firsts = zip(*rows, strict=True) if rows else ((),) * 9
    sources = tuple(source_place(graph, graph.ops[i].source) for i in firsts)
    columns = (
        Column("op", "Op", "name", ops, fold=True),
        Column("runs", "Runs", "count", runs),
        Column("flops", "FLOPs", "flops", flops),
        Column("share", "share", "share", tuple(n / whole if whole else 0.0 for n in flops)),
        Column("macs", "", "macs", macs, data=True),
        Column("accessed", "Bytes", "bytes", accessed, at_width=118),
        Column("intensity", "FLOP/B", "flops_per_byte", tuple(map(ratio, flops, accessed)), at_width=96),
        Column("phase", "Phase", "text", phases, dim=True),
        Column("module", "Module", "path", modules, fold=True),
        Column("shapes", "Inputs → outputs", "code", signs, at_width=FULL, dim=True),
        Column("source", "Source", "text", sources, at_width=132, fold=True, dim=True),
        Column("first_op", "", "op", firsts, data=True),
    )
    rest = f"and {len(rows) - step.top:,} more kinds of op"
    return Table(key="groups", columns=columns, top=step.top, rest=rest, leads_to="ops")


def ratio(part: float, whole: float) -> float | None:
    """Divide, where there is something to divide by."""
    return part / whole if whole else None


def _ops(step: Step) -> Table:
    """List every op. A cost that is unknown is None; an op that is not ``taken`` is in no total."""
    graph, count = step.graph, step.counted
    costs, taken = [item.cost for item in count.costs], frozenset(count.running)
    sources = [graph.sources[op.source] if op.source >= 0 else None for op in graph.ops]
    columns = (
        Column("op", "#", "op", tuple(range(len(graph)))),
        Column("name", "Op", "name", tuple(graph.calls[op.call].op for op in graph.ops)),
        Column("module", "Module", "path", tuple(graph.module_path(op.module) for op in graph.ops)),
        Column("phase", "Phase", "text", step.phases, dim=True, pick=True),
        Column("shapes", "Inputs → outputs", "code", signatures(graph), dim=True),
        Column("flops", "FLOPs", "flops", tuple(None if c is None else c.flops for c in costs), sum=True),
        Column("macs", "", "macs", tuple(None if c is None else c.macs for c in costs), data=True),
        Column("accessed", "Bytes", "bytes", tuple(None if c is None else c.bytes for c in costs), sum=True),
        Column("workspace", "", "bytes", tuple(step.eager.workspace.tolist()), data=True),
        Column("resident", "Memory", "bytes", tuple(step.eager.resident.tolist())),
        *([Column("time", "Time", "ns", tuple(step.durations.ns), sum=True)] if step.durations else []),
        Column("source", "Source", "text", tuple(source_place(graph, op.source) for op in graph.ops), dim=True),
        Column("cost", "", "text", tuple(item.how for item in count.costs), data=True),
        Column("taken", "", "flag", tuple(i in taken for i in range(len(graph))), data=True),
        Column("file", "", "text", tuple(source.file if source else "" for source in sources), data=True),
        Column("line", "", "number", tuple(source.line if source else None for source in sources), data=True),
        Column("function", "", "text", tuple(source.function if source else "" for source in sources), data=True),
        Column("code", "", "code", tuple(source.code if source else "" for source in sources), data=True),
    )
    return Table(key="ops", title="All ops", columns=columns, only="page")


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
