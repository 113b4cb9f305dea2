"""Blocks of what a plan changes in the program: what to recompute, what to move, by modules that differ by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tensortide.graph import Graph
from tensortide.replays import TransferTimeline
from tensortide.replays.absences import absences
from tensortide.reports.blocks import Column, Table
from tensortide.reports.names import numbered, pattern
from tensortide.reports.render.values import short
from tensortide.studies.planning.savings import Saving, savings
from tensortide.timelines.resident import storage_homes
from tensortide.units import format_bytes, format_seconds

__all__ = ["tables"]


def tables(line: TransferTimeline, durations_ns: Sequence[int], *, top: int) -> Iterator[Table]:
    """Show the ``top`` groups of what to recompute, and of what to move."""
    listed = savings(line.recorded, line.plan, durations_ns)
    again, moved = ([c for c in listed if bool(c.link) is wanted] for wanted in (False, True))
    if again and moved:
        top = -(-top // 2)
    if again:
        yield _recompute(line.recorded, again, top)
    if moved:
        yield _move(line, moved, top)


def _recompute(graph: Graph, again: Sequence[Saving], top: int) -> Table:
    groups = _groups(graph, again)
    groups.sort(key=lambda group: (-sum(c.nbytes for c in group), -sum(c.time_ns for c in group)))
    saved, times = ([sum(getattr(c, key) for c in group) for group in groups] for key in ("nbytes", "time_ns"))
    columns = (
        *_modules(graph, groups, "Recompute", class_at=100),
        Column("op", "Made by", "name", tuple(_makers(graph, group) for group in groups), at_width=120, fold=True),
        Column("ops", "Ops", "count", tuple(sum(c.recomputed for c in group) for group in groups), at_width=120),
        Column("size", "Saves", "bytes", tuple(saved)),
        Column("time", "Time added", "ns", tuple(times)),
    )
    rest = f"and {len(groups) - top} more: {format_bytes(sum(saved[top:]))}, {format_seconds(sum(times[top:]) / 1e9)}"
    return Table(key="recompute", columns=columns, top=top, rest=rest if len(groups) > top else "", heads=1)


def _move(line: TransferTimeline, moved: Sequence[Saving], top: int) -> Table:
    graph, waits = line.recorded, Counter[int]()
    groups = _groups(graph, moved)
    groups.sort(key=lambda group: -sum(c.nbytes for c in group))
    for stall in line.stalls:
        waits[stall.storage] += stall.end_ns - stall.start_ns
    away: dict[int, list[tuple[int, int]]] = {}
    for one in absences(line.problem, line.played):
        if one.fetched >= 0:
            away.setdefault(one.storage, []).append((one.from_ns, one.to_ns))
    spans = [[span for c in group for s in c.storages for span in away.get(s, ())] for group in groups]
    saved = [sum(c.nbytes for c in group) for group in groups]
    links = list(dict.fromkeys(group[0].link for group in groups))
    columns = (
        *_modules(graph, groups, f"Move to {', '.join(links)}", class_at=120),
        Column("op", "Made by", "name", tuple(_makers(graph, group) for group in groups), at_width=140, fold=True),
        Column("size", "Saves", "bytes", tuple(saved)),
        Column("link", "To", "text", tuple(group[0].link for group in groups), at_width=0 if links[1:] else 140),
        Column("out", "Away from", "ns", tuple(min((a for a, _ in some), default=None) for some in spans)),
        Column("back", "until", "ns", tuple(max((b for _, b in some), default=None) for some in spans)),
        Column(
            "waits",
            "Waits",
            "ns",
            tuple(sum(waits[s] for s in {s for c in group for s in c.storages}) for group in groups),
            zero="hidden",
        ),
    )
    rest = f"and {len(groups) - top} more: {format_bytes(sum(saved[top:]))}" if len(groups) > top else ""
    return Table(key="offload", columns=columns, top=top, rest=rest, heads=1)


def _groups(graph: Graph, listed: Iterable[Saving]) -> list[list[Saving]]:
    """Changes to tensors that modules make that differ only by number, or to those of one name that they have."""
    homes = storage_homes(graph)

    def key(change: Saving) -> tuple[str, str, str, str]:
        home = _home(graph, homes, change)
        name = "" if change.op >= 0 else pattern(_tensor(graph, change))
        kind = graph.modules[home].type if home >= 0 else ""
        return pattern(graph.module_path(home)), kind, name, change.link

    return [list(group) for _, group in groupby(sorted(listed, key=key), key)]


def _home(graph: Graph, homes: Sequence[int], change: Saving) -> int:
    return homes[change.storages[0]] if change.op < 0 else graph.ops[change.op].module


def _tensor(graph: Graph, change: Saving) -> str:
    """The name of what exists before the step, within its module."""
    storage = graph.storages[change.storages[0]]
    return storage.name.rpartition(".")[2] or storage.role.replace("_", " ")


def _makers(graph: Graph, group: Sequence[Saving]) -> str:
    """The ops that make the tensors."""
    names = (_tensor(graph, one) if one.op < 0 else short(graph[one.op].name) for one in group)
    return ", ".join(dict.fromkeys(names))


def _modules(graph: Graph, groups: Sequence[Sequence[Saving]], label: str, *, class_at: int) -> tuple[Column, ...]:
    """The columns that say where the tensors of each group are: how many modules, of how many of their kind."""
    homes = storage_homes(graph)
    at = [[_home(graph, homes, c) for c in group] for group in groups]
    paths = [list(dict.fromkeys(graph.module_path(module) for module in some)) for some in at]
    every = Counter((pattern(module.path), module.type) for module in graph.modules)
    types = [{graph.modules[module].type for module in some if module >= 0} for some in at]
    several = []
    for group, some, kinds in zip(groups, paths, types, strict=True):
        name = f" {_tensor(graph, group[0])}" if group[0].op < 0 else ""
        several.append(name + _several(len(some), sum(every[pattern(some[0]), kind] for kind in kinds)))
    return (
        Column("module", label, "path", tuple(numbered(some) for some in paths), fold=True, after=tuple(several)),
        Column(
            "class", "Class", "name", tuple(", ".join(sorted(names)) for names in types), at_width=class_at, fold=True
        ),
    )


def _several(count: int, every: int) -> str:
    if every <= 1:
        return ""
    return f" x{count}" if count >= every else f" x{count} of {every}"
