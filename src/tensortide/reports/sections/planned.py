"""Section ``plan``: the fastest plan of a step under a budget, how good it is, and what it changes in the program."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from tensortide.graph import Graph
from tensortide.plans.planned import Planned
from tensortide.plans.proofs import NAMES
from tensortide.plans.under_budget.bound import IdleCover
from tensortide.plans.under_budget.known import Rival
from tensortide.replays import TransferTimeline, replay_transfers
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.names import op_text, phase_of, source_place
from tensortide.reports.sections import plan_changes, plan_memory, transfers
from tensortide.reports.sections.assumed import brief
from tensortide.timelines import timeline
from tensortide.timing.machine import Link
from tensortide.units import format_bytes, format_percent, format_seconds

__all__ = ["PICTURES", "document", "origin", "section"]

PICTURES = plan_memory.PICTURES
"""Keys of the blocks that make the picture of the plan."""
_CAUSES = {
    "fetch": "fetches",
    "copy": "copies, before what they copy is written",
    "room": "room, until something leaves",
    "serial": "synchronous transfers",
}
_TAIL = "transfers after the last op"
NO_SOLVER = "Without SciPy the bound is only near the best of its kind: pip install 'tensortide[solve]'."
ENDED_EARLY = "The search was ended early: more time or work (--time-limit, --work-limit) may find a faster plan."


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
    ``source``, and these links; of what the plan changes, the ``top`` groups."""
    meta = graph.meta
    return Document(
        title=meta.workload,
        subtitle=(origin(graph, found.device, source),),
        settings=dict(meta.hyperparameters),
        sections=(section(found, graph, durations_ns, links=links, source=source, top=top),),
    )


def origin(graph: Graph, device: str, source: str) -> str:
    """State what was planned, and where its times are from; what ``source`` has in brackets is data."""
    times = re.sub(r" \([^()]*\)", "", source)
    return f"{len(graph):,} ops on {device}" + (f"; times: {times}" if times else "")


def section(
    found: Planned,
    graph: Graph,
    durations_ns: Sequence[int],
    *,
    links: Sequence[Link] = (),
    source: str = "",
    top: int = 10,
) -> Section:
    """Make the section alone."""
    kind: Literal["verdict", "failure"] = "verdict" if found.status == "fits" else "failure"
    blocks: list[AnyBlock] = [Note(text=verdict(found, graph), kind=kind)]
    blocks += [Note(text=text, kind="advice") for text in _advice(found)]
    blocks.append(Facts(rows=tuple(_facts(found, source))))
    if found.plan is None:
        blocks += [_beside(found), plan_memory.needed(graph, found.least)]
    else:
        line = replay_transfers(
            graph, found.plan, durations_ns=durations_ns, links=links, budget_bytes=found.budget_bytes
        )
        without = timeline(line.recorded, lifetimes="last_use", device=found.device, durations_ns=durations_ns)
        blocks += transfers.lanes(line)
        blocks += plan_memory.curves(line, without, found.budget_bytes)
        blocks += [_beside(found), *plan_changes.tables(line, durations_ns, top=top)]
        blocks += _traffic(line)
        blocks += [plan_memory.peaks(line, without), _ops(line)]
    blocks += [Note(text=text, kind="advice") for text in _scope(found)]
    blocks += brief(graph)
    return Section("plan", "Plan under a budget", blocks=tuple(blocks))


# -- sentences --------------------------------------------------------------------------------------


def verdict(found: Planned, graph: Graph) -> str:
    """Tell whether the step fits the budget, at what price, and how much better another plan could be."""
    budget, peak = format_bytes(found.budget_bytes), found.recorded_peak_bytes
    if found.status == "fits" and found.time_ns is not None and found.peak_bytes is not None:
        if found.time_ns == found.base_ns and found.peak_bytes >= found.recorded_peak_bytes:
            return f"Fits {budget} as it is: the peak is {format_bytes(found.peak_bytes)}."
        times = f"{format_seconds(found.base_ns / 1e9)} -> {format_seconds(found.time_ns / 1e9)}"
        share = f" ({format_percent(found.budget_bytes, peak)} of the peak without a budget)" * (
            found.budget_bytes < peak
        )
        fits = f"Fits: {format_bytes(found.peak_bytes)} of {budget}{share}; step {times} ({_more(found.extra)})"
        took = format_seconds(found.seconds)
        if found.proved:
            return f"{fits}; no plan of this class is faster, proved in {took}."
        bound = found.bound_ns / found.base_ns - 1 if found.base_ns else 0.0
        limit = f"than {_more(bound)}" if bound else "than without a budget"
        gap = f"gap {format_percent(found.gap or 0.0)}"
        return f"{fits}; no plan of this class is faster {limit} ({gap}); found in {took}."
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
        if found.enough_bytes is not None:
            yield f"The least budget for which a plan was found is {format_bytes(found.enough_bytes)}."
        moves = "" if "moves over" in found.plan_class else ", --offload host"
        order = "" if "any order" in found.plan_class else ", --order free"
        yield f"To make it fit: a larger budget{moves}{order}, or a smaller batch."
    if not found.complete:
        yield ENDED_EARLY


def _scope(found: Planned) -> Iterator[str]:
    """State which plans the bound is for, and what it, or a rival, lacks."""
    yield f"Class of plans: {found.plan_class}; bound: {found.bound_name}."
    rivals = [rival for rival in found.rivals if rival.kind == "partitioner"]
    if rivals and all(rival.time_ns is None for rival in rivals):
        yield f"PyTorch's partitioner is not among the plans above: {rivals[0].reason}."
    if found.bound_name == NAMES[IdleCover] and importlib.util.find_spec("scipy") is None:
        yield NO_SOLVER


def _more(extra: float | None) -> str:
    return "+" + format_percent(extra or 0.0)


# -- tables -----------------------------------------------------------------------------------------


def _facts(found: Planned, times: str) -> Iterator[Fact]:
    yield from data_facts("text", **{"class": found.plan_class, "bound_name": found.bound_name})
    yield from data_facts("ns", base=found.base_ns, time=found.time_ns, bound=found.bound_ns)
    yield from data_facts("bytes", budget=found.budget_bytes, peak=found.peak_bytes, least=found.least.nbytes)
    yield from data_facts("bytes", recorded_peak=found.recorded_peak_bytes, enough=found.enough_bytes)
    yield from data_facts("share", gap=found.gap, extra=found.extra)
    yield from data_facts("flag", proved=found.proved, complete=found.complete)
    yield from data_facts("text", status=found.status, source=found.source, device=found.device, times=times)
    yield from data_facts("op", least_op=found.least.op)
    yield from data_facts("count", work=found.work)
    yield from data_facts("s", search=found.seconds)


def _beside(found: Planned) -> Table:
    """The plan beside no budget and the best known plans: those that fit first, the fastest first."""
    own: list[tuple[str, int | None, int | None, str]] = []
    if found.status == "fits":
        own = [("this plan", found.time_ns, found.peak_bytes, "")]
    best, others = _best_of_each(found.rivals)
    more = f"and {len(others)} others: --csv rivals=FILE" if others else ""
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
    return Table(key="rivals", columns=columns, top=len(own) + len(best), rest=more, heads=1)


def _best_of_each(rivals: Iterable[Rival]) -> tuple[list[Rival], list[Rival]]:
    """The best rival of each kind that has one, then all others, the best first."""
    ranked = sorted(rivals, key=_rank)
    best = sorted({one.kind: one for one in reversed(ranked) if one.time_ns is not None}.values(), key=_rank)
    return best, [rival for rival in ranked if rival not in best]


def _title(rival: Rival) -> str:
    if rival.kind == "as recorded":
        return "no budget"
    return rival.name if rival.kind in ("modules", "partitioner", "given", "order") else f"{rival.kind}: {rival.name}"


def _reason(rival: Rival, found: Planned) -> str:
    """Return why a rival is no answer, in few words."""
    return "too large" if (rival.peak_bytes or 0) > found.budget_bytes else rival.reason


def _rank(rival: Rival) -> tuple[bool, bool, int]:
    return bool(rival.reason), rival.time_ns is None, rival.time_ns or 0


def _traffic(line: TransferTimeline) -> Iterator[AnyBlock]:
    """The traffic of each copy engine, and what ops waited for: in sentences, and on the page as tables."""
    played = line.played
    if not any(played.busy_ns.values()):
        return
    engines = [name for name, busy in played.busy_ns.items() if busy]
    busy = tuple(played.busy_ns[name] for name in engines)
    moved = tuple(played.moved_bytes[name] for name in engines)
    used = tuple(ns / max(played.makespan_ns, 1) for ns in busy)
    texts = (
        f"{name} {format_bytes(nbytes)}, busy {format_percent(share)}"
        for name, nbytes, share in zip(engines, moved, used, strict=True)
    )
    causes: dict[str, list[int]] = {}
    for stall in played.stalls:
        causes.setdefault(_CAUSES[stall.cause], []).append(stall.end_ns - stall.start_ns)
    if played.tail_ns:
        causes[_TAIL] = [played.tail_ns]
    waits = [f"{format_seconds(sum(some) / 1e9)} for {cause} (x{len(some)})" for cause, some in causes.items()]
    yield Note(text=f"Transfers: {'; '.join(texts)} of the step.", kind="advice", only="text")
    waited = f"Waits: {'; '.join(waits)}." if waits else "No op waits: all transfers are hidden."
    yield Note(text=waited, kind="advice", only="text")
    yield Table(
        key="engines",
        title="Transfers",
        columns=(
            Column("engine", "Engine", "text", tuple(engines)),
            Column("moved", "Moved", "bytes", moved),
            Column("busy", "Busy", "ns", busy),
            Column("used", "of the step", "share", used),
        ),
        only="page",
    )
    yield Table(
        key="stalls",
        title="What the step waits for",
        columns=(
            Column("cause", "Cause", "text", tuple(causes)),
            Column("stalls", "Stalls", "count", tuple(map(len, causes.values()))),
            Column("stalled", "Time", "ns", tuple(map(sum, causes.values()))),
        ),
        only="page",
        beside=True,
    )


def _ops(line: TransferTimeline) -> Table:
    """Every op of the step, with the number of its runs."""
    graph, ops = line.recorded, line.recorded.ops
    runs = Counter(line.run_op.tolist())
    columns = (
        Column("op", "Op", "name", tuple(graph.calls[op.call].op for op in ops)),
        Column("module", "Module", "path", tuple(graph.module_path(op.module) for op in ops)),
        Column("line", "Line", "text", tuple(source_place(graph, op.source) for op in ops)),
        Column("phase", "Phase", "text", tuple(phase_of(op) for op in ops), pick=True),
        Column("runs", "Runs", "count", tuple(runs[number] for number in range(len(ops)))),
        Column("time", "Each takes", "ns", tuple(line.problem.ops[number].ns for number in range(len(ops)))),
    )
    return Table(key="ops", title="Ops", columns=columns, only="page")
