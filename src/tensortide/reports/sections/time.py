"""Section ``time``: measured durations by phase, op and module, what they leave unexplained, and rates reached."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from tensortide.cost import Resolver
from tensortide.cost.coverage import shapes_of, shown
from tensortide.graph.model import Graph
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value
from tensortide.reports.names import pattern
from tensortide.reports.sections import Step, machines
from tensortide.reports.sections.assumed import brief
from tensortide.reports.sections.modules import OUTSIDE_PATH, ROOT_PATH
from tensortide.timelines.machines import MachineStep
from tensortide.timing import Durations, Measurement, Platform
from tensortide.timing.estimates import Bound, Estimate
from tensortide.timing.percentile import Spread, pooled_p90
from tensortide.timing.totals import by_bound, total, unpredicted_ns
from tensortide.units import format_percent, format_seconds

__all__ = ["ORDER", "document", "of_step", "section"]

ORDER = 60

WIDE = 98
"""From so many columns on operands and rates of single ops are shown."""
WITHIN = 0.05
"""Part of the step by which ops and overhead may miss it before that is remarked on."""
UNKNOWN = 20
"""Most kinds of op that are named as not measured."""

_HOW = {
    "step": "each op on the clock in the running step",
    "isolated": "each distinct op executed alone on random tensors",
    "trace": "with the times of a trace",
    "list": "from a list of times",
}
_CLOCK = {"wall": ", wall time", "thread": ", processor time of the thread", "kernel": ", kernel times"}


Kind: TypeAlias = tuple[str, str, str]
"""Name, shapes and phase of ops that are shown together."""


class _Timed(NamedTuple):
    """One op: its time per call, whether that was measured, and what it computes and accesses per call."""

    op: int
    calls: int
    ns: int
    min_ns: int
    p90_ns: int
    known: bool
    flops: int | None
    nbytes: int

    @property
    def total_ns(self) -> int:
        return self.ns * self.calls


class _Row(NamedTuple):
    """Ops that share a name; ``modules`` that differ only by number share a row."""

    name: str
    ops: Sequence[_Timed]
    shapes: str = ""
    phase: str = ""
    depth: int = 0
    modules: int = 1

    @property
    def total_ns(self) -> int:
        return sum(op.total_ns for op in self.ops)

    @property
    def measured(self) -> list[_Timed]:
        return [op for op in self.ops if op.known]


def document(
    graph: Graph,
    durations: Durations,
    *,
    target: str,
    predicted: Sequence[MachineStep] = (),
    resolver: Resolver | None = None,
    depth: int = 3,
    top: int = 15,
) -> Document:
    """Show ``durations`` of the ops of ``graph``. An op in a loop counts as often as it runs.

    The step ``predicted`` on machines stands before; where they are several, without the ops of the first alone.
    """
    found = durations.measurement
    how = found.how if found else ""
    lines = [f"{len(graph):,} ops, {_HOW.get(how, durations.source)}{_warm_up(found)}"]
    if found and found.machine:
        lines.append(_machine(found.machine))
    if how in ("trace", "list"):
        lines.append(durations.source)
    step = Step(graph, durations, resolver=resolver, top=top, depth=depth)
    if len(predicted) > 1:
        lines[0] = f"{_range(len(one.graph) for one in predicted)} ops, predicted for {len(predicted)} machines"
    alone = () if len(predicted) > 1 else (section(step, durations),)
    compared = (machines.section(step, predicted),) if predicted else ()
    return Document(title=target, subtitle=tuple(lines), sections=(*compared, *alone))


def _range(counts: Iterable[int]) -> str:
    """One number, or the least and the most."""
    ends = sorted(set(counts))
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def of_step(step: Step) -> Section | None:
    """Make the section where durations were measured."""
    durations = step.durations
    return section(step, durations) if durations is not None and durations.measurement is not None else None


def section(step: Step, durations: Durations) -> Section:
    """Make the section of ``durations``, which are those of the ops of ``step``."""
    graph, found, phases = step.graph, durations.measurement, step.phases
    ops = _timed(step, durations)
    blocks: list[AnyBlock] = [*_explained(durations, [op.calls for op in ops], sum(op.total_ns for op in ops))]
    blocks.append(_table("phases", "By phase", "Phase", ops, lambda i: (phases[i], "", ""), None, durations))
    blocks.append(
        _table("ops", "By op", "Op", ops, lambda i: (shown(graph[i].name), "", phases[i]), step.top, durations)
    )

    def of_shapes(i: int) -> Kind:
        return shown(graph[i].name), shapes_of(graph[i]), phases[i]

    blocks.append(_table("shapes", "By op and operands", "Op", ops, of_shapes, step.top, durations))
    blocks.append(_modules(graph, ops, step.depth, durations))
    blocks += machines.unknown([step])
    if found is not None:
        blocks += [*_unknown(graph, found), *(Note(text=text) for text in found.notes)]
    blocks += brief(graph)
    return Section("time", "Time by op", blocks=tuple(blocks))


def _timed(step: Step, durations: Durations) -> list[_Timed]:
    found, ns = durations.measurement, durations.ns
    mins = found.min_ns if found and found.min_ns else ns
    p90s = found.p90_ns if found and found.p90_ns else ns
    calls = (int(step.graph.trips(op)) for op in range(len(ns)))
    known = (not found or op not in found.stand_ins for op in range(len(ns)))
    flops = (None if one.cost is None else int(one.cost.flops) for one in step.counted.costs)
    accessed = (int(one.nbytes) for one in step.counted.costs)
    columns = (range(len(ns)), calls, ns, mins, p90s, known, flops, accessed)
    return [_Timed(*row) for row in zip(*columns, strict=True)]


# -- the whole step ---------------------------------------------------------------------------------


def _explained(durations: Durations, calls: Sequence[int], ops_ns: int) -> Iterator[AnyBlock]:
    """Show what the step is made of, and how far that explains it."""
    found = durations.measurement
    if found is None:
        source = Fact("source", "Source", durations.source, data=True)
        yield Facts(rows=(*_forecast(durations, calls, ops_ns), source))
        return
    explained = ops_ns + sum(found.overhead_ns.values())
    step, hooked = found.step, found.hooked
    whole = step.median_ns if step else explained
    noise = sum(found.min_ns) / sum(durations.ns) if any(durations.ns) and not found.stand_ins else None
    sign = "~" * bool(found.stand_ins)
    rows = [Fact("op_sum", "Op sum", ops_ns, "ns", format_percent(ops_ns, whole), before=sign)]
    if noise is not None:
        rows.append(Fact("shortest", "shortest times", noise, "share", "of that: how little they scatter", level=1))
    for phase, ns in found.overhead_ns.items():
        remark = f"{format_percent(ns, whole)}, the host's own work"
        rows.append(Fact(f"overhead_{phase}", f"Between ops, {phase}", ns, "ns", remark))
    if found.overhead_ns:
        rows.append(Fact("explained", "Together", explained, "ns", format_percent(explained, whole), before=sign))
    if step is not None:
        name = "Step in the trace" if found.how == "trace" else "Ordinary step"
        remark = f"{_time(step.min_ns)} to {_time(step.p90_ns)} in {step.n}"
        rows.append(Fact("step", name, step.median_ns, "ns", remark))
        rows += [Fact(f"step_{key}", "", getattr(step, f"{key}_ns"), "ns", data=True) for key in ("min", "p90")]
        rows.append(Fact("steps", "", step.n, "count", data=True))
    missed = explained / step.median_ns - 1 if step and step.median_ns > 0 and found.overhead_ns else None
    if missed is not None:
        rows.append(Fact("difference", "Difference", missed, "change"))
    if hooked is not None and found.hook_ns is not None:
        remark = f"{format_percent(found.hook_ns, whole)}, what timing the ops adds to a step"
        rows.append(Fact("hook", "Taken off: the hook", found.hook_ns, "ns", remark))
        rows.append(Fact("hooked_step", "", hooked.median_ns, "ns", data=True))
    yield Facts(rows=(*rows, *_conditions(durations, found)))
    if missed is not None and abs(missed) > WITHIN:
        yield Note(text=_unexplained(found), kind="warning")


BOUNDS: tuple[tuple[Bound, str], ...] = (
    ("compute", "arithmetic"),
    ("memory", "bytes"),
    ("launch", "launches"),
    ("host", "views"),
)


def _forecast(durations: Durations, calls: Sequence[int], ops_ns: int) -> Iterator[Fact]:
    """Show the time of predicted ops with its interval, what bounds them, and what the prediction rests on."""
    forecast = durations.forecast
    if forecast is None:
        yield Fact("op_sum", "Op sum", ops_ns, "ns", before="~" * bool(durations.unknown))
        return
    whole = total(durations, range(len(durations)), calls)
    bounds = by_bound(durations, range(len(durations)), calls)
    missing = unpredicted_ns(durations, range(len(durations)), calls)
    low, high = machines.ends_ns(whole, missing)
    yield Fact("op_sum", "Op sum", ops_ns, "ns", interval_text(whole, missing), before="~" * bool(whole.unknown))
    if whole.unknown:
        how = f"{whole.unknown:,} ops count with the time of their bytes, without an interval"
        yield Fact("unknown", "of unknown time", missing, "ns", how, level=1)
    yield Fact("low", "", low, "ns", data=True)
    yield Fact("high", "", high, "ns", data=True)
    for bound, name in BOUNDS:
        if ns := bounds.get(bound):
            share = format_percent(ns, ops_ns)
            yield Fact(f"bound_{bound}", f"bound by {name}", ns, "ns", share, level=1)
    for provenance, time in sorted(whole.by_provenance_ns.items()):
        yield Fact(f"provenance_{provenance.name.lower()}", "", round(time), "ns", data=True)


def interval_text(whole: Estimate, missing: int = 0) -> str:
    """Say in what interval a sum is, with ``missing`` nanoseconds of ops of unknown time, and what it rests on."""
    known = f"{machines.interval_text(whole, missing)} in 8 of 10 cases" if whole.time_ns else "no interval"
    return f"{known}; {whole.provenance}"


def _conditions(durations: Durations, found: Measurement) -> Iterator[Fact]:
    """Name the conditions of a measurement, as data."""
    machine = msgspec.to_builtins(found.machine) if found.machine else {}
    versions = {f"version_{name}": version for name, version in machine.pop("versions", {}).items()}
    values: dict[str, Value] = {"how": found.how, "clock": found.clock, "source": durations.source}
    values |= {"warm_up": found.warm_up, "steady": found.steady, **{f"machine_{k}": v for k, v in machine.items()}}
    for key, value in (values | versions).items():
        yield Fact(key, "", value, "flag" if isinstance(value, bool) else "text", data=True)


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


def _warm_up(found: Measurement | None) -> str:
    if found is None:
        return ""
    steady = "" if found.steady else ", not steady then"
    return _CLOCK.get(found.clock, "") + (f"; {found.warm_up} steps of warm-up{steady}" if found.warm_up else "")


def _machine(machine: Platform) -> str:
    parts = [machine.name + (f" ({machine.isa})" if machine.isa else "")]
    if machine.threads is not None:
        cores = f" on {machine.cores} core{'s' * (machine.cores != 1)}" if machine.cores else ""
        parts.append(f"{machine.threads} thread{'s' * (machine.threads != 1)}{cores}")
    if machine.load_before is not None and machine.load_after is not None:
        parts.append(f"load {machine.load_before:g} before, {machine.load_after:g} after")
    if machine.governor:
        parts.append(f"governor {machine.governor}")
    return ", ".join([*parts, *(f"{name} {version}" for name, version in machine.versions.items())])


def _unexplained(found: Measurement) -> str:
    text = "Ops and the work between them do not explain the step to 5 %: "
    machine = found.machine
    load = max(machine.load_before or 0, machine.load_after or 0) if machine else 0
    if found.clock == "wall" and machine and machine.cores and load > machine.cores:
        return text + "other processes take the cores. Measure again when it is quiet, or with --clock thread."
    return text + "times changed while they were taken. Take more steps (--steps)."


# -- tables -----------------------------------------------------------------------------------------


def _table(
    key: str,
    title: str,
    first: str,
    ops: Iterable[_Timed],
    kind: Callable[[int], Kind],
    top: int | None,
    durations: Durations,
) -> Table:
    """Group ``ops`` by their ``kind``, those that take most time first."""
    groups: dict[Kind, list[_Timed]] = {}
    for op in ops:
        groups.setdefault(kind(op.op), []).append(op)
    rows = [_Row(name, members, shapes, phase) for (name, shapes, phase), members in groups.items()]
    rows.sort(key=lambda row: -row.total_ns)
    names = Column(first.lower(), first, "name", tuple(row.name for row in rows), fold=True)
    columns = (names, *_columns(rows, durations, ops=first == "Op", shapes=key == "shapes"))
    rest = f"and {len(rows) - (top or 0):,} more kinds"
    return Table(key=key, title=title, columns=columns, top=top, rest=rest, at_width=WIDE if key == "shapes" else 0)


def _forecasts(rows: Sequence[_Row], durations: Durations) -> tuple[list[Estimate] | None, list[int]]:
    """The predicted times of rows with their intervals, None if they were not predicted; with them the times of ops
    that no interval is known of."""
    if durations.forecast is None:
        return None, [0] * len(rows)
    trips = {op.op: op.calls for row in rows for op in row.ops}
    ops = [[op.op for op in row.ops] for row in rows]
    return [total(durations, of, trips) for of in ops], [unpredicted_ns(durations, of, trips) for of in ops]


def _columns(rows: Sequence[_Row], durations: Durations, *, ops: bool, shapes: bool) -> Iterator[Column]:
    """Show times of one step (time, share) and of one call (the others), and rates.

    Of several ops, ``median`` is the median over them and ``p90`` that of all their calls; estimates are left out where
    any op was measured.
    """
    sums, missing = _forecasts(rows, durations)
    whole = sum(row.total_ns for row in rows if not row.depth)
    flops = [sum((op.flops or 0) * op.calls for op in row.ops) for row in rows]
    accessed = [sum(op.nbytes * op.calls for op in row.ops) for row in rows]
    stand_ins = tuple(len(row.ops) - len(row.measured) for row in rows)
    unpriced = tuple(sum(op.flops is None for op in row.ops) for row in rows)
    medians = tuple(round(statistics.median(op.ns for op in row.measured or row.ops)) for row in rows)
    mins = tuple(min((op.min_ns for op in row.measured), default=None) for row in rows)
    spreads = ([Spread(op.min_ns, op.ns, op.p90_ns, op.calls) for op in row.measured] for row in rows)
    p90s = tuple(pooled_p90(some) if some else None for some in spreads)
    unknown = [0] * len(rows) if sums is None else [one.unknown for one in sums]
    guessed = tuple("~" * bool(n or m) for n, m in zip(stand_ins, unknown, strict=True))
    signs = tuple("~" * bool(n and f) for n, f in zip(unpriced, flops, strict=True))
    wider = 130 if shapes else 0
    if shapes:
        yield Column("operands", "Operands", "code", tuple(row.shapes for row in rows), fold=True, dim=True)
    if ops:
        yield Column("phase", "Phase", "text", tuple(row.phase for row in rows), at_width=120 * shapes)
    yield Column("ops", "Ops", "count", tuple(len(row.ops) for row in rows), data=True)
    yield Column("calls", "Calls", "count", tuple(sum(op.calls for op in row.ops) for row in rows))
    yield Column("time", "Time", "ns", tuple(row.total_ns for row in rows), before=guessed)
    if sums is not None:
        pairs = list(zip(sums, missing, strict=True))
        ends = [machines.ends_ns(one, ns) for one, ns in pairs]
        text = tuple(machines.interval_text(one, ns) if one.time_ns else "" for one, ns in pairs)
        yield Column("interval", "8 of 10 cases", "text", text, at_width=120 if shapes else WIDE * ops, dim=True)
        yield Column("low", "", "ns", tuple(low for low, _ in ends), data=True)
        yield Column("high", "", "ns", tuple(high for _, high in ends), data=True)
        yield Column(
            "provenance", "rests on", "text", tuple(str(one.provenance) for one in sums), at_width=110 * shapes
        )
        yield Column("unknown", "Unknown times", "count", tuple(one.unknown for one in sums), data=True)
    yield Column("share", "share", "share", tuple(row.total_ns / whole if whole else 0.0 for row in rows))
    yield Column("median", "median", "ns", medians, data=not ops or sums is not None)
    yield Column("min", "min", "ns", mins, at_width=wider, data=not ops or sums is not None)
    yield Column("p90", "p90", "ns", p90s, at_width=wider, data=not ops or sums is not None)
    yield Column("flops", "FLOPs", "flops", tuple(flops), data=True)
    yield Column("accessed", "Accessed", "bytes", tuple(accessed), data=True)
    rates = WIDE * ops if sums is None else 125 if ops else 110
    yield Column("rate", "FLOP/s", "flops_per_s", _rates(flops, rows), at_width=rates, before=signs)
    yield Column("traffic", "B/s", "bytes_per_s", _rates(accessed, rows), at_width=110 if shapes else rates)
    yield Column("stand_ins", "Not measured", "count", stand_ins, data=True)
    yield Column("unpriced", "Unknown FLOPs", "count", unpriced, data=True)


def _rates(amounts: Sequence[int], rows: Sequence[_Row]) -> tuple[float | None, ...]:
    """Divide by time; a rate of nothing is not known, one in no time is 0."""
    pairs = zip(amounts, rows, strict=True)
    return tuple((n * 1e9 / row.total_ns if row.total_ns else 0.0) if n else None for n, row in pairs)


def _modules(graph: Graph, ops: Iterable[_Timed], depth: int, durations: Durations) -> Table:
    """Show the modules with everything inside each, also the root; numbered siblings are one row, and so is a module
    with the one that has all its ops (a list of blocks)."""
    inside: defaultdict[tuple[str, ...], list[_Timed]] = defaultdict(list)
    modules: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    rooted = any(not module.path for module in graph.modules)
    for op in ops:
        path = graph.module_path(graph.ops[op.op].module)
        above = (ROOT_PATH,) if rooted and path not in (ROOT_PATH, OUTSIDE_PATH) else ()
        name, real = (*above, *pattern(path).split(".")), (*above, *path.split("."))
        for level in range(1, len(name) + 1):
            inside[name[:level]].append(op)
            modules[name[:level]].add(real[:level])
    below: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for name in sorted(inside, key=lambda name: -sum(op.total_ns for op in inside[name])):
        below[name[:-1]].append(name)

    def rows_below(outer: tuple[str, ...], depth: int, prefix: str = "") -> Iterator[_Row]:
        for name in below[outer]:
            alone = name != (ROOT_PATH,) and len(below[name]) == 1 and len(inside[below[name][0]]) == len(inside[name])
            if not alone:
                yield _Row(prefix + name[-1], inside[name], depth=depth, modules=len(modules[name]))
            yield from rows_below(name, depth + (not alone), f"{prefix}{name[-1]}." if alone else "")

    rows = list(rows_below((), 0))
    several = tuple(f" x{row.modules}" if row.modules > 1 else "" for row in rows)
    names = Column("module", "Module", "path", tuple(row.name for row in rows), fold=True, after=several)
    counts = Column("modules", "Modules", "count", tuple(row.modules for row in rows), data=True)
    columns, depths = (
        (names, counts, *_columns(rows, durations, ops=False, shapes=False)),
        tuple(row.depth for row in rows),
    )
    remark = f"to depth {depth}, with what is inside"
    return Table(key="modules", title="By module", remark=remark, columns=columns, depth=depths, to_depth=depth)


def _unknown(graph: Graph, found: Measurement) -> Iterator[Table]:
    """Name the ops that were not measured, and why."""
    reasons = Counter(f"{shown(graph[index].name)}: {reason}" for index, reason in found.stand_ins.items())
    if not reasons:
        return
    texts, numbers = zip(*reasons.most_common(), strict=True)
    columns = (Column("count", "Ops", "count", numbers), Column("reason", "What and why", "text", texts, fold=True))
    title, rest = f"Not measured: {reasons.total():,} of {len(graph):,} ops", f"and {len(texts) - UNKNOWN} kinds more"
    remark = "~ estimated from the best rates of the others"
    yield Table(key="unknown", title=title, remark=remark, columns=columns, top=UNKNOWN, rest=f"{rest}: see --json")
