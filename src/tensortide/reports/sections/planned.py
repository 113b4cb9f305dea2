"""Section ``plan``: the fastest plan of a step under a budget, how good it is, and what it changes in the program."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Annotated

import msgspec

from tensortide.cost.count import phase_of
from tensortide.graph import Graph
from tensortide.graph.module_paths import as_one, pattern
from tensortide.plans.planned import Planned
from tensortide.plans.proofs import NAMES
from tensortide.plans.under_budget.bound import IdleCover
from tensortide.plans.under_budget.known import Rival
from tensortide.plans.unfollowed import not_taken, over_budget
from tensortide.replays import TransferTimeline, replay_transfers
from tensortide.replays.absences import absences
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Note, Section, Table
from tensortide.reports.names import op_text, source_place
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.render.values import short
from tensortide.reports.sections import plan_memory, transfers
from tensortide.reports.sections.assumed import brief
from tensortide.shown import Show
from tensortide.studies.planning.savings import Saving, savings
from tensortide.timelines import timeline
from tensortide.timelines.resident import storage_homes
from tensortide.timing.links import Link
from tensortide.units import format_bytes, format_percent, format_seconds

PICTURES = plan_memory.PICTURES
"""Keys of the blocks that make the picture of the plan."""
FACTS = (
    *("plan_class", "bound_name", "base_ns", "step_ns", "bound_ns", "budget_bytes", "peak_bytes"),
    *("least.nbytes as least_bytes", "recorded_peak_bytes", "enough_bytes", "gap_share", "extra_share", "proved"),
    *("complete", "status", "source", "device", "least.op as least_op", "work", "search_s"),
    *("unfollowed_ns", "run_bytes", "one_op"),
)
_CAUSES = {
    "fetch": "fetches",
    "copy": "copies, before what they copy is written",
    "room": "room, until something leaves",
    "serial": "synchronous transfers",
}
NO_SOLVER = "Without SciPy the bound is only near the best of its kind: pip install 'tensortide[solve]'."
PREDICTED = (
    "Predicted time: ops, recomputation and waits for transfers. Not in it: what tensortide run itself does for each "
    "op, which can multiply steps of small ops, as on a CPU; run measures it."
)
ENDED_EARLY = "The search was ended early: more time or work (--time-limit, --work-limit) may find a better plan."


def of_plan(found: Planned) -> Document:
    """Show ``found`` for the step that it was planned for."""
    assert found.step is not None
    step = found.step
    return document(found, step.graph, step.durations_ns, links=found.links, source=step.source)


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
    blocks: list[AnyBlock] = [Note(text=verdict(found, graph), kind="verdict" if found.status == "fits" else "failure")]
    blocks += [Note(text=text, kind="advice") for text in _advice(found)]
    blocks.append(facts(found, *FACTS, Fact("times", "", source, data=True), data=True))
    if found.plan is None:
        blocks += [*([_beside(found)] if found.rivals else []), plan_memory.needed(graph, found.least)]
    else:
        budget = found.budget_bytes
        line = replay_transfers(graph, found.plan, durations_ns=durations_ns, links=links, budget_bytes=budget)
        without = timeline(line.recorded, lifetimes="last_use", device=found.device, durations_ns=durations_ns)
        blocks += [*transfers.lanes(line), *plan_memory.curves(line, without, budget), _beside(found)]
        blocks += [*_changes(line, durations_ns, top=top), *_traffic(line)]
        blocks += [plan_memory.peaks(line, without), _ops(line)]
    blocks += [*(Note(text=text, kind="advice") for text in _scope(found)), *brief(graph)]
    made = Section("plan", "Plan under a budget", blocks=tuple(blocks))
    meta = graph.meta
    return made.document(meta.workload, origin(graph, found.device, source), settings=meta.hyperparameters)


def origin(graph: Graph, device: str, source: str) -> str:
    """State what was planned, and where its times are from; what ``source`` has in brackets is data."""
    times = re.sub(r" \([^()]*\)", "", source)
    return f"{len(graph):,} ops on {device}" + (f"; times: {times}" if times else "")


# -- sentences --------------------------------------------------------------------------------------


def verdict(found: Planned, graph: Graph) -> str:
    """Tell whether the step fits the budget, at what price, and how much better another plan could be."""
    whole, least = found.recorded_peak_bytes, found.least
    share = f" ({format_percent(found.budget_bytes, whole)} of the peak without a budget)"
    budget = f"{format_bytes(found.budget_bytes)}{share * (found.budget_bytes < whole)}"
    if found.one_op:
        return (
            f"Does not fit {budget}: {op_text(graph, least.op)} needs {format_bytes(least.nbytes)} by itself, for its "
            "inputs, results and workspace. No order, recomputation or move changes that."
        )
    if found.status == "infeasible":
        return (
            f"Does not fit {budget}: {op_text(graph, least.op)} needs {format_bytes(least.nbytes)} with what must "
            "stay, in any plan of this class."
        )
    if found.step_ns is None or found.peak_bytes is None:
        return (
            f"No plan found for {budget}: none needs less than {format_bytes(least.nbytes)}, and no plan that was "
            "tried fits. It is not proved that there is none."
        )
    peak = format_bytes(found.peak_bytes)
    if found.step_ns == found.base_ns and found.peak_bytes >= whole:
        above = ", and the budget is above it" if found.budget_bytes > whole else ""
        return f"Fits {budget} as it is: the peak is {peak}{above}."
    times = f"{format_seconds(found.base_ns / 1e9)} -> {format_seconds(found.step_ns / 1e9)}"
    fits = f"Fits: {peak} of {budget}; step {times} ({_more(found.extra_share)})"
    took = format_seconds(found.search_s)
    if found.proved:
        return f"{fits}; no plan of this class is faster, proved in {took}."
    limit = f"than {_more(found.bound_share)}" if found.bound_share else "than without a budget"
    gap = f"gap {format_percent(found.gap_share or 0.0)}"
    return f"{fits}; no plan of this class is faster {limit} ({gap}); found in {took}."


def _advice(found: Planned) -> Iterator[str]:
    changes = found.step_ns != found.base_ns or (found.peak_bytes or 0) < found.recorded_peak_bytes
    if found.plan is not None and changes:
        yield PREDICTED
        yield from _in_a_run(found)
    if found.status != "fits":
        if found.enough_bytes is not None:
            yield f"The least budget for which a plan was found is {format_bytes(found.enough_bytes)}."
        yield f"To make it fit: {', '.join(('a larger budget', *found.may_help))}, or a smaller batch."
    if not found.complete:
        yield ENDED_EARLY


def _in_a_run(found: Planned) -> Iterator[str]:
    """Tell what a run takes that follows the plan, and of a faster one for which that is too much."""
    if found.run_bytes is not None and found.run_bytes > found.budget_bytes:
        yield f"The plan is not followed within the budget: {over_budget(found.run_bytes, found.budget_bytes)}."
    elif found.run_bytes is not None:
        yield f"A run that follows the plan takes {format_bytes(found.run_bytes)}."
    if found.unfollowed_ns is not None and found.unfollowed_ns != found.step_ns:
        yield not_taken(_more(found.extra_of(found.unfollowed_ns)))


def _scope(found: Planned) -> Iterator[str]:
    """State which plans the bound is for, and what it, or a rival, lacks."""
    yield f"Class of plans: {found.plan_class}; bound: {found.bound_name}."
    rivals = [rival for rival in found.rivals if rival.kind == "partitioner"]
    if rivals and all(rival.step_ns is None for rival in rivals):
        yield f"PyTorch's partitioner is not among the plans above: {rivals[0].reason}."
    if found.bound_name == NAMES[IdleCover] and importlib.util.find_spec("scipy") is None:
        yield NO_SOLVER


def _more(extra: float | None) -> str:
    return "+" + format_percent(extra or 0.0)


# -- tables -----------------------------------------------------------------------------------------


def _beside(found: Planned) -> Table:
    """The plan beside no budget and the best known plans of each kind, the best first; then all others."""
    own = [Rival("this plan", "given", found.step_ns, found.peak_bytes)] if found.status == "fits" else []
    ranked = sorted(found.rivals, key=_rank)
    best = sorted({one.kind: one for one in reversed(ranked) if one.step_ns is not None}.values(), key=_rank)
    others = [rival for rival in ranked if rival not in best]
    rows, most = [*own, *best, *others], found.budget_bytes
    extra = tuple(found.extra_of(one.step_ns) for one in rows)
    reasons = tuple("too large" if (one.peak_bytes or 0) > most else one.reason or "fits" for one in rows)
    return table(
        Rival,
        rows,
        *("title as name", "step_ns", Column("extra_share", "time added", "share", extra), "peak_bytes"),
        Column("reason", "Verdict", "text", reasons, fold=True),
        key="rivals",
        top=len(own) + len(best),
        rest=f"and {len(others)} others: --csv rivals=FILE" if others else "",
        heads=1,
    )


def _rank(rival: Rival) -> tuple[bool, bool, int, int]:
    """Order rivals: those that fit by time; then those that are too large by peak; then those that are no plans."""
    peak, time_ns = rival.peak_bytes or 0, rival.step_ns or 0
    return bool(rival.reason), rival.step_ns is None, peak if rival.reason else time_ns, time_ns


class _Engine(msgspec.Struct, frozen=True):
    """The traffic of a copy engine."""

    engine: Annotated[str, Show("Engine")]
    moved_bytes: Annotated[int, Show("Moved")]
    busy_ns: Annotated[int, Show("Busy")]
    used_share: Annotated[float, Show("of the step")]


class _Waits(msgspec.Struct, frozen=True):
    """The times in which ops waited for one cause."""

    cause: Annotated[str, Show("Cause")]
    stalls: Annotated[int, Show("Stalls")]
    stalled_ns: Annotated[int, Show("Time")]


def _traffic(line: TransferTimeline) -> Iterator[AnyBlock]:
    """The traffic of each copy engine, and what ops waited for: in sentences, and on the page as tables."""
    played, causes = line.played, dict[str, list[int]]()
    for stall in played.stalls:
        causes.setdefault(_CAUSES[stall.cause], []).append(stall.end_ns - stall.start_ns)
    if played.tail_ns:
        causes["transfers after the last op"] = [played.tail_ns]
    waits = [_Waits(cause, len(some), sum(some)) for cause, some in causes.items()]
    used = [(name, busy, busy / max(played.makespan_ns, 1)) for name, busy in played.busy_ns.items() if busy]
    engines = [_Engine(name, played.moved_bytes[name], busy, share) for name, busy, share in used]
    if engines:
        texts = (f"{e.engine} {format_bytes(e.moved_bytes)}, busy {format_percent(e.used_share)}" for e in engines)
        told = "; ".join(f"{format_seconds(w.stalled_ns / 1e9)} for {w.cause} (x{w.stalls})" for w in waits)
        waited = f"Waits: {told}." if waits else "No op waits: all transfers are hidden."
        yield Note(text=f"Transfers: {'; '.join(texts)} of the step.", kind="advice", only="text")
        yield Note(text=waited, kind="advice", only="text")
        yield table(_Engine, engines, key="engines", title="Transfers", only="page")
        yield table(_Waits, waits, key="stalls", title="What the step waits for", only="page", beside=True)


def _ops(line: TransferTimeline) -> Table:
    """Every op of the step, with the number of its runs."""
    graph, ops, runs = line.recorded, line.recorded.ops, Counter(line.run_op.tolist())
    columns = (
        Column("name", "Op", "name", tuple(graph.calls[op.call].op for op in ops)),
        Column("module", "Module", "path", tuple(graph.module_path(op.module) for op in ops)),
        Column("source", "Line", "text", tuple(source_place(graph, op.source) for op in ops)),
        Column("phase", "Phase", "text", tuple(map(phase_of, ops)), pick=True),
        Column("runs", "Runs", "count", tuple(runs[number] for number in range(len(ops)))),
        Column("time_ns", "Each takes", "ns", tuple(line.problem.ops[number].ns for number in range(len(ops)))),
    )
    return Table(key="ops", title="Ops", columns=columns, only="page")


# -- changes of the program, by modules that differ by number -----------------------------------------


class _Group(msgspec.Struct, frozen=True):
    """Changes to tensors that modules make that differ only by number, or to those of one name that they have.

    ``several``: of how many modules, and of how many of their kind if not of all. What is moved is away from ``out_ns``
    to ``back_ns``, and ops wait for it in ``waits_ns``.
    """

    module: Annotated[str, Show(unit="path", fold=True, after="several")]
    several: str
    classes: Annotated[str, Show("Class", "name", fold=True)]
    makers: Annotated[str, Show("Made by", "name", fold=True)]
    ops: Annotated[int, Show("Ops", at_width=120)]
    size_bytes: Annotated[int, Show("Saves")]
    time_ns: Annotated[int, Show("Time added")]
    link: Annotated[str, Show("To")]
    out_ns: Annotated[int | None, Show("Away from")]
    back_ns: Annotated[int | None, Show("until")]
    waits_ns: Annotated[int, Show("Waits", zero="hidden")]


def _changes(line: TransferTimeline, durations_ns: Sequence[int], *, top: int) -> Iterator[Table]:
    """Show the ``top`` groups of what to recompute, and of what to move."""
    groups = list(_groups(line, durations_ns))
    again = sorted((one for one in groups if not one.link), key=lambda one: (-one.size_bytes, -one.time_ns))
    moved = sorted((one for one in groups if one.link), key=lambda one: -one.size_bytes)
    if again and moved:
        top = -(-top // 2)
    if again:
        left = f", {format_seconds(sum(one.time_ns for one in again[top:]) / 1e9)}"
        yield _change("recompute", again, top, "Recompute", 100, "ops", "size_bytes", "time_ns", left=left)
    if moved:
        links = list(dict.fromkeys(one.link for one in moved))
        link = column(_Group, moved, "link", at_width=0 if links[1:] else 140)
        figures = ("size_bytes", link, "out_ns", "back_ns", "waits_ns")
        yield _change("offload", moved, top, f"Move to {', '.join(links)}", 120, *figures)


def _change(
    key: str, rows: Sequence[_Group], top: int, label: str, width: int, *figures: str | Column, left: str = ""
) -> Table:
    """Show where the tensors are, what they are from a ``width`` on, and ``figures``; ``left`` is said of the rest."""
    head = column(_Group, rows, "module", label=label)
    widths = {"classes": width, "makers": width + 20}
    rest = f"and {len(rows) - top} more: {format_bytes(sum(one.size_bytes for one in rows[top:]))}{left}"
    what = (column(_Group, rows, name, at_width=least) for name, least in widths.items())
    return table(_Group, rows, head, *what, *figures, key=key, top=top, rest=rest if rows[top:] else "", heads=1)


def _groups(line: TransferTimeline, durations_ns: Sequence[int]) -> Iterator[_Group]:
    graph, homes, waits = line.recorded, storage_homes(line.recorded), Counter[int]()
    every = Counter((pattern(module.path), module.type) for module in graph.modules)
    for stall in line.stalls:
        waits[stall.storage] += stall.end_ns - stall.start_ns
    away = [one for one in absences(line.problem, line.played) if one.fetched >= 0]

    def home(one: Saving) -> int:
        return homes[one.storages[0]] if one.op < 0 else graph.ops[one.op].module

    def name(one: Saving) -> str:
        """The name of what exists before the step, within its module."""
        storage = graph.storages[one.storages[0]]
        return storage.name.rpartition(".")[2] or storage.role.replace("_", " ")

    def alike(one: Saving) -> tuple[str, str, str, str]:
        kind = graph.modules[home(one)].type if home(one) >= 0 else ""
        return pattern(graph.module_path(home(one))), kind, "" if one.op >= 0 else pattern(name(one)), one.link

    for (path, *_, link), found in groupby(sorted(savings(graph, line.plan, durations_ns), key=alike), alike):
        group = list(found)
        modules = list(dict.fromkeys(map(home, group)))
        types = {graph.modules[module].type for module in modules if module >= 0}
        paths = list(dict.fromkeys(map(graph.module_path, modules)))
        count, most = len(paths), sum(every[path, kind] for kind in types)
        several = "" if most <= 1 else f" x{count}" if count >= most else f" x{count} of {most}"
        storages = {*chain.from_iterable(one.storages for one in group)}
        spans = [one for one in away if one.storage in storages]
        yield _Group(
            as_one(paths),
            (f" {name(group[0])}" if group[0].op < 0 else "") + several,
            ", ".join(sorted(types)),
            ", ".join(dict.fromkeys(name(one) if one.op < 0 else short(graph[one.op].name) for one in group)),
            sum(one.recomputed for one in group),
            sum(one.nbytes for one in group),
            sum(one.time_ns for one in group),
            link,
            min((one.from_ns for one in spans), default=None),
            max((one.to_ns for one in spans), default=None),
            sum(waits[storage] for storage in storages),
        )
