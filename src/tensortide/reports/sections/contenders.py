"""Section ``contenders``: plans made ahead against online policies under the same budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from tensortide.reports.blocks import AnyBlock, Column, Document, Facts, Note, Section, Table, Value, data_facts
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.sections.experiments import BEST, COMPAT, data_table, ranges_of, steps_table
from tensortide.studies.remat.comparison import Comparison, Entry, Point, Strategy, unbeaten
from tensortide.units import format_bytes

__all__ = ["document", "section"]

WORDS = {"infeasible": "no plan", "none found": "?"}
"""Cells without a schedule, where they are other than the verdict."""
AT_LEAST, IN_NODES = "  at least", "  in its node model"
"""Rows below a planner: what no schedule takes less than, and for which budgets it proved that its own model of the
step has no schedule."""


def document(found: Comparison) -> Document:
    """Show ``found``."""
    return Document(title=f"{found.step.name}: plans made ahead against online policies", sections=(section(found),))


def section(found: Comparison) -> Section:
    """Make the section of ``found``: overheads under each budget, and the schedule of each that takes least memory."""
    played = [strategy for strategy in found.strategies if not strategy.skipped]
    blocks: list[AnyBlock] = [steps_table([found.step])]
    facts = [*data_facts("count", nodes=found.nodes), *data_facts("flag", workspace=found.workspace)]
    facts += data_facts("number", overhead_limit=found.overhead_limit)
    blocks += [Facts(rows=tuple(facts)), _overheads(found, played), _leanest(found, played), _picture(found, played)]
    blocks += [_entries(found), _points(found)]
    blocks += [Note(text=text) for text in _notes(found)]
    return Section("contenders", "Plans against policies", blocks=tuple(blocks))


# -- overheads --------------------------------------------------------------------------------------


def _overheads(found: Comparison, played: Sequence[Strategy]) -> Table:
    """Show a row per strategy and a column per budget."""
    rows = list(_rows(found, played))
    columns = [Column("strategy", "Budget", "text", tuple(name for name, _ in rows))]
    for number, (nbytes, ratio) in enumerate(found.budgets):
        cells, signs = zip(*(cells[number] for _, cells in rows), strict=True)
        label = f"{ratio:.4g}, {format_bytes(nbytes)}"
        columns.append(Column(f"budget_{number}", label, "number", cells, after=signs))
    return Table(key="overheads", title="Overhead under each budget", columns=tuple(columns), heads=1)


def _rows(found: Comparison, played: Sequence[Strategy]) -> Iterator[tuple[str, list[tuple[Value, str]]]]:
    blank = " " * 2
    for strategy in played:
        yield strategy.name, [_cell(entry, found, number) for number, entry in enumerate(strategy.entries)]
        bounds = [_bound(entry) for entry in strategy.entries]
        proofs = ["none" if entry.verdict == "infeasible" else "" for entry in strategy.entries]
        for label, texts in ((AT_LEAST, bounds), (IN_NODES, proofs)):
            if any(texts):
                yield label, [(text, blank) for text in texts]


def _cell(entry: Entry, found: Comparison, number: int) -> tuple[Value, str]:
    """Return the overhead and its signs, or the word that stands for it."""
    if entry.verdict != "ok" or entry.point is None:
        return WORDS.get(entry.verdict, entry.verdict), "  "
    over = entry.point.overhead > found.overhead_limit
    best = not over and entry.point.clock_ns == found.best_ns(number)
    return f"{entry.point.overhead:.3f}", ("!" if over else BEST if best else " ") + ("=" if entry.proved else " ")


def _bound(entry: Entry) -> str:
    return "" if entry.bound is None or entry.proved or entry.verdict == "infeasible" else f"{entry.bound:.3f}"


def _leanest(found: Comparison, played: Sequence[Strategy]) -> Table:
    """Show for each strategy its schedule of the lowest peak, in the time that is allowed if there is one."""
    rows = [
        (strategy, min(strategy.points, key=lambda p: (p.overhead > found.overhead_limit, p.peak_bytes)))
        for strategy in played
        if strategy.points
    ]
    points = [point for _, point in rows]
    planned = [None if point.planned_bytes is None else point.planned_bytes - point.peak_bytes for point in points]
    over = tuple("!" if point.overhead > found.overhead_limit else " " for point in points)
    return Table(
        key="leanest",
        title="The least memory of each",
        remark="as played; and what its planner counts more or less",
        columns=(
            Column("strategy", "Strategy", "text", tuple(strategy.name for strategy, _ in rows)),
            Column("schedules", "schedules", "count", tuple(len(strategy.points) for strategy, _ in rows)),
            Column("peak", "peak", "bytes", tuple(point.peak_bytes for point in points)),
            Column("share", "of all", "share", tuple(p.peak_bytes / (found.step.baseline_bytes or 1) for p in points)),
            Column("overhead", "overhead", "number", tuple(point.overhead for point in points), after=over),
            Column("planned", "planned", "text", tuple(map(_more, planned))),
            Column("setting", "setting", "text", tuple(_setting(*row) for row in rows), fold=True, dim=True),
        ),
    )


def _more(nbytes: int | None) -> str:
    if nbytes is None:
        return ""
    return f"{'-' if nbytes < 0 else '+'}{format_bytes(abs(nbytes))}" if nbytes else "the same"


def _setting(strategy: Strategy, point: Point) -> str:
    setting = point.detail.replace(" at articulation points", " (art.)").removeprefix(strategy.name).strip(", ")
    amount, nbytes = setting.removesuffix(" bytes").rpartition(" of ")[::2]
    return f"{amount} of {format_bytes(int(nbytes))}" if nbytes.isdecimal() else setting


def _entries(found: Comparison) -> Table:
    """List every strategy under every budget."""
    figures = ("overhead", "clock_ns", "peak_bytes", "planned_ns", "planned_bytes")
    head = ("step", "compat", "overhead_limit", "strategy", "kind", "budget_bytes", "ratio", "verdict", "detail")
    rows: list[tuple[Value, ...]] = []
    for strategy in found.strategies:
        for number, (budget, entry) in enumerate(zip(found.budgets, strategy.entries, strict=False)):
            point = entry.point
            values = [None if point is None else getattr(point, name) for name in ("detail", *figures)]
            best = point is not None and point.clock_ns == found.best_ns(number)
            step = (found.step.name, found.step.compat, found.overhead_limit, strategy.name, strategy.kind, *budget)
            rows.append((*step, entry.verdict, *values, entry.planner_bytes, entry.bound, entry.proved, best))
    names = (*head, *figures, "planner_bytes", "bound", "proved", "best")
    return data_table("entries", "Strategies under each budget", names, rows)


def _points(found: Comparison) -> Table:
    """List every schedule that was played."""
    rows = [(s.name, s.kind, *msgspec.structs.astuple(point)) for s in found.strategies for point in s.points]
    return data_table("schedules", "Schedules", ("strategy", "kind", *Point.__struct_fields__), rows)


def _notes(found: Comparison) -> Iterator[str]:
    yield (
        f"Time over time without recomputation. {BEST}: the fastest shown here at that budget, which need not be "
        "optimal; =: proved optimal, as its planner counts memory; "
        f"!: over the limit of {found.overhead_limit:.4g} (--limit), not in the contest. no fit: no schedule of the "
        "strategy fits; no plan, none in its node model: proved that there is no schedule of the nodes that the "
        "planner sees, which other strategies are not bound to; ?: none was found in time. oom: an op did not fit and "
        "nothing was left to evict; thrash: given up at the limit. at least: no schedule in stages takes less, as the "
        "planner counts. auto: the best of many policies."
    )
    yield (
        f"Static schedules of {found.nodes:,} nodes are written out as plans, checked and replayed: time and peak are "
        "those of the replay"
        + (", with the workspace of kernels. " if found.workspace else ". ")
        + "Planners put ops together in nodes, and count what they set aside as resident throughout; the budget "
        "that they are given makes the replay fit. They know the whole step and release after the last use; online "
        "policies learn of a release when the program drops a tensor. Nothing stays beyond its last use (Chen's "
        "strategies as published need more); art.: checkpoints at articulation points only."
        + (COMPAT if found.step.compat else "")
    )
    skipped: dict[str, list[str]] = {}
    for strategy in found.strategies:
        skipped.setdefault(strategy.skipped, []).append(strategy.name)
    if reasons := [f"{', '.join(names)}: {reason}" for reason, names in skipped.items() if reason]:
        yield "Not played: " + "; ".join(reasons) + "."
    if cut := [strategy.name for strategy in found.strategies if strategy.cut]:
        yield "Not all settings were tried within the limits (--optimum-time, --work-limit): " + ", ".join(cut) + "."


# -- picture ----------------------------------------------------------------------------------------


def _picture(found: Comparison, played: Sequence[Strategy]) -> Scatter:
    """Draw each schedule within the limit as overhead over peak, of each strategy what no other one of it beats.

    Sweeps are joined by steps, what is known at the budgets alone by lines. Strategies of which every schedule is over
    the limit stand at the upper edge, with their least overhead.
    """
    whole = found.step.baseline_bytes or 1
    fronts = {s.name: unbeaten(p for p in s.points if p.overhead <= found.overhead_limit)[::-1] for s in played}
    top = max((p.overhead for front in fronts.values() for p in front), default=found.overhead_limit)
    lines: list[Points] = []
    for strategy in (one for one in played if one.points):
        front = fronts[strategy.name]
        if front:
            x, y = (p.peak_bytes / whole for p in front), (p.overhead for p in front)
            names = tuple(point.detail for point in front)
            joined: Literal["", "step", "line"] = "step" if strategy.kind == "static" else "line"
            lines.append(Points(strategy.name, tuple(x), tuple(y), joined if len(front) > 1 else "", names))
        else:
            least = min(strategy.points, key=lambda point: point.overhead)
            lines.append(Points(f"{strategy.name}, {least.overhead:.3g}", (least.peak_bytes / whole,), (top,)))
        lines += _open(strategy, found, whole)
    return Scatter(
        key="front",
        title=found.step.name,
        x=Axis("peak / peak without a budget"),
        y=Axis("time / time without recomputation"),
        points=tuple(lines),
        across=(Limit("without recomputation", 1),),
        ranges=ranges_of(found.step),
    )


def _open(strategy: Strategy, found: Comparison, whole: int) -> Iterator[Points]:
    """Point at optima that are not proved, and at what nothing takes less than."""
    rows = [(e, nbytes) for e, (nbytes, _) in zip(strategy.entries, found.budgets, strict=False)]
    rows = [(e, nbytes) for e, nbytes in rows if e.verdict == "ok" and not e.proved and e.bound is not None]
    if rows:
        peaks = tuple((e.point.peak_bytes if e.point else nbytes) / whole for e, nbytes in rows)
        overheads = tuple(e.point.overhead if e.point else None for e, _ in rows)
        yield Points(f"{strategy.name}, not proved", peaks, overheads)
        budgets = tuple(nbytes / whole for _, nbytes in rows)
        yield Points(f"{strategy.name}, at least", budgets, tuple(e.bound for e, _ in rows))
