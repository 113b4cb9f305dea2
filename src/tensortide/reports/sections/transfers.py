"""Section ``transfers``: a plan that moves storages as it is played, for traces and pictures: ops, copy engines, stalls
with their causes, and the bytes of every place over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensortide.graph.model import Graph
from tensortide.plans import Compute, Copy, Evict, Fetch
from tensortide.plans.events import Stall
from tensortide.plans.instance import DEVICE
from tensortide.replays import TransferTimeline
from tensortide.reports.blocks import Column, Section, Table
from tensortide.reports.names import device_text, role_series, source_place, widest_tensors
from tensortide.reports.pictures import Arrow, Curve, Lane, Limit, Spans
from tensortide.timelines.resident import storage_homes
from tensortide.units import format_bytes

__all__ = ["cause_text", "section", "storage_texts"]


def section(line: TransferTimeline) -> Section:
    """Make the section: lanes with a table of their steps, and a curve of each place."""
    rows = [i for i, engine in enumerate(line.played.engine) if engine]
    spans = Spans(
        key="lanes", x_unit="ns", lanes=tuple(_lanes(line, rows)), arrows=tuple(_arrows(line)), table="steps", top=0
    )
    curves = (_curve(line, name) for name in line.played.before_bytes)
    return Section("transfers", "As played", blocks=(spans, _table(line, rows), *curves))


def storage_texts(graph: Graph) -> list[str]:
    """Name every storage for a reader: as the model does, or by its tensor and the op that makes it."""
    widest = widest_tensors(graph)
    return [
        storage.name
        or f"{widest.get(i, 'bytes')} of {'before' if storage.birth is None else graph[storage.birth].name}"
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
    for engine, label in _engines(line).items():
        own = [i for i in rows if played.engine[i] == engine]
        texts = tuple(_step_text(line, i, names) for i in own)
        starts, ends = (tuple([column[i] for i in own]) for column in (played.start_ns, played.end_ns))
        yield Lane(label, starts, ends, texts, rows=tuple(row[i] for i in own), group=group)
    starts = tuple(stall.start_ns for stall in played.stalls)
    ends = tuple(stall.end_ns for stall in played.stalls)
    causes = tuple(cause_text(line, stall, names) for stall in played.stalls)
    yield Lane("stalls", starts, ends, causes, rows=tuple(row[stall.step] for stall in played.stalls), group=group)


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
    """What the trace says of each step."""
    played, graph, homes = line.played, line.recorded, storage_homes(line.recorded)
    steps = [played.steps[i] for i in rows]
    ops = [step.op if isinstance(step, Compute) else None for step in steps]
    storages = [None if isinstance(step, Compute) else step.storage for step in steps]
    modules = [homes[s] if s is not None else graph.ops[op or 0].module for op, s in zip(ops, storages, strict=True)]
    births = [op if s is None else graph.storages[s].birth for op, s in zip(ops, storages, strict=True)]
    lines = ["" if birth is None else source_place(graph, graph.ops[birth].source) for birth in births]
    sizes = [None if s is None else int(graph.storages[s].nbytes) for s in storages]
    why: dict[int, list[str]] = {}
    names = storage_texts(graph)
    for stall in played.stalls:
        why.setdefault(stall.step, []).append(cause_text(line, stall, names))
    columns = (
        Column("op", "", "count", tuple(ops)),
        Column("storage", "", "count", tuple(storages)),
        Column("bytes", "", "bytes", tuple(sizes)),
        Column("module", "", "path", tuple(graph.module_path(module) for module in modules)),
        Column("line", "", "text", tuple(lines)),
        Column("issue", "", "ns", tuple(played.issue_ns[i] for i in rows)),
        Column("waited", "", "text", tuple("; ".join(why.get(i, ())) for i in rows)),
    )
    return Table(key="steps", columns=columns, only="page")


def _curve(line: TransferTimeline, place: str) -> Curve:
    """The bytes of a place over time, by role, with its capacity."""
    over = line.place(place)
    title = f"{device_text(line.device) if place == DEVICE else place}, resident"
    capacities: Mapping[str, int | None] = {
        DEVICE: line.budget_bytes,
        **{link.name: link.capacity_bytes for link in line.problem.links},
    }
    most = capacities[place]
    limits = () if most is None else (Limit(f"capacity {format_bytes(most)}", most),)
    edges = over.time_ns.tolist()
    end = max(line.makespan_ns, edges[-1] + 1)
    key = f"place_{'device' if place == DEVICE else place}"
    return Curve(key=key, title=title, x=(*edges, end), x_unit="ns", stack=role_series(over.by_role), limits=limits)
