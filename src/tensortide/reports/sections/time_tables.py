"""Tables of measured or predicted durations by kind of op and by module."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tensortide.graph.model import Graph
from tensortide.reports.blocks import Column, Table
from tensortide.reports.names import pattern
from tensortide.reports.sections.modules import OUTSIDE_PATH, ROOT_PATH
from tensortide.reports.sections.predicted_times import ends_ns, interval_text
from tensortide.timing import Durations
from tensortide.timing.estimates import Estimate
from tensortide.timing.percentile import Spread, pooled_p90
from tensortide.timing.totals import total, unpredicted_ns

__all__ = ["Kind", "Timed", "kinds_table", "modules_table"]

WIDE = 98
"""From so many columns on operands and rates of single ops are shown."""

Kind: TypeAlias = tuple[str, str, str]
"""Name, shapes and phase of ops that are shown together."""


class Timed(NamedTuple):
    """One op: its time per call, whether that was measured, and what it computes and accesses per call."""

    op: int
    calls: int
    ns: int
    min_ns: int
    p90_ns: int
    known: bool
    flops: int | None
    nbytes: int

    @property
    def total_ns(self) -> int:
        return self.ns * self.calls


class _Row(NamedTuple):
    """Ops that share a name; ``modules`` that differ only by number share a row."""

    name: str
    ops: Sequence[Timed]
    shapes: str = ""
    phase: str = ""
    depth: int = 0
    modules: int = 1

    @property
    def total_ns(self) -> int:
        return sum(op.total_ns for op in self.ops)

    @property
    def measured(self) -> list[Timed]:
        return [op for op in self.ops if op.known]


def kinds_table(
    key: str,
    title: str,
    first: str,
    ops: Iterable[Timed],
    kind: Callable[[int], Kind],
    top: int | None,
    durations: Durations,
) -> Table:
    """Group ``ops`` by their ``kind``, those that take most time first."""
    groups: dict[Kind, list[Timed]] = {}
    for op in ops:
        groups.setdefault(kind(op.op), []).append(op)
    rows = [_Row(name, members, shapes, phase) for (name, shapes, phase), members in groups.items()]
    rows.sort(key=lambda row: -row.total_ns)
    names = Column(first.lower(), first, "name", tuple(row.name for row in rows), fold=True)
    columns = (names, *_columns(rows, durations, ops=first == "Op", shapes=key == "shapes"))
    rest = f"and {len(rows) - (top or 0):,} more kinds"
    return Table(key=key, title=title, columns=columns, top=top, rest=rest, at_width=WIDE if key == "shapes" else 0)


def _forecasts(rows: Sequence[_Row], durations: Durations) -> tuple[list[Estimate] | None, list[int]]:
    """The predicted times of rows with their intervals, None if they were not predicted; with them the times of ops
    that no interval is known of."""
    if durations.forecast is None:
        return None, [0] * len(rows)
    trips = {op.op: op.calls for row in rows for op in row.ops}
    ops = [[op.op for op in row.ops] for row in rows]
    return [total(durations, of, trips) for of in ops], [unpredicted_ns(durations, of, trips) for of in ops]


def _columns(rows: Sequence[_Row], durations: Durations, *, ops: bool, shapes: bool) -> Iterator[Column]:
    """Show times of one step (time, share) and of one call (the others), and rates.

    Of several ops, ``median`` is the median over them and ``p90`` that of all their calls; estimates are left out where
    any op was measured.
    """
    sums, missing = _forecasts(rows, durations)
    whole = sum(row.total_ns for row in rows if not row.depth)
    flops = [sum((op.flops or 0) * op.calls for op in row.ops) for row in rows]
    accessed = [sum(op.nbytes * op.calls for op in row.ops) for row in rows]
    stand_ins = tuple(len(row.ops) - len(row.measured) for row in rows)
    unpriced = tuple(sum(op.flops is None for op in row.ops) for row in rows)
    medians = tuple(round(statistics.median(op.ns for op in row.measured or row.ops)) for row in rows)
    mins = tuple(min((op.min_ns for op in row.measured), default=None) for row in rows)
    spreads = ([Spread(op.min_ns, op.ns, op.p90_ns, op.calls) for op in row.measured] for row in rows)
    p90s = tuple(pooled_p90(some) if some else None for some in spreads)
    unknown = [0] * len(rows) if sums is None else [one.unknown for one in sums]
    guessed = tuple("~" * bool(n or m) for n, m in zip(stand_ins, unknown, strict=True))
    signs = tuple("~" * bool(n and f) for n, f in zip(unpriced, flops, strict=True))
    wider = 130 if shapes else 0
    if shapes:
        yield Column("operands", "Operands", "code", tuple(row.shapes for row in rows), fold=True, dim=True)
    if ops:
        yield Column("phase", "Phase", "text", tuple(row.phase for row in rows), at_width=120 * shapes)
    yield Column("ops", "Ops", "count", tuple(len(row.ops) for row in rows), data=True)
    yield Column("calls", "Calls", "count", tuple(sum(op.calls for op in row.ops) for row in rows))
    yield Column("time", "Time", "ns", tuple(row.total_ns for row in rows), before=guessed)
    if sums is not None:
        pairs = list(zip(sums, missing, strict=True))
        ends = [ends_ns(one, ns) for one, ns in pairs]
        text = tuple(interval_text(one, ns) if one.time_ns else "" for one, ns in pairs)
        yield Column("interval", "8 of 10 cases", "text", text, at_width=120 if shapes else WIDE * ops, dim=True)
        yield Column("low", "", "ns", tuple(low for low, _ in ends), data=True)
        yield Column("high", "", "ns", tuple(high for _, high in ends), data=True)
        yield Column(
            "provenance", "rests on", "text", tuple(str(one.provenance) for one in sums), at_width=110 * shapes
        )
        yield Column("unknown", "Unknown times", "count", tuple(one.unknown for one in sums), data=True)
    yield Column("share", "share", "share", tuple(row.total_ns / whole if whole else 0.0 for row in rows))
    yield Column("median", "median", "ns", medians, data=not ops or sums is not None)
    yield Column("min", "min", "ns", mins, at_width=wider, data=not ops or sums is not None)
    yield Column("p90", "p90", "ns", p90s, at_width=wider, data=not ops or sums is not None)
    yield Column("flops", "FLOPs", "flops", tuple(flops), data=True)
    yield Column("accessed", "Accessed", "bytes", tuple(accessed), data=True)
    rates = WIDE * ops if sums is None else 125 if ops else 110
    yield Column("rate", "FLOP/s", "flops_per_s", _rates(flops, rows), at_width=rates, before=signs)
    yield Column("traffic", "B/s", "bytes_per_s", _rates(accessed, rows), at_width=110 if shapes else rates)
    yield Column("stand_ins", "Not measured", "count", stand_ins, data=True)
    yield Column("unpriced", "Unknown FLOPs", "count", unpriced, data=True)


def _rates(amounts: Sequence[int], rows: Sequence[_Row]) -> tuple[float | None, ...]:
    """Divide by time; a rate of nothing is not known, one in no time is 0."""
    pairs = zip(amounts, rows, strict=True)
    return tuple((n * 1e9 / row.total_ns if row.total_ns else 0.0) if n else None for n, row in pairs)


def modules_table(graph: Graph, ops: Iterable[Timed], depth: int, durations: Durations) -> Table:
    """Show the modules with everything inside each, also the root; numbered siblings are one row, and so is a module
    with the one that has all its ops (a list of blocks)."""
    inside: defaultdict[tuple[str, ...], list[Timed]] = defaultdict(list)
    modules: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    rooted = any(not module.path for module in graph.modules)
    for op in ops:
        path = graph.module_path(graph.ops[op.op].module)
        above = (ROOT_PATH,) if rooted and path not in (ROOT_PATH, OUTSIDE_PATH) else ()
        name, real = (*above, *pattern(path).split(".")), (*above, *path.split("."))
        for level in range(1, len(name) + 1):
            inside[name[:level]].append(op)
            modules[name[:level]].add(real[:level])
    below: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for name in sorted(inside, key=lambda name: -sum(op.total_ns for op in inside[name])):
        below[name[:-1]].append(name)

    def rows_below(outer: tuple[str, ...], depth: int, prefix: str = "") -> Iterator[_Row]:
        for name in below[outer]:
            alone = name != (ROOT_PATH,) and len(below[name]) == 1 and len(inside[below[name][0]]) == len(inside[name])
            if not alone:
                yield _Row(prefix + name[-1], inside[name], depth=depth, modules=len(modules[name]))
            yield from rows_below(name, depth + (not alone), f"{prefix}{name[-1]}." if alone else "")

    rows = list(rows_below((), 0))
    several = tuple(f" x{row.modules}" if row.modules > 1 else "" for row in rows)
    names = Column("module", "Module", "path", tuple(row.name for row in rows), fold=True, after=several)
    counts = Column("modules", "Modules", "count", tuple(row.modules for row in rows), data=True)
    columns, depths = (
        (names, counts, *_columns(rows, durations, ops=False, shapes=False)),
        tuple(row.depth for row in rows),
    )
    remark = f"to depth {depth}, with what is inside"
    return Table(key="modules", title="By module", remark=remark, columns=columns, depth=depths, to_depth=depth)
