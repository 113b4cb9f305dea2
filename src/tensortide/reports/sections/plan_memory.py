"""Blocks of a plan's memory: resident bytes over time without and with it, and what is resident at both peaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from tensortide.graph import Graph
from tensortide.graph.module_paths import as_one, pattern
from tensortide.plans.under_budget.idle import Least
from tensortide.replays import TransferTimeline
from tensortide.reports.blocks import Table
from tensortide.reports.names import device_text, op_text, source_place
from tensortide.reports.of_records import column, table
from tensortide.reports.pictures import Curve, Limit, Mark, Series, Stretch
from tensortide.reports.render.values import short
from tensortide.reports.sections.transfers import over_time, place_curve
from tensortide.shown import Show
from tensortide.timelines import StorageTimeline
from tensortide.timelines.resident import widest_tensors
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

PICTURES = ("without", "memory", "place_host", "place_ssd")
"""Keys of the curves in the order in which a figure has them."""
LARGE = 0.05
"""Share of the peak from which on a tensor is named by itself."""
MOST = 8
"""Rows of what is resident that text shows."""
SMALL = 0.01
"""Share of the peak below which text leaves out what is resident."""


def curves(with_plan: TransferTimeline, without: StorageTimeline, budget_bytes: int) -> Iterator[Curve]:
    """Draw the bytes resident over time with the plan and without it, and those of every tier that it uses."""
    if not with_plan.makespan_ns:
        return
    limit = Limit(f"budget, {format_bytes(budget_bytes)}", budget_bytes)
    waits = [(stall.start_ns, stall.end_ns) for stall in with_plan.played.stalls if stall.end_ns > stall.start_ns]
    marks = [*chain(*waits), *without.run_start_ns.tolist(), without.makespan_ns, with_plan.makespan_ns]
    edges = _edges(with_plan, marks)
    # after the end of the step without the plan, the bytes that it leaves behind
    level = np.where(edges[:-1] < without.makespan_ns, without.resident[_at(without, edges[:-1])], without.end_bytes)
    outline = Series("without", "without the plan", tuple(level.tolist()))
    ends = np.searchsorted(edges, waits).tolist() if waits else []
    shades = tuple(Stretch("waits for transfers", *both) for both in ends)
    yield _curve("memory", "with", with_plan, edges, limit, variant="With the plan", lines=(outline,), shades=shades)
    yield _curve("without", "without", without, _edges(without, [without.makespan_ns]), limit, variant="Without it")
    for link in with_plan.problem.links:
        if with_plan.played.tier_peak_bytes[link.name]:
            yield place_curve(with_plan, link.name)


def _curve(key: str, way: str, line: StorageTimeline, edges: Ints, limit: Limit, **more: Any) -> Curve:
    """Draw the bytes of each role ``way`` the plan, and the peak."""
    runs, title = _at(line, edges[:-1]), f"Memory of {device_text(line.device)} {way} the plan"
    peak = int(np.searchsorted(edges, line.run_start_ns[line.peak_op], "right")) - 1
    marks = (Mark(peak, f"peak, {format_bytes(line.peak_bytes)}"),)
    by_role = {role: series[runs] for role, series in line.by_role.items()}
    x, ops = tuple(edges.tolist()), tuple(line.run_op[runs].tolist())
    return over_time(key, title, x, ops, by_role, (limit,), marks=marks, **more)


def _edges(line: StorageTimeline, more: Sequence[int]) -> Ints:
    """The times at which something changes, each once."""
    edges: Ints = np.unique(np.append(line.run_start_ns, [0, *more]))
    return edges


def _at(line: StorageTimeline, times: Ints) -> Ints:
    """The op run of each time, or the last before; of those that start at one time that with most bytes."""
    starts, order = np.unique(line.run_start_ns, return_index=True)
    ends = np.append(order[1:], len(line.run_start_ns))
    most = np.array([a + int(line.resident[a:b].argmax()) for a, b in zip(order, ends, strict=True)], np.int64)
    found: Ints = most[np.maximum(np.searchsorted(starts, times, "right") - 1, 0)]
    return found


class _Kind(msgspec.Struct, frozen=True):
    """Storages that a reader takes for one, at two moments: large tensors whose names differ by number, with the line
    that makes them; the rest of a role together. ``count``: of how many storages."""

    what: Annotated[str, Show(fold=True, times="count")]
    count: int
    shape: Annotated[str, Show("Type and shape", "code", dim=True)]
    line: Annotated[str, Show("Line", dim=True, if_any=True)]
    without_bytes: Annotated[int, Show("without plan", zero="-")]
    with_bytes: Annotated[int, Show("with plan", zero="-")]


def peaks(with_plan: StorageTimeline, without: StorageTimeline) -> Table:
    """Compare what is resident at the peak without and with the plan, the largest first."""
    lines = (without, with_plan)
    moments = [
        ([(one.storage, one.nbytes) for one in line.alive()], int(line.workspace[line.peak_op]))
        for line in lines
        if len(line.graph)
    ]
    rows = _kinds(without.recorded, moments, LARGE * without.peak_bytes)
    top = min(MOST, sum(max(one.without_bytes, one.with_bytes) >= SMALL * without.peak_bytes for one in rows))
    left = [sum(getattr(one, key) for one in rows[top:]) for key in ("without_bytes", "with_bytes")]
    at = [op_text(line.recorded, int(line.run_op[line.peak_op]) if len(line.graph) else -1) for line in lines]
    every = [_Kind("all", 1, "", "", without.peak_bytes, with_plan.peak_bytes), *rows]
    return table(
        _Kind,
        every,
        column(_Kind, every, "what", label="At the peak"),
        *("shape", "line", "without_bytes", "with_bytes"),
        key="peaks",
        top=top + 1,
        rest=f"and {len(rows) - top} more: {' and '.join(map(format_bytes, left))}",
        note=f"Both at {at[0]}." if at[0] == at[1] else f"Without the plan at {at[0]}; with it at {at[1]}.",
    )


def needed(graph: Graph, least: Least) -> Table:
    """Return what every plan of the class has resident at the op that needs most, the largest first."""
    storages = [(storage, int(graph.storages[storage].nbytes)) for storage in least.residents]
    rows = _kinds(graph, [(storages, least.workspace_bytes)], LARGE * least.nbytes)
    what = column(_Kind, rows, "what", label="Resident at that op")
    sizes = column(_Kind, rows, "without_bytes as size_bytes", label="Bytes", zero=None)
    return table(_Kind, rows, what, "shape", "line", sizes, key="needed", top=MOST)


def _kinds(graph: Graph, moments: Sequence[tuple[Iterable[tuple[int, int]], int]], large: float) -> list[_Kind]:
    """The kinds of what is resident at one moment or two, that with most bytes first. A moment has storages with their
    bytes, and the workspace beside them; a storage is a kind by itself from ``large`` bytes on."""
    shapes = widest_tensors(graph)
    found: dict[tuple[str, str, str], tuple[list[tuple[str, int]], ...]] = {}
    for number, (storages, work) in enumerate(moments):
        for storage, nbytes in storages:
            stored, birth = graph.storages[storage], graph.storages[storage].birth
            name = stored.name or (_plural(stored.role) if birth is None else f"output of {short(graph[birth].name)}")
            kind = (_plural(stored.role), "", "")
            if nbytes >= large:
                line = "" if birth is None else source_place(graph, graph.ops[birth].source)
                kind = (pattern(name), shapes.get(storage, ""), line)
            found.setdefault(kind, ([], []))[number].append((name, nbytes))
        if work:
            found.setdefault(("workspace of the kernel", "", ""), ([], []))[number].append(("", work))
    rows = []
    for (what, shape, line), both in found.items():
        count, names = max(map(len, both)), list(dict.fromkeys(name for name, _ in chain(*both)))
        sums = [sum(nbytes for _, nbytes in each) for each in both]
        rows.append(_Kind(as_one(names) if shape else what, count, shape, line, *sums))
    return sorted(rows, key=lambda row: -max(row.without_bytes, row.with_bytes))


def _plural(role: str) -> str:
    """A role in the plural."""
    named = role.replace("_", " ")
    return named if named.endswith("state") else f"{named[:-1]}ies" if named.endswith("y") else f"{named}s"
