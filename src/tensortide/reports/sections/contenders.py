"""Section ``contenders``: plans made ahead against online policies under the same budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table, Value
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.sections.experiments import BEST, COMPAT, ranges_of, steps_table
from tensortide.shown import Show
from tensortide.studies.remat.comparison import Comparison, Entry, Point, Strategy, unbeaten
from tensortide.units import format_bytes

WORDS = {"infeasible": "no plan", "none found": "?"}
"""Cells without a schedule, where they are other than the verdict."""
AT_LEAST, IN_NODES = "  at least", "  in its node model"
"""Rows below a planner: what no schedule takes less than, and for which budgets it proved that its own model of the
step has no schedule."""
OF = ("strategy.name as strategy", "strategy.kind")
FIGURES = tuple(f"point.{name}" for name in Point.__struct_fields__ if name != "peak_share")


class Row(NamedTuple):
    """A schedule of a strategy, or what became of it under a budget."""

    found: Comparison
    strategy: Strategy
    point: Point | None
    entry: Entry | None = None
    best: Annotated[bool, Show("best")] = False


def document(found: Comparison) -> Document:
    """Show overheads under each budget, and the schedule of each strategy that takes least memory."""
    played = [strategy for strategy in found.strategies if not strategy.skipped]
    blocks: tuple[AnyBlock, ...] = (
        steps_table([found.step]),
        facts(found, "nodes", "workspace", "overhead_limit", data=True),
        _overheads(found, played),
        _leanest(found, played),
        _picture(found, played),
        *_listed(found),
        *(Note(text=text) for text in _notes(found)),
    )
    section = Section("contenders", "Plans against policies", blocks=blocks)
    return section.document(f"{found.step.name}: plans made ahead against online policies")


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
    for one in played:
        yield one.name, [_cell(entry, found, number) for number, entry in enumerate(one.entries)]
        none = [entry.verdict == "infeasible" for entry in one.entries]
        bounds = [
            None if proof or entry.proved else entry.bound for entry, proof in zip(one.entries, none, strict=True)
        ]
        if any(bound is not None for bound in bounds):
            yield AT_LEAST, [("" if bound is None else f"{bound:.3f}", "  ") for bound in bounds]
        if any(none):
            yield IN_NODES, [("none" * proof, "  ") for proof in none]


def _cell(entry: Entry, found: Comparison, number: int) -> tuple[Value, str]:
    """Return the overhead and its signs, or the word that stands for it."""
    if entry.verdict != "ok" or entry.point is None:
        return WORDS.get(entry.verdict, entry.verdict), "  "
    over = entry.point.overhead > found.overhead_limit
    best = not over and entry.point.clock_ns == found.best_ns(number)
    return f"{entry.point.overhead:.3f}", ("!" if over else BEST if best else " ") + ("=" if entry.proved else " ")


def _leanest(found: Comparison, played: Sequence[Strategy]) -> Table:
    """Show the schedule of each strategy that takes least memory, in the time that is allowed if there is one."""
    limit = found.overhead_limit
    every = [(one, min(one.points, key=lambda p: (p.overhead > limit, p.peak_bytes))) for one in played if one.points]
    rows = [Row(found, one, point) for one, point in every]
    over = tuple("!" if point.overhead > limit else " " for _, point in every)
    settings = tuple(_setting(*one) for one in every)
    return table(
        Row,
        rows,
        *("strategy.name as strategy", "strategy.schedules", "point.peak_bytes", "point.peak_share"),
        column(Row, rows, "point.overhead", after=over),
        "point.planned_more_bytes",
        Column("setting", "setting", "text", settings, fold=True, dim=True),
        key="leanest",
        title="The least memory of each",
        remark="as played; and what its planner counts more",
    )


def _setting(strategy: Strategy, point: Point) -> str:
    setting = point.detail.replace(" at articulation points", " (art.)").removeprefix(strategy.name).strip(", ")
    amount, nbytes = setting.removesuffix(" bytes").rpartition(" of ")[::2]
    return f"{amount} of {format_bytes(int(nbytes))}" if nbytes.isdecimal() else setting


def _listed(found: Comparison) -> Iterator[Table]:
    """List every strategy under every budget, and every schedule that was played."""
    entries = [
        Row(found, one, entry.point, entry, entry.point is not None and entry.point.clock_ns == found.best_ns(number))
        for one in found.strategies
        for number, entry in enumerate(one.entries)
    ]
    step = ("found.step.name as step", "found.step.compat", "found.overhead_limit")
    names = (*step, *OF, "entry.budget_bytes", "entry.ratio", "entry.verdict", *FIGURES)
    more = ("entry.planner_bytes", "entry.bound", "entry.proved", "best")
    yield table(Row, entries, *names, *more, key="entries", title="Strategies under each budget", top=0)
    points = [Row(found, one, point) for one in found.strategies for point in one.points]
    yield table(Row, points, *OF, *FIGURES, key="schedules", title="Schedules", top=0)


def _notes(found: Comparison) -> Iterator[str]:
    yield (
        f"Time divided by that without recomputation. {BEST}: the fastest shown here at that budget, which need not be "
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


def _picture(found: Comparison, played: Sequence[Strategy]) -> Scatter:
    """Draw each schedule within the limit as overhead over peak, of each strategy what no other one of it beats.

    Sweeps are joined by steps, what is known at the budgets alone by lines. Strategies of which every schedule is over
    the limit stand at the upper edge, with their least overhead.
    """
    fronts = {s.name: unbeaten(p for p in s.points if p.overhead <= found.overhead_limit)[::-1] for s in played}
    top = max((p.overhead for front in fronts.values() for p in front), default=found.overhead_limit)
    lines: list[Points] = []
    for strategy in (one for one in played if one.points):
        if front := fronts[strategy.name]:
            x, y, names = zip(*((p.peak_share, p.overhead, p.detail) for p in front), strict=True)
            joined: Literal["", "step", "line"] = "step" if strategy.kind == "static" else "line"
            lines.append(Points(strategy.name, x, y, joined if len(front) > 1 else "", names))
        else:
            least = min(strategy.points, key=lambda point: point.overhead)
            lines.append(Points(f"{strategy.name}, {least.overhead:.3g}", (least.peak_share,), (top,)))
        lines += _open(strategy, found.step.baseline_bytes or 1)
    return Scatter(
        key="front",
        title=found.step.name,
        x=Axis("peak / peak without a budget"),
        y=Axis("time / time without recomputation"),
        points=tuple(lines),
        across=(Limit("without recomputation", 1),),
        ranges=ranges_of(found.step),
    )


def _open(strategy: Strategy, whole: int) -> Iterator[Points]:
    """Point at optima that are not proved, and at what nothing takes less than."""
    rows = [(one, one.point) for one in strategy.entries if one.point and one.bound is not None and not one.proved]
    if rows:
        peaks, overheads = (tuple(getattr(point, name) for _, point in rows) for name in ("peak_share", "overhead"))
        yield Points(f"{strategy.name}, not proved", peaks, overheads)
        budgets = tuple(one.budget_bytes / whole for one, _ in rows)
        yield Points(f"{strategy.name}, at least", budgets, tuple(one.bound for one, _ in rows))
