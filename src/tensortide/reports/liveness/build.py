"""From durations of ops to what is shown of liveness."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tensortide.graph.roles import looks
from tensortide.reports.liveness import words
from tensortide.reports.liveness.records import (
    LifeBar,
    LivenessCurves,
    LivenessView,
    OffloadRow,
    Peak,
    Points,
    RecomputeRow,
    RoleTime,
)
from tensortide.reports.liveness.study import LivenessStudy, Names
from tensortide.reports.modules import pattern, shared
from tensortide.reports.simulation.tables import place
from tensortide.reports.simulation.words import short
from tensortide.timelines import idleness, offloads, recomputations, timeline
from tensortide.timelines.idle import life_start, life_stop, used
from tensortide.timing import LINKS, Link

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.timelines import Idleness, MemoryTime, Offload, Recompute
    from tensortide.timelines.liveness import Mode

__all__ = ["study"]

STRETCHES, POINTS, QUANTILES, BARS, ROWS = 480, 2000, 200, 40, 40
"""Most entries of curves, points, quantiles, lives and of each list of advice."""
LEAST_SHARE = 1e-3
"""Share of the peak below which storages alike, together, are not worth a row of advice."""
LIMITS_NS = (10**4, 10**5, 10**6, 10**7, 10**8, 10**9, 10**10)

T = TypeVar("T", "Offload", "Recompute")


def study(
    graph: Graph,
    durations_ns: Sequence[int],
    *,
    durations: str = "",
    link: Link = LINKS["pcie4"],
    mode: Mode = "storage",
    device: str | None = None,
) -> LivenessStudy:
    """How long the memory of ``graph`` lies idle, to be shown. ``durations`` says how ``durations_ns`` are known.

    Raises GraphError as ``tensortide.memory.idleness`` does.
    """
    idle = idleness(graph, durations_ns, mode=mode, device=device)
    names = Names(idle)
    return LivenessStudy(idle, link, _view(idle, link, names, durations), names)


def _view(idle: Idleness, link: Link, names: Names, durations: str) -> LivenessView:
    graph, meta = idle.graph, idle.graph.meta
    links = [idle.hideable(item) for item in {**LINKS, link.name: link}.values()]
    most = int(idle.active.argmax()) if len(graph) else -1
    peak = _peak(idle, link)
    shares = idle.active / max(1, peak.live_bytes)
    resident = timeline(graph, device=idle.device) if idle.mode == "storage" else None
    view = LivenessView(
        workload=meta.workload,
        hyperparameters=meta.hyperparameters,
        framework=meta.framework,
        ops=len(graph),
        mode=idle.mode,
        device=idle.device,
        durations=durations,
        assumptions=meta.assumptions,
        step_ns=idle.step_ns,
        storages=len(idle.lives),
        persistent=sum(life.persistent for life in idle.lives),
        footprint_bytes=sum(life.nbytes for life in idle.lives),
        peak=peak,
        active_peak_bytes=int(idle.active[most]) if len(graph) else 0,
        active_peak_at=place(graph, most) if len(graph) else None,
        active_share_mean=float(shares.mean()) if len(graph) else 0.0,
        active_share_median=_median(shares.tolist()),
        resident_peak_bytes=None if resident is None else resident.peak_bytes,
        resident_byte_ns=None
        if resident is None
        else sum(n * ns for n, ns in zip(resident.resident.tolist(), idle.durations_ns, strict=True)),
        total=_role_time("all", idle.total),
        roles=tuple(_role_time(role, idle.by_role[role]) for role in _ordered(idle.by_role)),
        periods=links[0].periods,
        longer_than=tuple(idle.longer_than(LIMITS_NS).items()),
        link=link.name,
        links=tuple(links),
        verdict="",
        advice=(),
        offload=_offload_rows(offloads(idle, link), names, link, peak.live_bytes),
        recompute=_recompute_rows(recomputations(idle), names, graph, peak.live_bytes),
        quantile_ns=_quantiles([span.ns for span in idle.spans()]),
        curves=_curves(idle),
        points=_points(idle, names),
        lives=_bars(idle, names),
    )
    return msgspec.structs.replace(view, verdict=words.verdict(view), advice=tuple(words.advice(view)))


def _ordered(roles: Iterable[str]) -> list[str]:
    """``roles`` as they are stacked in a chart."""
    known = set(roles)
    return [role for role in looks() if role in known]


def _role_time(role: str, spent: MemoryTime) -> RoleTime:
    return RoleTime(role=role, **msgspec.structs.asdict(spent))


def _peak(idle: Idleness, link: Link) -> Peak:
    if not len(idle.graph):
        return Peak(at=None, live_bytes=0, active_bytes=0, idle_bytes=0, hideable_bytes=0)
    split = idle.split(idle.peak_op, link)
    return Peak(
        at=place(idle.graph, split.op),
        live_bytes=split.live_bytes,
        active_bytes=split.active_bytes,
        idle_bytes=split.idle_bytes,
        hideable_bytes=split.hideable_bytes,
    )


def _median(values: list[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


# -- advice -----------------------------------------------------------------------------------------


def _alike(rows: Sequence[T], names: Names) -> list[list[T]]:
    """``rows`` of storages alike together: of one size and role, made by one line in modules that differ by number."""
    groups: defaultdict[Hashable, list[T]] = defaultdict(list)
    for row in rows:
        stored = names(row.index)
        key = (stored.role, row.nbytes, pattern(stored.name), pattern(stored.module), stored.op_name, stored.source)
        groups[key].append(row)
    return list(groups.values())


def _offload_rows(rows: Sequence[Offload], names: Names, link: Link, peak_bytes: int) -> tuple[OffloadRow, ...]:
    """List the moves of storages of ``Link.least_bytes`` or more, in groups of ``LEAST_SHARE`` of the peak or more."""
    worth = [row for row in rows if row.nbytes >= link.least_bytes]
    found = [
        OffloadRow(
            first=names(group[0].index),
            modules=shared([names(row.index).module for row in group]),
            indexes=tuple(row.index for row in group),
            nbytes=sum(row.nbytes for row in group),
            peak_bytes=sum(row.nbytes for row in group if row.at_peak),
            periods=sum(row.periods for row in group),
            idle_ns=sum(row.idle_ns for row in group),
            hideable_ns=sum(row.hideable_ns for row in group),
            hideable_byte_ns=sum(row.byte_ns for row in group),
            transfer_ns=sum(row.transfer_ns * row.periods for row in group),
        )
        for group in _alike(worth, names)
        if _worth_a_row(group, peak_bytes)
    ]
    return tuple(sorted(found, key=lambda row: -row.hideable_byte_ns)[:ROWS])


def _worth_a_row(group: Sequence[Offload] | Sequence[Recompute], peak_bytes: int) -> bool:
    return sum(row.nbytes for row in group) >= LEAST_SHARE * peak_bytes


def _recompute_rows(rows: Sequence[Recompute], names: Names, graph: Graph, peak_bytes: int) -> tuple[RecomputeRow, ...]:
    found = [
        RecomputeRow(
            first=names(group[0].index),
            modules=shared([names(row.index).module for row in group]),
            indexes=tuple(row.index for row in group),
            nbytes=sum(row.nbytes for row in group),
            peak_bytes=sum(row.nbytes for row in group if row.at_peak),
            idle_ns=sum(row.idle_ns for row in group),
            idle_byte_ns=sum(row.byte_ns for row in group),
            cost_ns=sum(row.cost_ns for row in group),
            ops=tuple(short(graph[op].name) for op in group[0].ops),
            random=tuple(short(graph[op].name) for op in group[0].random),
        )
        for group in _alike(rows, names)
        if _worth_a_row(group, peak_bytes)
    ]
    return tuple(sorted(found, key=lambda row: -row.idle_byte_ns / max(1, row.cost_ns))[:ROWS])


# -- pictures ---------------------------------------------------------------------------------------


def _quantiles(lengths: list[int]) -> tuple[int, ...]:
    """The shortest, the longest, and those at equal shares between."""
    ordered = sorted(lengths)
    if len(ordered) <= QUANTILES:
        return tuple(ordered)
    return tuple(ordered[(len(ordered) - 1) * i // QUANTILES] for i in range(QUANTILES + 1))


def _curves(idle: Idleness) -> LivenessCurves:
    count = len(idle.graph)
    edges = [count * i // STRETCHES for i in range(STRETCHES + 1)] if count > STRETCHES else list(range(count + 1))
    op = [a + int(idle.live[a:b].argmax()) for a, b in pairwise(edges)]
    split = {role: idle.live_by_role[role] for role in _ordered(idle.live_by_role)}
    return LivenessCurves(
        start_ns=tuple(idle.clock_ns[a] for a in edges[:-1]),
        op=tuple(op),
        live_bytes=tuple(idle.live[op].tolist()),
        active_bytes=tuple(int(idle.active[a:b].max()) for a, b in pairwise(edges)),
        live_by_role={role: tuple(series[op].tolist()) for role, series in split.items()},
    )


def _points(idle: Idleness, names: Names) -> Points:
    """The periods, at most ``POINTS``: a quarter by memory-time, the others an even sample by length."""
    spans = sorted(idle.spans(), key=lambda span: -span.nbytes * span.ns)
    if len(spans) > POINTS:
        first, rest = spans[: POINTS // 4], sorted(spans[POINTS // 4 :], key=lambda span: span.ns)
        room = POINTS - len(first)
        spans = first + [rest[len(rest) * i // room] for i in range(room)]

    def column(get: Callable[[int], int]) -> tuple[int, ...]:
        return tuple(map(get, range(len(spans))))

    return Points(
        index=column(lambda i: spans[i].index),
        storage=column(lambda i: names.storage(spans[i].index)),
        nbytes=column(lambda i: spans[i].nbytes),
        ns=column(lambda i: spans[i].ns),
        start=column(lambda i: spans[i].period.start),
        end=column(lambda i: spans[i].period.end),
    )


def _bars(idle: Idleness, names: Names) -> tuple[LifeBar, ...]:
    """The lives of the storages with most bytes times idle time, in the order of their births."""
    times = {life.index: idle.memory_time(life) for life in idle.lives if life.uses}
    most = sorted((life for life in idle.lives if life.uses), key=lambda life: -times[life.index].inactive_byte_ns)
    shown = sorted(most[:BARS], key=lambda life: (life_start(life), life.index))
    clock, count = idle.clock_ns, len(idle.graph)
    return tuple(
        LifeBar(
            stored=names(life.index),
            birth_ns=clock[life_start(life)],
            death_ns=clock[life_stop(life, count)],
            idle_ns=times[life.index].inactive_byte_ns // max(1, life.nbytes),
            used_ns=_seen(list(_stretches(used(life), clock)), idle.step_ns),
        )
        for life in shown
    )


def _seen(stretches: list[tuple[int, int]], step_ns: int) -> tuple[tuple[int, int], ...]:
    """``stretches`` as they are; of more than ``STRETCHES`` those are joined between which no gap would be seen."""
    if len(stretches) <= STRETCHES:
        return tuple(stretches)
    joined = [stretches[0]]
    for start, end in stretches[1:]:
        if (start - joined[-1][1]) * STRETCHES < step_ns:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)


def _stretches(uses: Sequence[int], clock: Sequence[int]) -> Iterable[tuple[int, int]]:
    """When it is in use: ops one after the other make one stretch."""
    start = 0
    for i, op in enumerate(uses):
        if i + 1 == len(uses) or uses[i + 1] != op + 1:
            yield clock[uses[start]], clock[op + 1]
            start = i + 1
