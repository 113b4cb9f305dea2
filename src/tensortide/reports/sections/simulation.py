"""Section ``simulation``: a step under a memory budget, what is evicted and recomputed, and why it does not fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.budgeted import advice, policy_name, verdict
from tensortide.reports.names import device_text, op_text, pattern, phase_of, shared, source_place
from tensortide.reports.pictures import Curve, Limit, Series, Stretch
from tensortide.reports.sections.ops import stretches
from tensortide.timelines.events import Kind
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.replays.remat.telemetry import Telemetry
    from tensortide.studies.remat.budgeted import Budgeted

__all__ = ["document", "section", "telemetry_section"]

OUTCOMES = {"ok": "fits", "oom": "out of memory", "thrash": "over the limit"}
NOWHERE = ("", "(outside)")


def document(run: Budgeted, *, top: int = 15) -> Document:
    """Show ``run`` with the ``top`` rows of each list."""
    meta, made = run.graph.meta, section(run, top=top)
    budget = "" if run.budget_bytes is None else f" under {format_bytes(run.budget_bytes)}"
    title = f"{meta.workload or 'unnamed step'}{budget}, {run.policy}"
    about = f"one step of {len(run.graph):,} ops, memory of {device_text(run.simulator.schedule.device)}"
    return made.document(title, about, made.about, settings=meta.hyperparameters)


def section(run: Budgeted, *, top: int = 15) -> Section:
    """Make the section of ``run``."""
    kind = f"policy {run.policy}: {run.rules}" if run.rules else f"plan {run.policy}"
    about = f"{kind}; durations {run.simulator.recording.source or 'unknown'}"
    blocks: list[AnyBlock] = [Note(text=verdict(run), kind="verdict" if run.outcome == "ok" else "failure")]
    blocks += [Note(text=text, kind="advice") for text in advice(run)]
    blocks.append(Facts(rows=(*_memory(run), *_time(run), *_work(run), *_data(run))))
    blocks += [*_held(run), _curve(run), *_recomputed(run, top), *_evicted(run, top), *_others(run, top), _step(run)]
    return Section("simulation", "Under a budget", about=about, blocks=tuple(blocks))


# -- facts ------------------------------------------------------------------------------------------


def _memory(run: Budgeted) -> Iterator[Fact]:
    baseline, (least, op) = run.simulator.baseline_bytes, run.least
    share = f"{format_percent(run.peak_bytes, baseline)} of before"
    yield Fact(
        "peak", "Peak", run.peak_bytes, "bytes", share + ("" if run.ended else ", up to where the run was given up")
    )
    yield Fact("baseline", "before", baseline, "bytes", "the step's own peak: what --budget 100% means", level=1)
    if run.budget_bytes is not None:
        yield Fact("budget", "budget", run.budget_bytes, "bytes", level=1)
    if op is not None:
        yield Fact("least", "at least", least, "bytes", f"{op_text(run.graph, op)}, with what must stay", level=1)
        yield Fact("least_op", "", op, "op", data=True)
    if run.telemetry:
        constant = run.simulator.schedule.constant_bytes
        yield Fact("constant", "constants", constant, "bytes", "what nothing can recompute", level=1)


def _time(run: Budgeted) -> Iterator[Fact]:
    more = f"+{format_percent(run.overhead - 1)}" if run.ended else "until the run was given up"
    count = len(run.recomputed)
    yield Fact("clock", "Time", run.clock_ns, "ns", more)
    yield Fact("model", "before", run.model_ns, "ns", "op sum: each op once", level=1)
    again = sum(run.line.run_ns[run.line.is_recompute].tolist())
    yield Fact("remat", "recomputation", again, "ns", f"{count:,} op{'s' * (count != 1)}", level=1, data=not count)
    yield Fact("recomputed", "Recomputed ops", count, "count", data=True)
    yield Fact("overhead", "Overhead", run.overhead, "number", data=True)


def _work(run: Budgeted) -> Iterator[Fact]:
    found, told = run.simulation, run.telemetry
    if found is None or told is None:
        return
    forced, direct, collateral = (
        sum(int(count or 0) for count in column)
        for column in (told.storages["forced"], told.tensors["direct_remats"], told.tensors["collateral_remats"])
    )
    ways = f"{forced:,} to make room, {found.evictions - forced:,} as the program dropped them"
    yield Fact("evictions", "Evictions", found.evictions, "count", ways)
    banished, lost = "what nothing could need any more, not among them", found.counts[Kind.BANISH]
    yield Fact("banished", "for good", lost, "count", banished, level=1, data=not lost)
    needed = f"tensors: {direct:,} that were needed, {collateral:,} recomputed with them"
    yield Fact("recomputed_tensors", "Recomputed", direct + collateral, "count", needed, data=not direct)
    most = "what it reads, makes and takes while it runs"
    yield Fact("bottleneck", "most for one op", told.bottleneck_bytes, "bytes", most, level=1, data=not direct)
    weighed = f"candidates weighed, {found.accesses:,} storages looked at"
    yield Fact("evaluations", "Search", found.evaluations, "count", weighed)
    remats = {"direct_remats": direct, "collateral_remats": collateral}
    yield from data_facts("count", forced=forced, accesses=found.accesses, **remats)


def _data(run: Budgeted) -> Iterator[Fact]:
    """Name how the run was made, and the smallest budget that is enough, as data."""
    limit = run.simulation.overhead_limit if run.simulation else None
    source, device = run.simulator.recording.source, run.simulator.schedule.device
    yield from data_facts(
        "text", status=run.outcome, policy=run.policy, rules=run.rules, durations=source, device=device
    )
    yield from data_facts("number", overhead_limit=limit)
    if planned := run.least_plan:
        yield from data_facts("bytes", least_plan_budget=planned.budget_bytes)
        yield from data_facts("share", least_plan_extra=planned.extra)
    if found := run.smallest:
        yield from data_facts("bytes", smallest_budget=found.budget_bytes, smallest_peak=found.peak_bytes)
        yield from data_facts("number", smallest_overhead=found.overhead)
        yield from data_facts("text", smallest_status=found.status)
    if stop := run.telemetry and run.telemetry.stop:
        at, goal = (int(run.simulator.schedule.origin[op]) for op in (stop.op, stop.goal))
        yield from data_facts("op", stop_op=at, stop_goal_op=goal)
        yield from data_facts("text", stop_at=op_text(run.graph, at), stop_goal=op_text(run.graph, goal))
        yield from data_facts("count", stop_waiting=len(stop.waiting))
        yield from data_facts("bytes", stop_asked=stop.asked_bytes)


# -- memory over the run ----------------------------------------------------------------------------


def _curve(run: Budgeted) -> Curve:
    """Show memory under the budget as areas and without it as a line; recomputation is shaded."""
    line, timed = run.line, run.clock_ns > 0
    starts = line.run_start_ns.tolist()
    phases = [(phase_of(run.graph.ops[op]),) for op in run.at_hand]
    again = [("recomputed",) if flag else () for flag in line.is_recompute.tolist()]
    limit = run.budget_bytes
    return Curve(
        key="memory",
        title="Memory over the step",
        remark="bytes resident during each op, with and without the budget",
        x=(*starts, run.clock_ns) if timed else tuple(range(len(starts) + 1)),
        x_unit="ns" if timed else "op",
        ops=tuple(line.run_op.tolist()),
        stack=tuple(Series(key, key.replace("_", " "), tuple(values), "after") for key, values in run.resident.items()),
        lines=(Series("before", "before", run.before_bytes),),
        limits=() if limit is None else (Limit(f"budget, {format_bytes(limit)}", limit),),
        shades=tuple(Stretch(*found) for found in stretches(again)),
        bands=tuple(Stretch(*found) for found in stretches(phases)),
        table="step",
    )


def _step(run: Budgeted) -> Table:
    """List the ops of the step, for files and the page."""
    runs, again = Counter(run.line.run_op.tolist()), Counter(run.recomputed)
    ops = run.graph.ops
    views = [run.graph[op] for op in range(len(ops))]
    sources = tuple(source_place(run.graph, op.source) for op in ops)
    return Table(
        key="step",
        title="Ops of the step",
        columns=(
            Column("op", "Op", "name", tuple(view.name for view in views), fold=True),
            Column("module", "Module", "path", tuple(view.module for view in views), fold=True),
            Column("phase", "Phase", "text", tuple(map(phase_of, ops))),
            Column("time", "Time", "ns", tuple(run.simulator.recording.durations_ns[: len(ops)])),
            Column("runs", "Runs", "count", tuple(runs[op] for op in range(len(ops))), sum=True),
            Column("again", "Recomputed", "count", tuple(again[op] for op in range(len(ops))), zero="", sum=True),
            Column("source", "Source", "code", sources),
        ),
        top=0,
    )


# -- tables -----------------------------------------------------------------------------------------


def _held(run: Budgeted) -> Iterator[Table]:
    """Show by role what was resident when nothing could be evicted."""
    stop, schedule = run.telemetry and run.telemetry.stop, run.simulator.schedule
    if not stop:
        return
    roles: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
    for item in stop.held:
        if item.nbytes:
            role = run.graph.storages[int(schedule.storage_origin[item.storage])].role.value
            roles[role].append((item.nbytes, item.pinned))
    rows = sorted(roles.items(), key=lambda row: -sum(nbytes for nbytes, _ in row[1]))
    sizes = [sum(nbytes for nbytes, _ in members) for _, members in rows]
    pinned = [sum(nbytes for nbytes, fixed in members if fixed) for _, members in rows]
    whole = sum(sizes)
    yield Table(
        key="held",
        title="What could not be evicted",
        remark=f"while {len(stop.waiting)} ops waited for it" if stop.waiting else "",
        columns=(
            Column("role", "Role", "role", tuple(role for role, _ in rows)),
            Column("storages", "tensors", "count", tuple(len(members) for _, members in rows)),
            Column("size", "Bytes", "bytes", tuple(sizes)),
            Column("share", "share", "share", tuple(size / whole for size in sizes), bar=1),
            Column("pinned", "must stay", "bytes", tuple(pinned), zero="-"),
            Column("in_use", "in use", "bytes", tuple(a - b for a, b in zip(sizes, pinned, strict=True)), zero="-"),
        ),
    )


def _recomputed(run: Budgeted, top: int) -> Iterator[Table]:
    """Show the time of recomputation by module, those that differ by number together, and by kind of op."""
    graph = run.graph
    paths = [graph.module_path(op.module) for op in graph.ops]
    names = [graph.calls[op.call].op for op in graph.ops]
    modules, kinds = _grouped(run, list(map(pattern, paths))), _grouped(run, names)
    places = Column("module", "Module", "path", tuple(shared([paths[op] for op in ops]) for ops in modules), fold=True)
    shown = 0 if {*places.values} <= {*NOWHERE} else top
    together = "modules that differ by number together"
    yield _times(run, "modules", "Recomputed, by module", together, places, modules, shown)
    kind = Column("op", "Op", "name", tuple(names[ops[0]] for ops in kinds), fold=True)
    yield _times(run, "kinds", "Recomputed, by kind of op", "", kind, kinds, top)


def _grouped(run: Budgeted, kinds: Sequence[str]) -> list[list[int]]:
    """Group recomputed ops by their kind, those that take most time first."""
    durations = run.simulator.recording.durations_ns
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for op in run.recomputed:
        groups[kinds[op]].append(op)
    return sorted(groups.values(), key=lambda ops: (-sum(durations[op] for op in ops), -len(ops)))


def _times(
    run: Budgeted, key: str, title: str, remark: str, names: Column, rows: Sequence[Sequence[int]], top: int
) -> Table:
    durations = run.simulator.recording.durations_ns
    times = [sum(durations[op] for op in ops) for ops in rows]
    whole, rest, runs = sum(times) or 1, sum(times[top:]), sum(map(len, rows[top:]))
    return Table(
        key=key,
        title=title,
        remark=remark,
        columns=(
            Column("time", "Time", "ns", tuple(times)),
            Column("share", "share", "share", tuple(ns / whole for ns in times), bar=1),
            Column("runs", "Runs", "count", tuple(map(len, rows))),
            Column("ops", "of ops", "count", tuple(len(set(ops)) for ops in rows)),
            names,
        ),
        top=top,
        rest=f"and {len(rows) - top} more: {format_seconds(rest / 1e9)}, {format_percent(rest, whole)}, {runs:,} runs",
    )


def _evicted(run: Budgeted, top: int) -> Iterator[Table]:
    """Show what made room or was recomputed, storages alike together, those first that made most room."""
    origins = {storage: _origin(run, storage) for storage in run.evicted}
    groups: defaultdict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for storage, (name, path) in origins.items():
        record = run.graph.storages[storage]
        groups[record.role, record.nbytes, pattern(name), pattern(path)].append(storage)
    rows = []
    for members in groups.values():
        forced, remats = (sum(run.evicted[storage][side] for storage in members) for side in (0, 1))
        rows.append((forced, remats, run.graph.storages[members[0]], members))
    rows.sort(key=lambda row: (-row[0] * row[2].nbytes, -row[1] * row[2].nbytes))
    names = [shared([origins[storage][0] for storage in members]) for *_, members in rows]
    paths = [shared([origins[storage][1] for storage in members]) for *_, members in rows]
    several = tuple(f" x{len(members)}" if len(members) > 1 else "" for *_, members in rows)
    nowhere = all(path in NOWHERE for path in paths)
    yield Table(
        key="evicted",
        title="Evicted most",
        remark="what made room, and how often it was recomputed; tensors alike together",
        columns=(
            Column("room", "Made room", "bytes", tuple(forced * record.nbytes for forced, _, record, _ in rows)),
            Column("forced", "times", "count", tuple(forced for forced, *_ in rows)),
            Column("remats", "recomputed", "count", tuple(remats for _, remats, *_ in rows)),
            Column("size", "Each", "bytes", tuple(record.nbytes for _, _, record, _ in rows)),
            Column("tensor", "Tensor", "name", tuple(names), fold=True, after=several),
            Column("storages", "Tensors", "count", tuple(len(members) for *_, members in rows), data=True),
            Column("role", "Role", "role", tuple(record.role.value for _, _, record, _ in rows), at_width=96),
            Column("module", "Module", "path", tuple(paths), fold=True, data=nowhere),
        ),
        top=top,
        rest=f"and {sum(len(members) for *_, members in rows[top:]):,} more tensors",
    )


def _origin(run: Budgeted, storage: int) -> tuple[str, str]:
    """Name ``storage``, or else the op that allocates it, and the module of that op."""
    record = run.graph.storages[storage]
    if record.birth is None:
        return record.name, ""
    op = run.graph[record.birth]
    return (op.name if op.module in NOWHERE or not record.name else record.name), op.module


def _others(run: Budgeted, top: int) -> Iterator[Table]:
    """Show the runs of other policies, the best first; text leaves them out where none fits."""
    rows = sorted(run.others, key=lambda other: (other.status != "ok", other.overhead))
    if not rows:
        return
    more = tuple(other.overhead - 1 if other.status == "ok" else None for other in rows)
    yield Table(
        key="policies",
        title="Other policies",
        remark="at this budget, the best first",
        columns=(
            Column("policy", "Policy", "text", tuple(policy_name(run, other) for other in rows)),
            Column("outcome", "Outcome", "text", tuple(OUTCOMES[other.status] for other in rows)),
            Column("more", "Time", "change", more),
            Column("peak", "Peak", "bytes", tuple(other.peak_bytes for other in rows)),
            Column("overhead", "Overhead", "number", tuple(other.overhead for other in rows), data=True),
            Column("status", "Status", "text", tuple(other.status for other in rows), data=True),
        ),
        top=top if rows[0].status == "ok" else 0,
        rest=f"and {len(rows) - top} more policies",
    )


# -- telemetry --------------------------------------------------------------------------------------


def telemetry_section(found: Telemetry) -> Section:
    """Make the section of everything that happened in a run: tensors, storages, ops, and memory at every event."""
    moments = {name: values.tolist() for name, values in found.moments.items()}
    moments["kind"] = [Kind(kind).name.lower() for kind in moments["kind"]]
    timeline = {"event": range(len(moments["kind"])), **moments}
    tables = {"tensors": found.tensors, "storages": found.storages, "ops": found.ops, "timeline": timeline}
    return Section("telemetry", "Telemetry", blocks=tuple(_columns(*table) for table in tables.items()))


def _columns(key: str, columns: Mapping[str, Sequence[Value]]) -> Table:
    return Table(key=key, columns=tuple(Column(n, n, "text", tuple(v)) for n, v in columns.items()), top=0)
