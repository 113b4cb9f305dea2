"""Blocks of a plan's memory: resident bytes over time without and with it, and what is resident at both peaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensortide.graph import Graph
from tensortide.plans.under_budget.idle import Least
from tensortide.replays import TransferTimeline
from tensortide.reports.blocks import Column, Table
from tensortide.reports.names import device_text, numbered, op_text, pattern, role_series, source_place, widest_tensors
from tensortide.reports.pictures import Curve, Limit, Mark, Series, Stretch
from tensortide.reports.render.values import short
from tensortide.reports.sections.transfers import CLOCK, place_curve
from tensortide.timelines import StorageTimeline
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

__all__ = ["PICTURES", "curves", "peaks"]

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
    device = device_text(with_plan.device)
    limits = (Limit(f"budget, {format_bytes(budget_bytes)}", budget_bytes),)
    stalls = with_plan.played.stalls
    marks = [ns for stall in stalls for ns in (stall.start_ns, stall.end_ns)]
    edges = _edges(with_plan, [*marks, *without.run_start_ns.tolist(), without.makespan_ns, with_plan.makespan_ns])
    yield Curve(
        key="memory",
        title=f"Memory of {device} with the plan",
        variant="With the plan",
        x=tuple(edges.tolist()),
        x_unit="ns",
        ops=tuple(with_plan.run_op[_at(with_plan, edges[:-1])].tolist()),
        stack=role_series(_sampled(with_plan, edges)),
        lines=(_outline(without, edges),),
        limits=limits,
        marks=(_peak(with_plan, edges),),
        shades=tuple(_shades(with_plan, edges)),
        table="ops",
        clock=CLOCK,
        only="page",
    )
    edges = _edges(without, [without.makespan_ns])
    yield Curve(
        key="without",
        title=f"Memory of {device} without the plan",
        variant="Without it",
        x=tuple(edges.tolist()),
        x_unit="ns",
        ops=tuple(without.run_op[_at(without, edges[:-1])].tolist()),
        stack=role_series(_sampled(without, edges)),
        limits=limits,
        marks=(_peak(without, edges),),
        table="ops",
        clock=CLOCK,
        only="page",
    )
    for link in with_plan.problem.links:
        if with_plan.played.tier_peak_bytes[link.name]:
            yield place_curve(with_plan, link.name)


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


def _sampled(line: StorageTimeline, edges: Ints) -> Mapping[str, Ints]:
    runs = _at(line, edges[:-1])
    return {role: series[runs] for role, series in line.by_role.items()}


def _outline(without: StorageTimeline, edges: Ints) -> Series:
    """The bytes without the plan; after the end of that step, those that it leaves behind."""
    level = without.resident[_at(without, edges[:-1])]
    level = np.where(edges[:-1] < without.makespan_ns, level, without.at_end)
    return Series("without", "without the plan", tuple(level.tolist()))


def _peak(line: StorageTimeline, edges: Ints) -> Mark:
    at = int(np.searchsorted(edges, line.run_start_ns[line.peak_op], "right")) - 1
    return Mark(at, f"peak, {format_bytes(line.peak_bytes)}")


def _shades(line: TransferTimeline, edges: Ints) -> Iterator[Stretch]:
    """The stretches in which ops wait."""
    for stall in line.played.stalls:
        if stall.end_ns > stall.start_ns:
            start, end = np.searchsorted(edges, [stall.start_ns, stall.end_ns]).tolist()
            yield Stretch("waits for transfers", start, end)


# -- what is resident at the peaks ----------------------------------------------------------------------


class _Kind(NamedTuple):
    """Things that a reader takes for one: large tensors whose names differ by number, with the line that makes them;
    the rest of a role together."""

    name: str
    shape: str = ""
    line: str = ""


class _Held:
    """Bytes of each kind in several columns, and the names of what they are of."""

    def __init__(self, graph: Graph, columns: int) -> None:
        self.graph, self.columns, self.shapes = graph, columns, widest_tensors(graph)
        self.nbytes: dict[_Kind, list[int]] = {}
        self.names: dict[_Kind, list[list[str]]] = {}

    def add(self, column: int, storage: int, nbytes: int, large: float) -> None:
        """Add a storage, which is a kind by itself from ``large`` bytes on."""
        stored = self.graph.storages[storage]
        born = None if stored.birth is None else self.graph[stored.birth]
        name = stored.name or (words(stored.role) if born is None else f"output of {short(born.name)}")
        kind = _Kind(words(stored.role))
        if nbytes >= large:
            line = "" if stored.birth is None else source_place(self.graph, self.graph.ops[stored.birth].source)
            kind = _Kind(pattern(name), self.shapes.get(storage, ""), line)
        self._put(kind, column, nbytes, name)

    def work(self, column: int, nbytes: int) -> None:
        """Add workspace."""
        if nbytes:
            self._put(_Kind("workspace of the kernel"), column, nbytes, "")

    def _put(self, kind: _Kind, column: int, nbytes: int, name: str) -> None:
        self.nbytes.setdefault(kind, [0] * self.columns)[column] += nbytes
        self.names.setdefault(kind, [[] for _ in range(self.columns)])[column].append(name)

    @property
    def kinds(self) -> list[_Kind]:
        """The kinds, that with most bytes in any column first."""
        return sorted(self.nbytes, key=lambda kind: -max(self.nbytes[kind]))

    def naming(self, label: str) -> tuple[Column, ...]:
        """Columns that say what the kinds are, after a first row for all of them if there are several columns."""
        first = ("all",) if self.columns > 1 else ()
        blank = ("",) * len(first)
        most = [max(map(len, self.names[kind])) for kind in self.kinds]
        every = ((kind, list(dict.fromkeys(chain.from_iterable(self.names[kind])))) for kind in self.kinds)
        names = (numbered(found) if kind.shape else kind.name for kind, found in every)
        several = (f" x{count}" if count > 1 else "" for count in most)
        lines = tuple(kind.line for kind in self.kinds)
        return (
            Column("what", label, "text", (*first, *names), fold=True, after=(*blank, *several)),
            Column("shape", "Type and shape", "code", (*blank, *(kind.shape for kind in self.kinds)), dim=True),
            Column("line", "Line", "text", (*blank, *lines), dim=True, data=not any(lines)),
        )


def peaks(with_plan: StorageTimeline, without: StorageTimeline) -> Table:
    """Compare what is resident at the peak without and with the plan, the largest first."""
    lines = (without, with_plan)
    held = _Held(without.recorded, len(lines))
    for number, line in enumerate(lines):
        for one in line.alive() if len(line.graph) else ():
            held.add(number, one.storage, one.nbytes, LARGE * without.peak_bytes)
        held.work(number, int(line.workspace[line.peak_op]) if len(line.graph) else 0)
    rows = held.kinds
    sizes = [tuple(held.nbytes[kind][number] for kind in rows) for number in (0, 1)]
    columns = (
        *held.naming("At the peak"),
        Column("without", "without plan", "bytes", (without.peak_bytes, *sizes[0]), zero="-"),
        Column("with", "with plan", "bytes", (with_plan.peak_bytes, *sizes[1]), zero="-"),
    )
    places = list(dict.fromkeys(map(_where, lines)))
    note = f"Both at {places[0]}." if len(places) == 1 else f"Without the plan at {places[0]}; with it at {places[1]}."
    top = min(MOST, sum(max(held.nbytes[kind]) >= SMALL * without.peak_bytes for kind in rows))
    left = " and ".join(format_bytes(sum(some[top:])) for some in sizes)
    return Table(
        key="peaks",
        columns=columns,
        top=top + 1,
        rest=f"and {len(rows) - top} more: {left}" if rows[top:] else "",
        note=note,
    )


def needed(graph: Graph, least: Least) -> Table:
    """Return what every plan of the class has resident at the op that needs most, the largest first."""
    held = _Held(graph, 1)
    for storage in least.residents:
        held.add(0, storage, int(graph.storages[storage].nbytes), LARGE * least.nbytes)
    held.work(0, least.workspace_bytes)
    sizes = tuple(held.nbytes[kind][0] for kind in held.kinds)
    columns = (*held.naming("Resident there"), Column("size", "Bytes", "bytes", sizes))
    return Table(key="needed", columns=columns, top=MOST)


def words(role: str) -> str:
    """A role in the plural."""
    named = role.replace("_", " ")
    return named if named.endswith("state") else f"{named[:-1]}ies" if named.endswith("y") else f"{named}s"


def _where(line: StorageTimeline) -> str:
    return op_text(line.recorded, int(line.run_op[line.peak_op]) if len(line.graph) else -1)
