"""What was computed again, what made room, and where a run was given up: as rows to show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from pathlib import PurePath
from typing import TYPE_CHECKING

from tensortide.reports.modules import pattern, shared
from tensortide.reports.simulation.records import Evicted, HeldBytes, Place, Recomputed, Stopped

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.telemetry import Stop
    from tensortide.reports.simulation.run import Run


def by_module(run: Run) -> tuple[Recomputed, ...]:
    """What was computed again by module, most time first; modules that differ only by number together."""
    graph = run.graph
    paths = [graph.module_path(op.module) for op in graph.ops]
    return _grouped(run, lambda op: pattern(paths[op]), lambda ops: shared(sorted({paths[op] for op in ops})))


def by_kind(run: Run) -> tuple[Recomputed, ...]:
    """What was computed again by kind of op, most time first."""
    calls, ops = run.graph.calls, run.graph.ops
    return _grouped(run, lambda op: calls[ops[op].call].op, lambda members: calls[ops[members[0]].call].op)


def _grouped(run: Run, key: Callable[[int], Hashable], name: Callable[[list[int]], str]) -> tuple[Recomputed, ...]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for op, again in zip(run.curves.op, run.curves.again, strict=True):
        if again:
            groups[key(op)].append(op)
    sums = {group: sum(run.durations_ns[op] for op in members) for group, members in groups.items()}
    whole = sum(sums.values())
    rows = [
        Recomputed(
            name=name(members),
            count=len(members),
            ops=len(set(members)),
            ns=sums[group],
            share=sums[group] / whole if whole else 0.0,
        )
        for group, members in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.ns, -row.count)))


def evicted(run: Run) -> tuple[Evicted, ...]:
    """What made room or came back, most bytes made room for first; storages alike together."""
    graph = run.graph
    groups: defaultdict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for storage in run.evicted:
        name, path = _origin(graph, storage)
        record = graph.storages[storage]
        groups[record.role, record.nbytes, pattern(name), pattern(path)].append(storage)
    rows = [_evicted(run, members) for members in groups.values()]
    return tuple(sorted(rows, key=lambda row: (-row.forced * row.nbytes, -row.remats * row.nbytes)))


def _evicted(run: Run, members: list[int]) -> Evicted:
    names, paths = zip(*(_origin(run.graph, storage) for storage in members), strict=True)
    record = run.graph.storages[members[0]]
    return Evicted(
        name=shared(names),
        module=shared(paths),
        role=record.role.value,
        nbytes=record.nbytes,
        storages=len(members),
        forced=sum(run.evicted[storage][0] for storage in members),
        remats=sum(run.evicted[storage][1] for storage in members),
    )


def _origin(graph: Graph, storage: int) -> tuple[str, str]:
    """Name of ``storage`` or else of the op that allocates it, and the module of that op."""
    record = graph.storages[storage]
    if record.birth is None:
        return record.name, ""
    op = graph[record.birth]
    of_log = not op.module or op.module == "(outside)"
    return (op.name if of_log or not record.name else record.name), op.module


def place(graph: Graph, op: int) -> Place:
    """Op ``op`` of ``graph``, for a reader; -1 is what exists before the step."""
    if op < 0:
        return Place(op=op, name="what exists before the step", module="", source="")
    view = graph[op]
    source = f"{PurePath(view.source.file).name}:{view.source.line}" if view.source else ""
    return Place(op=op, name=view.name, module=view.module, source=source)


def stopped(schedule: Schedule, stop: Stop) -> Stopped:
    """Where a run was given up, and by role what could not be evicted."""
    graph, origin = schedule.graph, schedule.origin.tolist()
    roles: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
    for held in stop.held:
        if held.nbytes:
            record = graph.storages[int(schedule.storage_origin[held.storage])]
            roles[record.role.value].append((held.nbytes, held.pinned))
    rows = [
        HeldBytes(
            role=role,
            storages=len(members),
            pinned_bytes=sum(nbytes for nbytes, pinned in members if pinned),
            locked_bytes=sum(nbytes for nbytes, pinned in members if not pinned),
        )
        for role, members in roles.items()
    ]
    rows.sort(key=lambda row: -row.pinned_bytes - row.locked_bytes)
    return Stopped(
        at=place(graph, origin[stop.op]),
        goal=place(graph, origin[stop.goal]),
        waiting=len(stop.waiting),
        asked_bytes=stop.asked_bytes,
        held=tuple(rows),
    )
