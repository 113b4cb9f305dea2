"""Tables of idle memory: memory-time by role, what links hide, what is worth moving or recomputing, every storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, TypeVar

import msgspec

from tensortide.graph.module_paths import as_one
from tensortide.reports.blocks import Table
from tensortide.reports.names import FILLED, STORED, Stored, names_of
from tensortide.reports.of_records import column, table
from tensortide.reports.render.values import short
from tensortide.shown import Show
from tensortide.timelines import Idleness, Life, Offload, Recompute, offloads, recomputations
from tensortide.timelines.idle import Average, Hideable
from tensortide.timing import LINKS, Link

ROWS, LEAST_SHARE = 40, 1e-3
"""Most rows of advice, and the share of the peak below which storages alike, together, are not worth one."""
WIDE, WIDER, WIDEST = 96, 120, 132
RANDOM = "draws random numbers: recomputed by hand it needs the generator state saved, or gradients are wrong"
T = TypeVar("T", Offload, Recompute)


class _Alike(msgspec.Struct, frozen=True):
    """Storages alike, of which ``stored`` is the first: ``several`` of them, with ``indexes``."""

    stored: Stored
    tensor: Annotated[str, Show("Tensor", fold=True, after="several")]
    several: str
    indexes: str
    size_bytes: Annotated[int, Show("bytes")]
    at_peak_bytes: Annotated[int, Show("at peak", zero="-", at_width=WIDE)]
    module: Annotated[str, Show("Module", "path", fold=True)]

    def __str__(self) -> str:
        module = f" in {self.module}" if self.module not in ("", "(outside)") else ""
        source = f" ({self.stored.source})" if self.stored.source else ""
        return f"{self.tensor}{self.several}{module}{source}"


class _Moved(msgspec.Struct, frozen=True):
    """Storages that a link takes away: ``away_ns`` is the time of each, ``interval_ns`` that of each interval."""

    alike: _Alike
    away_ns: Annotated[int, Show("away")]
    transfer_ns: Annotated[int, Show("transfer", at_width=WIDER)]
    saves_share: Annotated[float, Show("saves")]
    intervals: int
    hideable_byte_ns: int
    interval_ns: float


class _Recomputable(msgspec.Struct, frozen=True):
    """Storages to recompute: ``idle_ns`` is the time of each, ``cost_ns`` that of all recomputations."""

    alike: _Alike
    idle_ns: Annotated[int, Show("idle")]
    cost_ns: Annotated[int, Show("cost")]
    of_op_sum_share: Annotated[float, Show("of op times", at_width=WIDER)]
    op_count: Annotated[int, Show("ops", after="is_random")]
    ops: Annotated[str, Show(unit="code", data=True)]
    random: Annotated[str, Show(unit="code", data=True)]
    idle_byte_ns: int
    is_random: str


class View:
    """An analysis of idle memory, and what several blocks show of it."""

    def __init__(self, idle: Idleness, link: Link, top: int) -> None:
        self.idle, self.link, self.top, self.names = idle, link, top, names_of(idle)
        self.links = [idle.hideable(one) for one in {**LINKS, link.name: link}.values()]
        self.hidden = next(one for one in self.links if one.link.name == link.name)
        self.offloads, self.recomputations = offloads(idle, link), recomputations(idle)
        self.worth_moving, self.worth_recomputing = self._moved(), self._again()

    def _moved(self) -> list[_Moved]:
        """Moves of storages of ``Link.least_bytes`` or more, most memory-time first."""
        whole, found = max(1, self.idle.total.total_byte_ns), []
        for rows in self._alike(row for row in self.offloads if row.nbytes >= self.link.least_bytes):
            hideable, spent, intervals = _sums(rows, "hideable_ns", "byte_ns", "intervals")
            away, share = hideable // len(rows), spent / whole
            figures = (away, rows[0].transfer_ns, share, intervals, spent, hideable / intervals)
            found.append(_Moved(self._named(rows), *figures))
        return sorted(found, key=lambda one: -one.hideable_byte_ns)[:ROWS]

    def _again(self) -> list[_Recomputable]:
        """Recomputations, most memory-time for their cost first."""
        graph, found = self.idle.graph, []
        for rows in self._alike(self.recomputations):
            idle, cost, spent = _sums(rows, "idle_ns", "cost_ns", "byte_ns")
            ops, random = (", ".join(short(graph[op].name) for op in some) for some in (rows[0].ops, rows[0].random))
            figures = (idle // len(rows), cost, cost / max(1, self.idle.op_sum_ns), len(rows[0].ops))
            found.append(_Recomputable(self._named(rows), *figures, ops, random, spent, " random" if random else ""))
        return sorted(found, key=lambda one: -one.idle_byte_ns / max(1, one.cost_ns))[:ROWS]

    def _alike(self, rows: Iterable[T]) -> list[list[T]]:
        """Group ``rows`` of storages alike; leave out groups below ``LEAST_SHARE`` of the peak."""
        groups: defaultdict[object, list[T]] = defaultdict(list)
        for row in rows:
            groups[self.names(row.index).kind].append(row)
        least = LEAST_SHARE * self.idle.peak_bytes
        return [found for found in groups.values() if sum(row.nbytes for row in found) >= least]

    def _named(self, rows: Sequence[Offload] | Sequence[Recompute]) -> _Alike:
        every, nbytes, peaks = [self.names(row.index) for row in rows], rows[0].nbytes, sum(row.at_peak for row in rows)
        name, several = every[0].short_name, f" x{len(rows)}" if rows[1:] else ""
        indexes, module = " ".join(str(one.index) for one in every), as_one([one.module for one in every])
        return _Alike(every[0], name, several, indexes, nbytes * len(rows), nbytes * peaks, module)


def _sums(rows: Sequence[object], *names: str) -> tuple[int, ...]:
    return tuple(sum(getattr(row, name) for row in rows) for name in names)


def tables(view: View) -> Iterator[Table]:
    """Show memory-time by role, what links hide, and what is worth moving or recomputing."""
    if view.idle.total.total_byte_ns:
        averages = (view.idle.average(role, time) for role, time in view.idle.by_role.items())
        roles = sorted(averages, key=lambda one: -one.time.total_byte_ns)
        names = ("role", "count", "live_bytes", "in_use_bytes", "idle_bytes", "unused_bytes", "inactive_share")
        spent = ("nbytes as size_bytes", "active_byte_ns", "idle_byte_ns", "unused_byte_ns")
        columns = (*names, *(f"time.{name}" for name in spent))
        remark = "bytes on average over the step"
        yield table(Average, roles, *columns, key="roles", title="Memory-time by role", remark=remark)
        if view.hidden.intervals:
            yield _links(view)
    if moved := view.worth_moving:
        figures = ("away_ns", "transfer_ns", "saves_share", "intervals", "hideable_byte_ns")
        yield _advice(view, moved, figures, "offload", f"Worth moving over {view.link.name}", "most memory-time")
    if again := view.worth_recomputing:
        note = f"random: {RANDOM}" if any(one.random for one in again[: view.top]) else ""
        shown = ("idle_ns", "cost_ns", "of_op_sum_share", "op_count", "ops", "random", "idle_byte_ns")
        remark = "most memory-time for its cost"
        yield _advice(view, again, shown, "recompute", "Worth recomputing", remark, note)


def _links(view: View) -> Table:
    rows = view.links
    marks = tuple("> " if one.link.name == view.link.name else "  " for one in rows)
    return table(
        Hideable,
        rows,
        column(Hideable, rows, "link.name as link", label="Link", data=False, before=marks),
        *("hidden", "hidden_share", "hidden_bytes_share", "hidden_time_share", "transfer_ns"),
        column(Hideable, rows, "link.about", data=False, at_width=WIDE, fold=True),
        *("hidden_bytes", "hidden_byte_ns", "bytes_per_s", "link.latency_ns"),
        key="links",
        title="Hideable",
        remark="intervals longer than 2.5 transfers; one way: all of them out, or back; >: link advised",
    )


def _advice(
    view: View,
    rows: Sequence[_Moved] | Sequence[_Recomputable],
    figures: Sequence[str],
    key: str,
    title: str,
    remark: str,
    note: str = "",
) -> Table:
    """Show storages alike, a row for each group: name and bytes, ``figures``, shape, module and line."""
    kind, rest = type(rows[0]), len(rows) - view.top
    unknown = not {one.alike.module for one in rows} - {"", "(outside)"}
    return table(
        kind,
        rows,
        "alike.tensor",
        column(kind, rows, "alike.stored.role", pick=False, data=True),
        *("alike.indexes", "alike.size_bytes", "alike.at_peak_bytes", *figures),
        column(kind, rows, "alike.stored.shape", at_width=WIDEST),
        column(kind, rows, "alike.module", data=unknown),
        *(f"alike.stored.{name}" for name in FILLED),
        key=key,
        title=title,
        remark=f"{remark} first; tensors alike together",
        top=view.top,
        rest=f"and {rest} more kinds of tensors" if rest > 0 else "",
        note=note * bool(view.top),
    )


class _StorageRow(msgspec.Struct, frozen=True):
    """A storage, and what could be done about it."""

    life: Life
    stored: Stored
    active_ns: Annotated[int, Show("Active")]
    idle_ns: Annotated[int, Show("Idle")]
    unused_ns: Annotated[int, Show("Unused")]
    hideable_intervals: Annotated[int, Show("Hideable")]
    hideable_ns: Annotated[int, Show("Hideable time")]
    transfer_ns: Annotated[int, Show("Transfer")]
    recompute_ops: Annotated[int | None, Show("Ops to recompute")]
    recompute_ns: Annotated[int | None, Show("Recomputation")]
    recompute_random: Annotated[int | None, Show("Random ops")]


def storages_table(view: View) -> Table:
    """Show every storage. ``birth`` is the first op during which it is live, ``death`` the op after the last."""
    moves = {row.index: (row.intervals, row.hideable_ns) for row in view.offloads}
    again = {row.index: (len(row.ops), row.cost_ns, len(row.random)) for row in view.recomputations}
    rows = []
    for life in view.idle.lives:
        time, nbytes = view.idle.memory_time(life), max(1, life.nbytes)
        active, idle, unused = (n // nbytes for n in (time.active_byte_ns, time.idle_byte_ns, time.unused_byte_ns))
        moved, transfer = moves.get(life.index, (0, 0)), view.link.transfer_ns(life.nbytes)
        anew = again.get(life.index, (None, None, None))
        rows.append(_StorageRow(life, view.names(life.index), active, idle, unused, *moved, transfer, *anew))
    lived = ("persistent", "start as birth_op", "stop as death_op", "use_count")
    return table(
        _StorageRow,
        rows,
        "life.index",
        *(*(f"stored.{name}" for name in STORED), *(f"life.{name}" for name in lived)),
        *("active_ns", "idle_ns", "unused_ns", "life.interval_count", "life.longest_ns", "hideable_intervals"),
        *("hideable_ns", "transfer_ns", "recompute_ops", "recompute_ns", "recompute_random"),
        key="storages",
        title=f"Every {'storage' if view.idle.mode == 'storage' else 'tensor'}",
        top=0,
    )
