"""Section ``plan``: the fastest plan of a step under a budget, how good it is, and what it changes in the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tensortide.graph import Graph
from tensortide.plans.under_budget.planned import Planned, Rival
from tensortide.replays import TransferTimeline, replay
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.names import op_text, pattern, role_series, shared
from tensortide.reports.pictures import Curve, Limit, Mark, Series
from tensortide.reports.sections import transfers
from tensortide.reports.sections.assumed import brief
from tensortide.studies.planning.savings import Saving, savings
from tensortide.timelines import StorageTimeline, timeline
from tensortide.timelines.resident import storage_homes
from tensortide.timing.machine import Link, Machine
from tensortide.units import format_bytes, format_percent, format_seconds

__all__ = ["document", "section"]

_CAUSES = {
    "fetch": "a fetch",
    "copy": "a copy, before what it copies is written",
    "room": "room, until something leaves",
    "serial": "a synchronous transfer",
}
TIME_IS_UP = "The time limit ended the search: more time (--time-limit), or another run, may find a faster plan."


def document(
    found: Planned,
    graph: Graph,
    durations_ns: Sequence[int],
    *,
    links: Sequence[Link] = (),
    source: str = "",
    top: int = 10,
) -> Document:
    """Show ``found``, planned for ``graph``, its loops written out, with these durations of its ops, which are from
    ``source``, and these links; of what the plan changes, the ``top`` groups. A plan that moves storages has a section
    of its lanes, for traces."""
    where = f"{len(graph):,} ops on {found.device}" + (f"; times: {source}" if source else "")
    played = None
    if found.plan is not None:
        machine = Machine("", {}, tuple(links))
        played = replay(graph, found.plan, durations_ns=durations_ns, machine=machine, budget_bytes=found.budget_bytes)
    sections = [section(found, graph, durations_ns, played, top=top)]
    if isinstance(played, TransferTimeline):
        sections.append(transfers.section(played))
    meta = graph.meta
    return Document(
        title=meta.workload, subtitle=(where,), settings=dict(meta.hyperparameters), sections=tuple(sections)
    )


def section(
    found: Planned, graph: Graph, durations_ns: Sequence[int], played: StorageTimeline | None, *, top: int = 10
) -> Section:
    """Make the section of ``found``, whose plan was ``played``."""
    kind = "verdict" if found.status == "fits" else "failure"
    blocks: list[AnyBlock] = [Note(text=verdict(found, graph), kind="verdict" if kind == "verdict" else "failure")]
    blocks += [Note(text=text, kind="advice") for text in _advice(found)]
    if not found.complete:
        blocks.append(Note(text=TIME_IS_UP))
    blocks += [_beside(found), Facts(rows=tuple(_facts(found)))]
    if played is not None:
        blocks += _changes(found, graph, durations_ns, top)
        if isinstance(played, TransferTimeline):
            blocks += _traffic(played)
        blocks.append(_memory(found, graph, durations_ns, played))
    blocks += brief(graph)
    return Section("plan", "Plan under a budget", blocks=tuple(blocks))


# -- sentences --------------------------------------------------------------------------------------


def verdict(found: Planned, graph: Graph) -> str:
    """Whether the step fits the budget, at what price, and how much better another plan could be."""
    budget = format_bytes(found.budget_bytes)
    if found.status == "fits" and found.time_ns is not None and found.peak_bytes is not None:
        if found.time_ns == found.base_ns and found.peak_bytes >= found.recorded_peak_bytes:
            return f"Fits {budget} as it is: the peak is {format_bytes(found.peak_bytes)}."
        times = f"{format_seconds(found.base_ns / 1e9)} -> {format_seconds(found.time_ns / 1e9)}"
        fits = f"Fits: {format_bytes(found.peak_bytes)} of {budget}; step {times} ({_more(found.extra)})"
        if found.proved:
            return f"{fits}; proved: no plan of this class is faster."
        bound = found.bound_ns / found.base_ns - 1 if found.base_ns else 0.0
        return f"{fits}; no plan of this class is faster than {_more(bound)} (gap {format_percent(found.gap or 0.0)})."
    if found.status == "infeasible":
        least = found.least
        return (
            f"Does not fit {budget}: {op_text(graph, least.op)} needs {format_bytes(least.nbytes)} with what must "
            "stay, in any plan of this class."
        )
    return (
        f"No plan found for {budget}: none needs less than {format_bytes(found.least.nbytes)}, and no plan that was "
        "tried fits. It is not proved that there is none."
    )


def _advice(found: Planned) -> Iterator[str]:
    if found.status != "fits":
        peaks = [rival.peak_bytes for rival in found.rivals if rival.peak_bytes is not None]
        if peaks:
            yield f"The least that a known plan needs is {format_bytes(min(peaks))}."
        other = "" if "any order" in found.plan_class else ", --order free"
        yield f"To make it fit: a larger budget{other}, or a smaller batch."


def _more(extra: float | None) -> str:
    return "+" + format_percent(extra or 0.0)


# -- tables -----------------------------------------------------------------------------------------


def _facts(found: Planned) -> Iterator[Fact]:
    yield Fact("class", "Class", found.plan_class, "text", "of the plans that are compared")
    bound = f"by {found.bound_name}"
    yield Fact("bound", "Bound", found.bound_ns, "ns", bound)
    yield from data_facts("ns", base=found.base_ns, time=found.time_ns)
    yield from data_facts("bytes", budget=found.budget_bytes, peak=found.peak_bytes, least=found.least.nbytes)
    yield from data_facts("bytes", recorded_peak=found.recorded_peak_bytes)
    yield from data_facts("share", gap=found.gap, extra=found.extra)
    yield from data_facts("flag", proved=found.proved, complete=found.complete)
    yield from data_facts("text", status=found.status, source=found.source, device=found.device)
    yield from data_facts("op", least_op=found.least.op)
    yield from data_facts("count", work=found.work)
    yield from data_facts("s", search=found.seconds)


def _beside(found: Planned) -> Table:
    """The plan beside no budget and the best known plans: those that fit first, the fastest first."""
    own: list[tuple[str, int | None, int | None, str]] = []
    if found.status == "fits":
        own = [("this plan", found.time_ns, found.peak_bytes, "")]
    best, others = _best_of_each(found.rivals)
    rows = [*own, *((_title(r), r.time_ns, r.peak_bytes, _reason(r, found)) for r in (*best, *others))]
    extra: tuple[Value, ...] = tuple(
        None if ns is None or not found.base_ns else ns / found.base_ns - 1 for _, ns, _, _ in rows
    )
    columns = (
        Column("name", "Plan", "text", tuple(name for name, *_ in rows)),
        Column("time", "Step", "ns", tuple(ns for _, ns, _, _ in rows)),
        Column("extra", "more", "share", extra),
        Column("peak", "Peak", "bytes", tuple(peak for _, _, peak, _ in rows)),
        Column("reason", "Verdict", "text", tuple(reason or "fits" for *_, reason in rows), fold=True),
    )
    return Table(key="rivals", title="Beside other plans", columns=columns, top=len(own) + len(best), heads=1)


def _best_of_each(rivals: Iterable[Rival]) -> tuple[list[Rival], list[Rival]]:
    """The best rival of each kind, then all others, the best first."""
    ranked = sorted(rivals, key=_rank)
    best = list({rival.kind: rival for rival in reversed(ranked)}.values())[::-1]
    return best, [rival for rival in ranked if rival not in best]


def _title(rival: Rival) -> str:
    if rival.kind == "as recorded":
        return "no budget"
    return rival.name if rival.kind in ("modules", "given", "order") else f"{rival.kind}: {rival.name}"


def _reason(rival: Rival, found: Planned) -> str:
    """Why a rival is no answer, in few words."""
    return "too large" if (rival.peak_bytes or 0) > found.budget_bytes else rival.reason


def _rank(rival: Rival) -> tuple[bool, bool, int]:
    return bool(rival.reason), rival.time_ns is None, rival.time_ns or 0


def _changes(found: Planned, graph: Graph, durations_ns: Sequence[int], top: int) -> Iterator[AnyBlock]:
    """What the plan changes: what to recompute, what to move, by modules that differ only by number."""
    assert found.plan is not None
    listed = savings(graph, found.plan, durations_ns)
    again, moved = ([c for c in listed if bool(c.link) is wanted] for wanted in (False, True))
    if again:
        groups = _groups(graph, again)
        groups.sort(key=lambda group: (-sum(c.nbytes for c in group), -sum(c.time_ns for c in group)))
        yield Table(
            key="recompute",
            title="Recompute",
            remark="tensors evicted before a long wait, and recomputed before their next use",
            columns=(
                *_named(graph, groups),
                Column("ops", "Ops", "count", tuple(sum(c.recomputed for c in group) for group in groups), at_width=90),
                Column("time", "Time added", "ns", tuple(sum(c.time_ns for c in group) for group in groups)),
            ),
            top=top,
            heads=1,
        )
    if moved:
        groups = _groups(graph, moved)
        groups.sort(key=lambda group: -sum(c.nbytes for c in group))
        yield Table(
            key="offload",
            title="Move",
            columns=(*_named(graph, groups), Column("link", "Over", "text", tuple(group[0].link for group in groups))),
            top=top,
            heads=1,
        )


def _groups(graph: Graph, listed: Iterable[Saving]) -> list[list[Saving]]:
    """Changes to tensors made by equal calls in modules that differ only by number."""
    homes = storage_homes(graph)

    def key(saving: Saving) -> tuple[str, str, str]:
        module = graph.module_path(homes[saving.storages[0]] if saving.op < 0 else graph.ops[saving.op].module)
        return pattern(module), "" if saving.op < 0 else graph[saving.op].name, saving.link

    return [list(group) for _, group in groupby(sorted(listed, key=key), key)]


def _named(graph: Graph, groups: Sequence[Sequence[Saving]]) -> tuple[Column, ...]:
    """The columns that say what the tensors of each group are, and their bytes."""
    homes = storage_homes(graph)
    places = [
        [graph.module_path(homes[c.storages[0]] if c.op < 0 else graph.ops[c.op].module) for c in group]
        for group in groups
    ]
    kinds = [{graph.ops[c.op].module for c in group if c.op >= 0} for group in groups]
    types = [{graph.modules[module].type for module in kind if module >= 0} for kind in kinds]
    several = tuple(f" x{len(set(paths))}" if len(set(paths)) > 1 else "" for paths in places)
    return (
        Column("module", "Module", "path", tuple(shared(paths) for paths in places), fold=True, after=several),
        Column("class", "Class", "name", tuple(", ".join(sorted(names)) for names in types), at_width=100, fold=True),
        Column(
            "op",
            "Made by",
            "name",
            tuple("" if g[0].op < 0 else graph[g[0].op].name for g in groups),
            fold=True,
            at_width=120,
        ),
        Column("size", "Bytes", "bytes", tuple(sum(c.nbytes for c in group) for group in groups)),
    )


def _traffic(played: TransferTimeline) -> Iterator[Table]:
    """The traffic of each copy engine, and what ops waited for."""
    events = played.played
    engines = [name for name, busy in events.busy_ns.items() if busy]
    busy = tuple(events.busy_ns[name] for name in engines)
    yield Table(
        key="engines",
        title="Transfers",
        columns=(
            Column("engine", "Engine", "text", tuple(engines)),
            Column("moved", "Moved", "bytes", tuple(events.moved_bytes[name] for name in engines)),
            Column("busy", "Busy", "ns", busy),
            Column("used", "of the step", "share", tuple(ns / max(events.makespan_ns, 1) for ns in busy)),
        ),
    )
    causes: dict[str, list[int]] = {}
    for stall in events.stalls:
        causes.setdefault(_CAUSES[stall.cause], []).append(stall.end_ns - stall.start_ns)
    if events.tail_ns:
        causes["transfers after the last op"] = [events.tail_ns]
    yield Table(
        key="stalls",
        title="What the step waits for",
        columns=(
            Column("cause", "Cause", "text", tuple(causes)),
            Column("stalls", "Stalls", "count", tuple(map(len, causes.values()))),
            Column("stalled", "Time", "ns", tuple(map(sum, causes.values()))),
        ),
    )


def _memory(found: Planned, graph: Graph, durations_ns: Sequence[int], played: StorageTimeline) -> Curve:
    """Bytes resident over the step under the plan, and without a budget behind them."""
    before = timeline(graph, lifetimes="last_use", device=found.device, durations_ns=durations_ns)
    stretched = _at_hand(played, before)
    return Curve(
        key="memory",
        title="Memory under the plan",
        remark="bytes resident during each op",
        x=tuple(range(len(played.run_op) + 1)),
        x_unit="op",
        ops=tuple(played.run_op.tolist()),
        stack=role_series(played.by_role),
        lines=(Series("without", "without a budget", stretched),),
        limits=(Limit(f"budget, {format_bytes(found.budget_bytes)}", found.budget_bytes),),
        marks=(Mark(played.peak_op, f"peak, {format_bytes(played.peak_bytes)}"),),
    )


def _at_hand(played: StorageTimeline, before: StorageTimeline) -> tuple[int, ...]:
    """The bytes without a budget at the op of the step that is at hand during each op run."""
    own = ~played.is_recompute
    place = (own.cumsum() - own).clip(max=max(len(before.resident) - 1, 0))
    return tuple(before.resident[place].tolist())
