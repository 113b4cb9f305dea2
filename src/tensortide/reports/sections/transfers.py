"""Section ``transfers``: a plan as it is played: lanes of the ops, of the copy engines and of the stalls with their
causes, what each step is for, and the bytes of every place over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from tensortide.graph.model import Graph
from tensortide.plans import Compute, Copy, Evict, Fetch
from tensortide.plans.events import Stall
from tensortide.plans.instance import DEVICE
from tensortide.replays import TransferTimeline
from tensortide.replays.absences import Absence, absences
from tensortide.reports.blocks import Column, Section, Table
from tensortide.reports.names import (
    RECOMPUTE,
    device_text,
    op_text,
    phase_of,
    role_series,
    source_place,
    widest_tensors,
)
from tensortide.reports.pictures import Arrow, Curve, Lane, Limit, Spans
from tensortide.reports.render.values import short
from tensortide.timelines.resident import storage_homes
from tensortide.units import format_bytes, format_seconds

__all__ = ["CLOCK", "cause_text", "lanes", "place_curve", "section", "storage_texts"]

CLOCK = "plan"
"""The x axis that the pictures of a plan share."""
MOST_SAID = 3
"""Clauses that are said of one step."""


def section(line: TransferTimeline) -> Section:
    """Make the section alone: lanes with a table of their steps, and a curve of each place."""
    curves = (place_curve(line, name) for name in line.played.before_bytes)
    return Section("transfers", "As played", blocks=(*lanes(line), *curves))


def lanes(line: TransferTimeline) -> tuple[Spans, Table]:
    """The lanes of the section, and the table of their steps."""
    rows = [i for i, engine in enumerate(line.played.engine) if engine]
    spans = Spans(
        key="lanes",
        title="As played",
        remark="ops, transfers and waits over time",
        x_unit="ns",
        lanes=tuple(_lanes(line, rows)),
        arrows=tuple(_arrows(line)),
        table="steps",
        top=0,
        clock=CLOCK,
    )
    return spans, _table(line, rows)


def storage_texts(graph: Graph) -> list[str]:
    """Name every storage for a reader: as the model does, or by its tensor and the op that makes it."""
    widest = widest_tensors(graph)
    return [
        storage.name
        or f"{widest.get(i, 'bytes')} of {'before' if storage.birth is None else short(graph[storage.birth].name)}"
        for i, storage in enumerate(graph.storages)
    ]


def cause_text(line: TransferTimeline, stall: Stall, names: list[str]) -> str:
    """Say in a clause what a stall waits for."""
    by = line.played.steps[stall.by] if stall.by >= 0 else None
    over = f" over {by.link}" if isinstance(by, Copy | Fetch) else ""
    what = names[stall.storage] if stall.storage >= 0 else "workspace"
    match stall.cause:
        case "fetch":
            return f"waits for the fetch of {what}{over}"
        case "copy":
            return f"waits for the copy of {what}{over}, before it is written"
        case "room":
            place = "the device" if stall.place == DEVICE else stall.place
            moves = f"its transfer{over} ends" if over else "the op before ends"
            return f"waits for room on {place}: {what} leaves when {moves}"
        case "serial":
            return f"waits for a synchronous transfer{over}"


def _lanes(line: TransferTimeline, rows: list[int]) -> Iterator[Lane]:
    """The device's lane, those of the engines, and the stalls: each interval with its row of the table of steps."""
    played, names, group = line.played, storage_texts(line.recorded), device_text(line.device)
    row = {step: number for number, step in enumerate(rows)}
    kinds = _kinds(line)
    for engine, label in _engines(line).items():
        own = [i for i in rows if played.engine[i] == engine]
        texts = tuple(_step_text(line, i, names) for i in own)
        starts, ends = (tuple([column[i] for i in own]) for column in (played.start_ns, played.end_ns))
        yield Lane(label, starts, ends, texts, tuple(kinds[i] for i in own), tuple(row[i] for i in own), group)
    starts = tuple(stall.start_ns for stall in played.stalls)
    ends = tuple(stall.end_ns for stall in played.stalls)
    causes = tuple(cause_text(line, stall, names) for stall in played.stalls)
    stalled = tuple(row[stall.step] for stall in played.stalls)
    yield Lane("stalls", starts, ends, causes, ("stall",) * len(starts), stalled, group)


def _kinds(line: TransferTimeline) -> list[str]:
    """The kind of each step: the phase of its op, ``recompute`` if that ran before; ``copy`` or ``fetch``."""
    kinds, ran = [], set[int]()
    for step in line.played.steps:
        if isinstance(step, Compute):
            kinds.append(RECOMPUTE if step.op in ran else phase_of(line.recorded.ops[step.op]))
            ran.add(step.op)
        else:
            kinds.append("fetch" if isinstance(step, Fetch) else "copy")
    return kinds


def _engines(line: TransferTimeline) -> dict[str, str]:
    """The label of each engine."""
    return {DEVICE: "compute", **{name: name for name in line.lanes[1:]}}


def _step_text(line: TransferTimeline, number: int, names: list[str]) -> str:
    step = line.played.steps[number]
    if isinstance(step, Compute):
        return line.recorded[step.op].name
    return f"{'fetch' if isinstance(step, Fetch) else 'copy'} {names[step.storage]}"


def _arrows(line: TransferTimeline) -> Iterator[Arrow]:
    """From each copy to every fetch of it, and to the first op that touches what was fetched."""
    played, names = line.played, storage_texts(line.recorded)
    lanes = {engine: number for number, engine in enumerate(_engines(line))}
    seen = [0] * len(lanes)
    copied: dict[tuple[int, str], tuple[int, int]] = {}
    fetched: dict[int, tuple[tuple[int, int], ...]] = {}
    for step, engine in zip(played.steps, played.engine, strict=True):
        if engine:
            here = (lanes[engine], seen[lanes[engine]])
            seen[lanes[engine]] += 1
        else:
            here = (0, 0)
        if isinstance(step, Copy):
            copied[step.storage, step.link] = here
        elif isinstance(step, Fetch):
            origin = copied.get((step.storage, step.link))
            fetched[step.storage] = (here,) if origin is None else (origin, here)
        elif isinstance(step, Evict):
            fetched.pop(step.storage, None)
        elif isinstance(step, Compute):
            for s in line.problem.ops[step.op].touches:
                if s in fetched:
                    yield Arrow(names[s], (*fetched.pop(s), here))


def _table(line: TransferTimeline, rows: list[int]) -> Table:
    """Return what the page and the trace say of each step."""
    played, graph, homes = line.played, line.recorded, storage_homes(line.recorded)
    steps = [played.steps[i] for i in rows]
    ops = [step.op if isinstance(step, Compute) else None for step in steps]
    storages = [None if isinstance(step, Compute) else step.storage for step in steps]
    modules = [homes[s] if s is not None else graph.ops[op or 0].module for op, s in zip(ops, storages, strict=True)]
    births = [op if s is None else graph.storages[s].birth for op, s in zip(ops, storages, strict=True)]
    lines = ["" if birth is None else source_place(graph, graph.ops[birth].source) for birth in births]
    names = storage_texts(graph)
    waited = _by_step((stall.step, cause_text(line, stall, names)) for stall in played.stalls)
    found = absences(line.problem, played)
    sizes = _returned(line, found)
    why = _by_step(chain(_kept_home(line, found, names), *(_reasons(line, one, names) for one in found)))
    columns = (
        Column("op", "", "count", tuple(ops), data=True),
        Column("storage", "", "count", tuple(storages), data=True),
        Column("module", "Module", "path", tuple(graph.module_path(module) for module in modules)),
        Column("line", "Line", "text", tuple(lines)),
        Column("bytes", "Bytes", "bytes", tuple(sizes.get(i) for i in rows)),
        Column("why", "Why", "text", tuple(why.get(i, "") for i in rows)),
        Column("issue", "", "ns", tuple(played.issue_ns[i] for i in rows), data=True),
        Column("waited", "Waited", "text", tuple(waited.get(i, "") for i in rows)),
    )
    return Table(key="steps", columns=columns, top=0, only="data")


def _by_step(pairs: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Join what is said of each step, of more than ``MOST_SAID`` clauses the first."""
    found: dict[int, list[str]] = {}
    for step, text in pairs:
        found.setdefault(step, []).append(text)
    return {
        step: "; ".join([*texts[:MOST_SAID], *([f"and {len(texts) - MOST_SAID} more"] if texts[MOST_SAID:] else [])])
        for step, texts in found.items()
    }


def _returned(line: TransferTimeline, found: Sequence[Absence]) -> dict[int, int]:
    """The bytes that each step moves, or brings back by recomputation."""
    sizes = {
        i: int(line.recorded.storages[step.storage].nbytes)
        for i, step in enumerate(line.played.steps)
        if isinstance(step, Copy | Fetch)
    }
    for one in found:
        for run in one.recomputed:
            sizes[run] = sizes.get(run, 0) + int(line.recorded.storages[one.storage].nbytes)
    return sizes


def _reasons(line: TransferTimeline, one: Absence, names: list[str]) -> Iterator[tuple[int, str]]:
    """Say of the steps that end an absence, or make it possible, what they are for."""
    used = line.played.steps[one.used] if one.used >= 0 else None
    then = f"; then {op_text(line.recorded, used.op)} uses it" if isinstance(used, Compute) else ""
    start, end = (format_seconds(ns / 1e9) for ns in (one.from_ns, one.to_ns))
    away = f"away from {start}" if one.released >= 0 else f"on {line.plan.home.get(one.storage, 'its tier')}, its home,"
    text = f"{names[one.storage]} is {away} to {end}{then}"
    for step in dict.fromkeys((one.copied, one.fetched, *one.recomputed)):
        if step >= 0:
            yield step, text


def _kept_home(line: TransferTimeline, found: Sequence[Absence], names: list[str]) -> Iterator[tuple[int, str]]:
    """Say of copies out for which no absence ends what they are for."""
    told = {one.copied for one in found}
    for i, step in enumerate(line.played.steps):
        if isinstance(step, Copy) and i not in told:
            home = ", its home between steps" if line.plan.home.get(step.storage) == step.link else ""
            yield i, f"writes {names[step.storage]} to {step.link}{home}"


def place_curve(line: TransferTimeline, place: str) -> Curve:
    """The bytes of a place over time, by role, with its capacity."""
    over = line.place(place)
    capacities: Mapping[str, int | None] = {
        DEVICE: line.budget_bytes,
        **{link.name: link.capacity_bytes for link in line.problem.links},
    }
    most = capacities[place]
    limits = () if most is None else (Limit(f"capacity {format_bytes(most)}", most),)
    edges = over.time_ns.tolist()
    runs = np.maximum(np.searchsorted(line.run_start_ns, over.time_ns, "right") - 1, 0)
    return Curve(
        key=f"place_{place}",
        title=f"Memory of {device_text(line.device) if place == DEVICE else place}",
        x=(*edges, max(line.makespan_ns, edges[-1] + 1)),
        x_unit="ns",
        ops=tuple(line.run_op[runs].tolist()) if len(line.run_op) else (),
        stack=role_series(over.by_role),
        limits=limits,
        table="ops",
        clock=CLOCK,
        only="page",
    )
