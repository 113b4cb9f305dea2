"""Section ``simulation``: a step under a memory budget, what is evicted and recomputed, and why it does not fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tensortide.cost.count import phase_of
from tensortide.graph.module_paths import as_one, pattern
from tensortide.replays.remat import Simulation
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Note, Section, Table, Value
from tensortide.reports.budgeted import advice, policy_name, verdict
from tensortide.reports.names import NOWHERE, device_text, op_text, source_place
from tensortide.reports.of_records import column, fact, facts, table
from tensortide.reports.pictures import Curve, Limit, Series, Stretch
from tensortide.reports.sections.ops import stretches
from tensortide.shown import Show
from tensortide.timelines.events import Kind
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.replays.remat.telemetry import Telemetry
    from tensortide.studies.remat.budgeted import Budgeted


class Resident(NamedTuple):
    """Storages of one role that could not be evicted."""

    role: Annotated[str, Show("Role", "role")]
    storages: Annotated[int, Show("tensors")]
    size_bytes: Annotated[int, Show("Bytes")]
    share: Annotated[float, Show("share", "share", bar=1)]
    pinned_bytes: Annotated[int, Show("must stay", zero="-")]
    in_use_bytes: Annotated[int, Show("in use", zero="-")]


class Again(NamedTuple):
    """Recomputed ops that belong together."""

    time_ns: Annotated[int, Show("Time")]
    share: Annotated[float, Show("share", "share", bar=1)]
    runs: Annotated[int, Show("Runs")]
    ops: Annotated[int, Show("of ops")]
    module: Annotated[str, Show("Module", "path", fold=True)]
    op: Annotated[str, Show("Op", "name", fold=True)]


class Evicted(NamedTuple):
    """Evicted storages that are alike."""

    room_bytes: Annotated[int, Show("Made room")]
    forced: Annotated[int, Show("times")]
    remats: Annotated[int, Show("recomputed")]
    size_bytes: Annotated[int, Show("Each")]
    tensor: Annotated[str, Show("Tensor", "name", fold=True, times="storages")]
    storages: Annotated[int, Show("Tensors", data=True)]
    role: Annotated[str, Show("Role", "role", at_width=96)]
    module: Annotated[str, Show("Module", "path", fold=True)]


def document(run: Budgeted, *, top: int = 15) -> Document:
    """Show ``run`` with the ``top`` rows of each list."""
    meta, made = run.graph.meta, section(run, top=top)
    budget = "" if run.budget_bytes is None else f" under {format_bytes(run.budget_bytes)}"
    about = f"one step of {len(run.graph):,} ops, memory of {device_text(run.simulator.schedule.device)}"
    title = f"{meta.workload or 'unnamed step'}{budget}, {run.policy}"
    return made.document(title, about, made.about, settings=meta.hyperparameters)


def section(run: Budgeted, *, top: int = 15) -> Section:
    """Make the section of ``run``."""
    kind = f"policy {run.policy}: {run.rules}" if run.rules else f"plan {run.policy}"
    blocks: list[AnyBlock] = [Note(text=verdict(run), kind="verdict" if run.outcome == "ok" else "failure")]
    blocks += [Note(text=text, kind="advice") for text in advice(run)]
    blocks += [facts(run, *_facts(run)), *_held(run), _curve(run)]
    blocks += [*_recomputed(run, top), _evicted(run, top), *_others(run, top), _step(run)]
    about = f"{kind}; durations {run.simulator.recording.source or 'unknown'}"
    return Section("simulation", "Under a budget", about=about, blocks=tuple(blocks))


def _facts(run: Budgeted) -> Iterator[str | Fact]:
    given_up = "" if run.ended else ", up to where the run was given up"
    part = f"{format_percent(run.peak_bytes, run.simulator.baseline_bytes)} of that without the budget{given_up}"
    yield fact(run, "peak_bytes", part)
    yield fact(run, "simulator.baseline_bytes", "the step's own peak: what --budget 100% means")
    yield "budget_bytes"
    if run.least.size_bytes:
        yield fact(run, "least.size_bytes as least_bytes", f"{op_text(run.graph, run.least.op)}, with what must stay")
        yield "least.op as least_op"
    if run.telemetry:
        yield fact(run, "simulator.schedule.constant_bytes", "what nothing can recompute")
    yield fact(run, "clock_ns", f"+{format_percent(run.overhead - 1)}" if run.ended else "until the run was given up")
    yield fact(run, "simulator.schedule.model_ns", "sum of op times, each op once")
    count = len(run.recomputed)
    yield fact(run, "remat_ns", f"{count:,} op{'s' * (count != 1)}", data=not count)
    yield from ("recomputed", "overhead")
    if (found := run.simulation) and (told := run.telemetry):
        needless, dropped = not told.direct_remats, found.evictions - told.forced
        room = f"{told.forced:,} to make room, {dropped:,} as the program dropped them"
        yield fact(run, "simulation.evictions", room)
        yield fact(run, "simulation.banished", "what nothing could need any more, not among them")
        needed = f"tensors: {told.direct_remats:,} that were needed, {told.collateral_remats:,} recomputed with them"
        yield fact(run, "telemetry.recomputed_tensors", needed, data=needless)
        yield fact(run, "telemetry.bottleneck_bytes", "what it reads, makes and takes while it runs", data=needless)
        yield fact(run, "simulation.evaluations", f"candidates weighed, {found.accesses:,} storages looked at")
        yield from ("telemetry.forced", "simulation.accesses", "telemetry.direct_remats", "telemetry.collateral_remats")
    yield from ("outcome as status", "policy", "rules", "simulator.recording.source as durations")
    yield from ("simulator.schedule.device", "simulation.overhead_limit")
    if run.least_plan:
        for name in ("budget_bytes", "extra_share"):
            yield fact(run, f"least_plan.{name} as least_plan_{name}", data=True)
    for name in ("budget_bytes", "peak_bytes", "overhead", "status") if run.smallest else ():
        yield fact(run, f"smallest.{name} as smallest_{name}", data=True)
    if stop := run.telemetry and run.telemetry.stop:
        yield from ("telemetry.stop.op as stop_op", "telemetry.stop.goal_op as stop_goal_op")
        yield Fact("stop_at", "", op_text(run.graph, stop.op), data=True)
        yield Fact("stop_goal", "", op_text(run.graph, stop.goal_op), data=True)
        yield from ("telemetry.stop.waiting as stop_waiting", "telemetry.stop.asked_bytes as stop_asked_bytes")


# -- memory over the run ----------------------------------------------------------------------------


WITH, WITHOUT = "with the budget", "without the budget"
"""The two sides of the picture."""


def _curve(run: Budgeted) -> Curve:
    """Show memory under the budget as areas and without it as a line; recomputation is shaded."""
    line, limit = run.line, run.budget_bytes
    starts = line.run_start_ns.tolist()
    phases = [(phase_of(run.graph.ops[op]),) for op in run.at_hand]
    again = [("recomputed",) if flag else () for flag in line.is_recompute.tolist()]
    return Curve(
        key="memory",
        title="Memory over the step",
        remark="bytes resident during each op, with and without the budget",
        x=(*starts, run.clock_ns) if run.clock_ns > 0 else tuple(range(len(starts) + 1)),
        x_unit="ns" if run.clock_ns > 0 else "op",
        ops=tuple(line.run_op.tolist()),
        stack=tuple(Series(key, key.replace("_", " "), tuple(of), WITH) for key, of in run.resident.items()),
        lines=(Series("before", WITHOUT, run.before_bytes),),
        limits=() if limit is None else (Limit(f"budget, {format_bytes(limit)}", limit),),
        shades=tuple(Stretch(*found) for found in stretches(again)),
        bands=tuple(Stretch(*found) for found in stretches(phases)),
        table="step",
    )


def _step(run: Budgeted) -> Table:
    """List the ops of the step, for files and the page."""
    runs, again = Counter(run.line.run_op.tolist()), Counter(run.recomputed)
    graph, ops = run.graph, run.graph.ops
    views = [graph[op] for op in range(len(ops))]
    columns = (
        Column("op", "Op", "name", tuple(view.name for view in views), fold=True),
        Column("module", "Module", "path", tuple(view.module for view in views), fold=True),
        Column("phase", "Phase", "text", tuple(map(phase_of, ops))),
        Column("time_ns", "Time", "ns", tuple(run.simulator.recording.durations_ns[: len(ops)])),
        Column("runs", "Runs", "count", tuple(runs[op] for op in range(len(ops))), sum=True),
        Column("again", "Recomputed", "count", tuple(again[op] for op in range(len(ops))), zero="", sum=True),
        Column("source", "Source", "code", tuple(source_place(graph, op.source) for op in ops)),
    )
    return Table(key="step", title="Ops of the step", columns=columns, top=0)


# -- tables -----------------------------------------------------------------------------------------


def _held(run: Budgeted) -> Iterator[Table]:
    """Show by role what was resident when nothing could be evicted."""
    if not (stop := run.telemetry and run.telemetry.stop):
        return
    counts, sizes, pinned = Counter[str](), Counter[str](), Counter[str]()
    for item in (item for item in stop.held if item.nbytes):
        role = run.graph.storages[item.storage].role.value
        for amounts, more in ((counts, 1), (sizes, item.nbytes), (pinned, item.nbytes * item.pinned)):
            amounts[role] += more
    rows = [
        Resident(role, counts[role], size, size / sizes.total(), pinned[role], size - pinned[role])
        for role, size in sizes.most_common()
    ]
    remark = f"while {len(stop.waiting)} ops waited for it" if stop.waiting else ""
    yield table(Resident, rows, key="held", title="What could not be evicted", remark=remark)


def _recomputed(run: Budgeted, top: int) -> Iterator[Table]:
    """Show the time of recomputation by module, those that differ by number together, and by kind of op."""
    graph, durations = run.graph, run.simulator.recording.durations_ns
    paths, names = [graph.module_path(op.module) for op in graph.ops], [graph.calls[op.call].op for op in graph.ops]
    whole = sum(durations[op] for op in run.recomputed) or 1
    together = "modules that differ by number together"
    modules = ("modules", "module", "Recomputed, by module", together, [*map(pattern, paths)])
    for key, name, title, remark, kinds in (modules, ("kinds", "op", "Recomputed, by kind of op", "", names)):
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for op in run.recomputed:
            groups[kinds[op]].append(op)
        rows = []
        for ops in groups.values():
            ns, module = sum(durations[op] for op in ops), as_one([paths[op] for op in ops])
            rows.append(Again(ns, ns / whole, len(ops), len({*ops}), module, names[ops[0]]))
        rows.sort(key=lambda row: (-row.time_ns, -row.runs))
        most = 0 if name == "module" and {row.module for row in rows} <= {*NOWHERE} else top
        left_ns, runs = sum(row.time_ns for row in rows[most:]), sum(row.runs for row in rows[most:])
        left = f"{format_seconds(left_ns / 1e9)}, {format_percent(left_ns, whole)}, {runs:,} runs"
        texts = {"title": title, "remark": remark, "rest": f"and {len(rows) - most} more: {left}"}
        yield table(Again, rows, "time_ns", "share", "runs", "ops", name, key=key, top=most, **texts)


def _evicted(run: Budgeted, top: int) -> Table:
    """Show what made room or was recomputed, storages alike together, those first that made most room."""
    groups: defaultdict[tuple[str, int, str, str], list[tuple[str, str, int, int]]] = defaultdict(list)
    for storage, times in run.evicted.items():
        record, (name, path) = run.graph.storages[storage], _origin(run, storage)
        groups[record.role.value, record.nbytes, pattern(name), pattern(path)].append((name, path, *times))
    rows = []
    for (role, size, *_), members in groups.items():
        names, paths, forced, remats = zip(*members, strict=True)
        figures = (sum(forced) * size, sum(forced), sum(remats), size)
        rows.append(Evicted(*figures, as_one(names), len(members), role, as_one(paths)))
    rows.sort(key=lambda row: (-row.room_bytes, -row.remats * row.size_bytes))
    module = column(Evicted, rows, "module", data=all(row.module in NOWHERE for row in rows))
    texts = {"remark": "what made room, and how often it was recomputed; tensors alike together"}
    texts["rest"] = f"and {sum(row.storages for row in rows[top:]):,} more tensors"
    names = ("room_bytes", "forced", "remats", "size_bytes", "tensor", "storages", "role")
    return table(Evicted, rows, *names, module, key="evicted", title="Evicted most", top=top, **texts)


def _origin(run: Budgeted, storage: int) -> tuple[str, str]:
    """Name ``storage``, or else the op that allocates it, and the module of that op."""
    record = run.graph.storages[storage]
    if record.birth is None:
        return record.name, ""
    op = run.graph[record.birth]
    return (op.name if op.module in NOWHERE or not record.name else record.name), op.module


def _others(run: Budgeted, top: int) -> Iterator[Table]:
    """Show the runs of other policies, the best first; text leaves them out where none fits."""
    if not run.others:
        return
    rows = sorted(run.others, key=lambda other: (other.status != "ok", other.overhead))
    names = Column("policy", "Policy", "text", tuple(policy_name(run, other) for other in rows))
    texts = {"title": "Other policies", "remark": "at this budget, the best first"}
    texts["rest"] = f"and {len(rows) - top} more policies"
    figures = ("outcome", "more_change", "peak_bytes", "overhead", "status")
    most = top if rows[0].status == "ok" else 0
    yield table(Simulation, rows, names, *figures, key="policies", top=most, **texts)


# -- telemetry --------------------------------------------------------------------------------------


def telemetry_section(found: Telemetry) -> Section:
    """Make the section of everything that happened in a run: tensors, storages, ops, and memory at every event."""
    moments: dict[str, Sequence[Value]] = {name: values.tolist() for name, values in found.moments.items()}
    kinds = [Kind(kind).name.lower() for kind in found.moments["kind"].tolist()]
    timeline: Mapping[str, Sequence[Value]] = {"event": range(len(kinds)), **moments, "kind": kinds}
    tables = {"tensors": found.tensors, "storages": found.storages, "ops": found.ops, "timeline": timeline}
    blocks = (
        Table(key=key, columns=tuple(Column(n, n, "text", tuple(v)) for n, v in columns.items()), top=0)
        for key, columns in tables.items()
    )
    return Section("telemetry", "Telemetry", blocks=tuple(blocks))
