"""A comparison of plans made ahead with online policies, as text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.reports.layout import Column, Trimmed, columns_table, device_text, heading, tidy
from tensortide.reports.remat.tables import BEST
from tensortide.studies.remat.verdicts import Comparison, Entry, Point, Strategy
from tensortide.units import format_bytes, format_seconds

__all__ = ["comparison_csv", "render_comparison"]

WORDS = {
    "oom": ("oom", "red"),
    "thrash": ("thrash", "yellow"),
    "no fit": ("no fit", "red"),
    "infeasible": ("no plan", "red"),
    "none found": ("?", "yellow"),
}
"""Text and style of a cell without a schedule."""
IN_NODES = "  in its node model"
"""Label of the row that says for which budgets a planner has proved that its own model of the step has no schedule."""
_CELL = 9


def render_comparison(found: Comparison, console: Console) -> None:
    """Print overheads, a row per strategy and a column per budget; the leanest schedule of each; how to read it."""
    played = [strategy for strategy in found.strategies if not strategy.skipped]
    parts: list[RenderableType] = [_title(found)]
    widest = max(len(name) for strategy in played for name in _labels(strategy))
    numbers, fit = range(len(found.budgets)), max(1, (console.width - widest - 2) // _CELL)
    parts += [
        Padding(_table(found, played, numbers[first : first + fit]), (1, 0, 0, 0), expand=False)
        for first in numbers[::fit]
    ]
    parts += [
        heading("The least memory of each", "as played; and what its planner counts more or less"),
        _leanest(found, played),
    ]
    parts += [Padding(Text(note, "dim"), (1, 0, 0, 0), expand=False) for note in _notes(found)]
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def _title(found: Comparison) -> RenderableType:
    step = found.step
    facts = (
        f"\n{step.ops:,} ops on {device_text(step.device)}, {format_seconds(step.model_ns / 1e9)}; durations: "
        f"{tidy(step.durations) or 'unknown'}; {found.nodes:,} nodes for planners\n"
        f"peak without a budget {format_bytes(step.baseline_bytes)}, of it {format_bytes(step.constant_bytes)} that "
        f"nothing can compute again; some op needs {format_bytes(step.bottleneck_bytes)} beside them"
    )
    return Padding(Text.assemble((tidy(step.name), "bold"), (facts, "dim")), (1, 0, 0, 0), expand=False)


def _table(found: Comparison, played: Sequence[Strategy], numbers: Sequence[int]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("Budget\n", no_wrap=True)
    for number in numbers:
        nbytes, ratio = found.budgets[number]
        table.add_column(f"{ratio:.4g}  \n{_short(nbytes)}  ", justify="right", no_wrap=True)
    for before, strategy in zip([None, *played], played, strict=False):
        if before is not None and before.kind != strategy.kind:
            table.add_row()
        cells = [_cell(strategy.entries[number], found, number) for number in numbers]
        table.add_row(tidy(strategy.name), *cells)
        bounds = [_bound(strategy.entries[number]) for number in numbers]
        proofs = ["none  " if strategy.entries[number].verdict == "infeasible" else "" for number in numbers]
        for label, texts in (("  at least", bounds), (IN_NODES, proofs)):
            if any(texts):
                table.add_row(Text(label, "dim"), *(Text(text, "dim") for text in texts))
    return table


def _labels(strategy: Strategy) -> tuple[str, ...]:
    infeasible = any(entry.verdict == "infeasible" for entry in strategy.entries)
    return (strategy.name, IN_NODES) if infeasible else (strategy.name,)


def _short(nbytes: int) -> str:
    """Bytes in seven characters at most."""
    text = format_bytes(nbytes).replace("iB", "").replace(" ", "")
    return text if len(text) < _CELL - 2 or "." not in text else f"{text.split('.')[0]}{text[-1]}"


def _cell(entry: Entry, found: Comparison, number: int) -> Text:
    if entry.verdict != "ok" or entry.point is None:
        word, style = WORDS[entry.verdict]
        return Text(f"{word}  ", style)
    proved = "=" if entry.proved else " "
    if entry.point.overhead > found.overhead_limit:
        return Text(f"{entry.point.overhead:.3f}!{proved}", "yellow")
    best = entry.point.clock_ns == found.best_ns(number)
    return Text(f"{entry.point.overhead:.3f}{BEST if best else ' '}{proved}", "bold green" if best else "")


def _bound(entry: Entry) -> str:
    return "" if entry.bound is None or entry.proved or entry.verdict == "infeasible" else f"{entry.bound:.3f}  "


def _leanest(found: Comparison, played: Sequence[Strategy]) -> RenderableType:
    """For each strategy its schedule of the lowest peak, in the time that is allowed if there is one."""
    rows = []
    for strategy in played:
        if strategy.points:
            point = min(strategy.points, key=lambda p: (p.overhead > found.overhead_limit, p.peak_bytes))
            rows.append(_lean(strategy, point, found))
    columns = [
        Column("Strategy"),
        Column("schedules", right=True),
        Column("peak", right=True),
        Column("of all", right=True),
        Column("overhead", right=True),
        Column("planned", right=True),
        Column("setting", fold=True, dim=True),
    ]
    return columns_table(columns, rows, first=False)


def _lean(strategy: Strategy, point: Point, found: Comparison) -> tuple[str, ...]:
    more = None if point.planned_bytes is None else point.planned_bytes - point.peak_bytes
    share = point.peak_bytes / (found.step.baseline_bytes or 1)
    return (
        tidy(strategy.name),
        f"{len(strategy.points)}",
        format_bytes(point.peak_bytes),
        f"{share:.3f}",
        f"{point.overhead:.3f}{'!' if point.overhead > found.overhead_limit else ''}",
        "" if more is None else f"{'-' if more < 0 else '+'}{format_bytes(abs(more))}" if more else "the same",
        _setting(strategy, point),
    )


def _setting(strategy: Strategy, point: Point) -> str:
    setting = point.detail.replace(" at articulation points", " (art.)").removeprefix(strategy.name).strip(", ")
    amount, nbytes = setting.removesuffix(" bytes").rpartition(" of ")[::2]
    return f"{amount} of {format_bytes(int(nbytes))}" if nbytes.isdecimal() else tidy(setting)


def _notes(found: Comparison) -> Iterator[str]:
    limit = found.overhead_limit
    yield (
        f"Time over time without recomputation. {BEST}: the fastest shown here at that budget, which need not be "
        "optimal; =: proved optimal, as its planner counts memory; "
        f"!: over the limit of {limit:.4g} (--limit), not in the contest. no fit: no schedule of the strategy fits; no "
        "plan, none in its node model: proved that there is no schedule of the nodes that the planner sees, which "
        "other strategies are not bound to; ?: none was found in time. oom: an op did not fit and nothing was left to "
        "evict; thrash: given up at the limit. at least: no schedule in stages takes less, as the planner counts. "
        "auto: the best of many policies."
    )
    yield (
        "Static schedules are written out as plans, checked and replayed: time and peak are those of the replay"
        + (", with the workspace of kernels. " if found.workspace else ". ")
        + "Planners put ops together in nodes, and count what they set aside as resident throughout; the budget "
        "that they are given makes the replay fit. They know the whole step and release after the last use; online "
        "policies learn of a release when the program drops a tensor. Nothing stays beyond its last use (Chen's "
        "strategies as published need more); art.: checkpoints at articulation points only."
        + (" By the rules of DTR's own simulator (--compat)." if found.step.compat else "")
    )
    skipped: dict[str, list[str]] = {}
    for strategy in found.strategies:
        skipped.setdefault(strategy.skipped, []).append(strategy.name)
    reasons = [f"{', '.join(names)}: {reason}" for reason, names in skipped.items() if reason]
    if reasons:
        yield "Not played: " + "; ".join(reasons) + "."
    cut = [strategy.name for strategy in found.strategies if strategy.cut]
    if cut:
        yield "Not all settings were tried in time (--optimum-time): " + ", ".join(cut) + "."


def comparison_csv(found: Comparison) -> str:
    """A line for each strategy and budget."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = ("overhead", "clock_ns", "peak_bytes", "planned_ns", "planned_bytes")
    head = ("step", "compat", "overhead_limit", "strategy", "kind", "budget_bytes", "ratio", "verdict", "detail")
    writer.writerow((*head, *figures, "planner_bytes", "bound", "proved", "best"))
    step = (found.step.name, str(found.step.compat).lower(), found.overhead_limit)
    for strategy in found.strategies:
        budgets = enumerate(zip(found.budgets, strategy.entries, strict=False))
        for number, ((nbytes, ratio), entry) in budgets:
            point = entry.point
            values = [None if point is None else getattr(point, name) for name in ("detail", *figures)]
            best = point is not None and point.clock_ns == found.best_ns(number)
            flags = (entry.planner_bytes, entry.bound, str(entry.proved).lower(), str(best).lower())
            writer.writerow((*step, strategy.name, strategy.kind, nbytes, ratio, entry.verdict, *values, *flags))
    return text.getvalue()
