"""Tables of idle memory: memory-time by role, what links hide, what is worth moving or recomputing, every storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from tensortide.graph.roles import WORKSPACE
from tensortide.reports.blocks import Column, Table, UnitName, Value
from tensortide.reports.names import names_of, shared, source_columns, stored_columns
from tensortide.reports.render.values import short
from tensortide.reports.sections.ops import ratio
from tensortide.timelines import Idleness, Offload, Recompute, offloads, recomputations
from tensortide.timing import LINKS, Link

__all__ = ["RANDOM", "View", "storages_table", "tables", "total"]

ROWS, LEAST_SHARE = 40, 1e-3
"""Most rows of advice, and the share of the peak below which storages alike, together, are not worth one."""
WIDE, WIDER, WIDEST = 96, 120, 132
RANDOM = "draws random numbers: recomputed by hand it needs the generator state saved, or gradients are wrong"

Rows: TypeAlias = Sequence[Offload] | Sequence[Recompute]
"""Advice for storages alike."""
R = TypeVar("R")
T = TypeVar("T", Offload, Recompute)


class View:
    """An analysis of idle memory, and what several blocks show of it."""

    def __init__(self, idle: Idleness, link: Link, top: int) -> None:
        self.idle, self.link, self.top = idle, link, top
        self.names, self.op_sum_ns = names_of(idle), max(1, idle.op_sum_ns)
        self.links = [idle.hideable(one) for one in {**LINKS, link.name: link}.values()]
        self.hidden = next(one for one in self.links if one.link.name == link.name)
        self.peak_bytes = int(idle.live[idle.peak_op]) if len(idle.graph) else 0

    def average(self, byte_ns: int) -> int:
        """Spread memory-time over the step."""
        return byte_ns // self.op_sum_ns

    def modules(self, rows: Rows) -> str:
        """Name the modules of storages alike."""
        return shared([self.names(row.index).module for row in rows])

    @cached_property
    def offloads(self) -> list[Offload]:
        return offloads(self.idle, self.link)

    @cached_property
    def recomputations(self) -> list[Recompute]:
        return recomputations(self.idle)

    @cached_property
    def worth_moving(self) -> list[list[Offload]]:
        """Moves of storages of ``Link.least_bytes`` or more, most memory-time first."""
        groups = self._alike(row for row in self.offloads if row.nbytes >= self.link.least_bytes)
        return sorted(groups, key=lambda rows: -total(rows, "byte_ns"))[:ROWS]

    @cached_property
    def worth_recomputing(self) -> list[list[Recompute]]:
        """Recomputations, most memory-time for their cost first."""
        groups = self._alike(self.recomputations)
        return sorted(groups, key=lambda rows: -total(rows, "byte_ns") / max(1, total(rows, "cost_ns")))[:ROWS]

    def _alike(self, rows: Iterable[T]) -> list[list[T]]:
        """Group ``rows`` of storages alike; leave out groups below ``LEAST_SHARE`` of the peak."""
        groups: defaultdict[object, list[T]] = defaultdict(list)
        for row in rows:
            groups[self.names(row.index).kind].append(row)
        return [found for found in groups.values() if total(found, "nbytes") >= LEAST_SHARE * self.peak_bytes]


def total(rows: Rows, field: str) -> int:
    """Sum ``field`` over storages alike."""
    return sum(getattr(row, field) for row in rows)


def tables(view: View) -> Iterator[Table]:
    """Show memory-time by role, what links hide, and what is worth moving or recomputing."""
    if view.idle.total.total_byte_ns:
        yield _roles(view)
        if view.hidden.intervals:
            yield _links(view)
    if view.worth_moving:
        yield _moves(view)
    if view.worth_recomputing:
        yield _recomputed(view)


def _col(key: str, label: str, unit: UnitName, rows: Iterable[R], get: Callable[[R], Value], **options: Any) -> Column:
    return Column(key, label, unit, tuple(map(get, rows)), **options)


def _roles(view: View) -> Table:
    rows = sorted(view.idle.by_role.items(), key=lambda item: -item[1].total_byte_ns)
    spent = [time for _, time in rows]
    names = {"live": "total", "in_use": "active", "idle": "idle", "unused": "unused"}
    columns = [
        _col("role", "Role", "role", rows, lambda row: row[0]),
        _col(
            "count", "storages", "count", rows, lambda row: None if row[0] == WORKSPACE else row[1].count, at_width=WIDE
        ),
    ]
    for key, part in names.items():
        values = tuple(view.average(getattr(time, f"{part}_byte_ns")) for time in spent)
        columns.append(Column(key, key.replace("_", " "), "bytes", values, zero="-", bar=WIDE * (key == "live")))
    columns.append(
        _col("inactive", "inactive", "share", spent, lambda one: ratio(one.inactive_byte_ns, one.total_byte_ns))
    )
    columns.append(_col("size", "", "bytes", spent, lambda one: one.nbytes, data=True))
    for part in ("active", "idle", "unused"):
        values = tuple(getattr(time, f"{part}_byte_ns") for time in spent)
        columns.append(Column(f"{part}_byte_ns", "", "byte_ns", values, data=True))
    title, remark = "Memory-time by role", "bytes on average over the step"
    return Table(key="roles", title=title, remark=remark, columns=tuple(columns))


def _links(view: View) -> Table:
    rows = view.links
    marks = tuple("> " if one.link.name == view.link.name else "  " for one in rows)
    columns = [
        _col("link", "Link", "text", rows, lambda one: one.link.name, before=marks),
        _col("intervals", "intervals", "count", rows, lambda one: one.count),
        _col("share", "share", "share", rows, lambda one: ratio(one.count, one.intervals)),
        _col("of_bytes", "of bytes", "share", rows, lambda one: ratio(one.nbytes, one.interval_bytes)),
        _col("of_memory_time", "of memory-time", "share", rows, lambda one: ratio(one.byte_ns, one.interval_byte_ns)),
        _col("transfer", "each way", "ns", rows, lambda one: one.transfer_ns),
        _col("about", "", "text", rows, lambda one: one.link.about, at_width=WIDE, fold=True),
    ]
    columns += [
        _col("nbytes", "", "bytes", rows, lambda one: one.nbytes, data=True),
        _col("byte_ns", "", "byte_ns", rows, lambda one: one.byte_ns, data=True),
        _col("bytes_per_s", "", "bytes_per_s", rows, lambda one: float(one.link.bytes_per_s), data=True),
        _col("latency_ns", "", "ns", rows, lambda one: one.link.latency_ns, data=True),
    ]
    remark = "intervals longer than 2.5 transfers; > is the link of the advice"
    return Table(key="links", title="Hideable", remark=remark, columns=tuple(columns))


def _moves(view: View) -> Table:
    groups, whole = view.worth_moving, max(1, view.idle.total.total_byte_ns)
    columns = (
        _col("away", "away", "ns", groups, lambda rows: total(rows, "hideable_ns") // len(rows)),
        _col("transfer", "transfer", "ns", groups, lambda rows: rows[0].transfer_ns, at_width=WIDER),
        _col("saves", "saves", "share", groups, lambda rows: total(rows, "byte_ns") / whole),
        _col("intervals", "", "count", groups, lambda rows: total(rows, "intervals"), data=True),
        _col("hideable_byte_ns", "", "byte_ns", groups, lambda rows: total(rows, "byte_ns"), data=True),
    )
    remark = "most memory-time first; tensors alike together"
    return _advice(view, "offload", f"Worth moving over {view.link.name}", remark, groups, columns)


def _recomputed(view: View) -> Table:
    groups, graph = view.worth_recomputing, view.idle.graph

    def named(key: str) -> Callable[[list[Recompute]], str]:
        return lambda rows: ", ".join(short(graph[op].name) for op in getattr(rows[0], key))

    def share(rows: list[Recompute]) -> float:
        return total(rows, "cost_ns") / view.op_sum_ns

    random = tuple(" random" if rows[0].random else "" for rows in groups)
    columns = (
        _col("idle", "idle", "ns", groups, lambda rows: total(rows, "idle_ns") // len(rows)),
        _col("cost", "cost", "ns", groups, lambda rows: total(rows, "cost_ns")),
        _col("of_op_sum", "of op sum", "share", groups, share, at_width=WIDER),
        _col("op_count", "ops", "count", groups, lambda rows: len(rows[0].ops), after=random),
        _col("ops", "", "code", groups, named("ops"), data=True),
        _col("random", "", "code", groups, named("random"), data=True),
        _col("idle_byte_ns", "", "byte_ns", groups, lambda rows: total(rows, "byte_ns"), data=True),
    )
    remark = "most memory-time for its cost first; tensors alike together"
    note = f"random: {RANDOM}" if any(random[: view.top]) else ""
    return _advice(view, "recompute", "Worth recomputing", remark, groups, columns, note)


def _advice(
    view: View, key: str, title: str, remark: str, groups: Sequence[Rows], columns: Iterable[Column], note: str = ""
) -> Table:
    """Show storages alike, a row for each group: name and bytes, ``columns``, shape, module and line."""
    first, rest = [view.names(rows[0].index) for rows in groups], len(groups) - view.top
    several = tuple(f" x{len(rows)}" if len(rows) > 1 else "" for rows in groups)
    modules = tuple(view.modules(rows) for rows in groups)
    peaks = tuple(sum(row.nbytes for row in rows if row.at_peak) for rows in groups)
    made = (
        _col("tensor", "Tensor", "text", first, lambda one: one.name, fold=True, after=several),
        _col("role", "", "role", first, lambda one: one.role, data=True),
        _col("indexes", "", "text", groups, lambda rows: " ".join(str(row.index) for row in rows), data=True),
        _col("size", "bytes", "bytes", groups, lambda rows: total(rows, "nbytes")),
        Column("at_peak", "at peak", "bytes", peaks, zero="-", at_width=WIDE),
        *columns,
        _col("shape", "Shape", "text", first, lambda one: one.shape, at_width=WIDEST),
        Column("module", "Module", "path", modules, fold=True, data=not {*modules} - {"", "(outside)"}),
        *source_columns(first),
    )
    more = f"and {rest} more kinds of tensors" if rest > 0 else ""
    return Table(key=key, title=title, remark=remark, columns=made, top=view.top, rest=more, note=note * bool(view.top))


def storages_table(view: View) -> Table:
    """Show every storage. ``birth`` is the first op during which it is live, ``death`` the op after the last."""
    idle, lives = view.idle, view.idle.lives
    moves = {row.index: row for row in view.offloads}
    recomputed = {row.index: row for row in view.recomputations}
    moved = [moves.get(life.index) for life in lives]
    again = [recomputed.get(life.index) for life in lives]
    columns = [
        _col("index", "Index", "count", lives, lambda life: life.index),
        *stored_columns([view.names(life.index) for life in lives]),
        _col("persistent", "Persistent", "flag", lives, lambda life: life.persistent),
        _col("birth", "Birth", "op", lives, lambda life: life.start),
        _col("death", "Death", "op", lives, lambda life: life.stop),
        _col("uses", "Uses", "count", lives, lambda life: len(life.uses)),
    ]
    spent = [idle.memory_time(life) for life in lives]
    for part in ("active", "idle", "unused"):
        values = tuple(getattr(one, f"{part}_byte_ns") // max(1, one.nbytes) for one in spent)
        columns.append(Column(part, part.capitalize(), "ns", values))
    columns += [
        _col("intervals", "Idle intervals", "count", lives, lambda life: len(life.intervals)),
        _col("longest", "Longest", "ns", lives, lambda life: int(max((i.time for i in life.intervals), default=0))),
        _col("hideable_intervals", "Hideable", "count", moved, lambda row: row.intervals if row else 0),
        _col("hideable", "Hideable time", "ns", moved, lambda row: row.hideable_ns if row else 0),
        _col("transfer", "Transfer", "ns", lives, lambda life: view.link.transfer_ns(life.nbytes)),
        _col("recompute_ops", "Ops to recompute", "count", again, lambda row: len(row.ops) if row else None),
        _col("recompute", "Recomputation", "ns", again, lambda row: row.cost_ns if row else None),
        _col("recompute_random", "Random ops", "count", again, lambda row: len(row.random) if row else None),
    ]
    kind = "storage" if idle.mode == "storage" else "tensor"
    return Table(key="storages", title=f"Every {kind}", columns=tuple(columns), top=0)
