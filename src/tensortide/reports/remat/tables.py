"""Experiments as text for a terminal: a table per step, budgets down, policies across."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.reports.layout import Trimmed, device_text, heading, tidy
from tensortide.reports.remat.growth import RULE_NAMES
from tensortide.studies.remat.results import Curve, Experiment, Growth, Row, Run, Step, Study
from tensortide.units import format_bytes, format_count, format_seconds

__all__ = ["render_experiment", "render_growth"]

BEST = "^"
"""Mark of the least of what stands beside it: an asterisk would read as "optimal"."""
STYLES = {"oom": "red", "thrash": "yellow"}


class Mark(NamedTuple):
    """What a cell shows; ``number`` is what it competes with, None if it failed."""

    text: str
    number: float | None
    style: str = ""


def render_experiment(experiment: Experiment, console: Console) -> None:
    """Print a table for each step, and how to read it."""
    counted = experiment.kind == "accesses"
    for study in experiment.studies:
        _print(console, _title(study.step))
        for part in _tables(study, _accesses if counted else _overhead, console.width):
            _print(console, part)
    for note in _notes(experiment, counted):
        _print(console, note)


def _print(console: Console, part: RenderableType) -> None:
    console.print(Trimmed(part), highlight=False, end="")


def _title(step: Step) -> RenderableType:
    facts = (
        f"{step.ops:,} ops on {device_text(step.device)}, {format_seconds(step.model_ns / 1e9)}; "
        f"durations: {tidy(step.durations) or 'unknown'}\n"
        f"peak without a budget {format_bytes(step.baseline_bytes)}, of it {format_bytes(step.constant_bytes)} that "
        f"nothing can compute again; some op needs {format_bytes(step.bottleneck_bytes)} beside them"
    )
    return Padding(Text.assemble((tidy(step.name), "bold"), ("\n" + facts, "dim")), (1, 0, 0, 0), expand=False)


def _tables(study: Study, shown: Callable[[Row], Mark], width: int) -> Iterator[RenderableType]:
    """As many as it takes to have all curves in ``width``."""
    marks = [[shown(row) for row in curve.rows] for curve in study.curves]
    least = [min((m.number for m in row if m.number is not None), default=None) for row in zip(*marks, strict=True)]
    widest = max(8, *(len(curve.name) for curve in study.curves))
    columns = list(zip(study.curves, marks, strict=True))
    fit = max(1, (width - 18) // (widest + 2))
    for start in range(0, len(columns), fit):
        some = columns[start : start + fit]
        yield Padding(_table(study.curves[0].rows, some, least), (1, 0, 0, 0), expand=False)


def _table(
    rows: Sequence[Row], columns: Sequence[tuple[Curve, list[Mark]]], least: Sequence[float | None]
) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("ratio", justify="right")
    table.add_column("budget", justify="right")
    for curve, _ in columns:
        table.add_column(tidy(curve.name), justify="right", no_wrap=True)
    for i, row in enumerate(rows):
        cells = [_cell(marks[i], least[i]) for _, marks in columns]
        table.add_row(
            f"{row.ratio:.{2 if round(row.ratio, 2) == row.ratio else 4}f}", format_bytes(row.budget_bytes), *cells
        )
    return table


def _cell(mark: Mark, least: float | None) -> Text:
    if mark.number is None:
        return Text(mark.text + " ", mark.style)
    best = mark.number == least
    return Text(mark.text + (BEST if best else " "), "bold green" if best else "")


def _failed(row: Row) -> Mark:
    several = f" {row.failed}/{len(row.runs)}" if len(row.runs) > 1 and row.failed < len(row.runs) else ""
    return Mark(row.status + several, None, STYLES[row.status])


def _overhead(row: Row) -> Mark:
    return Mark(f"{row.overhead:.4f}", row.overhead) if row.status == "ok" else _failed(row)


def _accesses(row: Row) -> Mark:
    count = row.runs[0].accesses
    return Mark(format_count(count), count) if row.status == "ok" and count is not None else _failed(row)


def _notes(experiment: Experiment, counted: bool) -> Iterator[RenderableType]:
    limit = experiment.overhead_limit
    what = "Storages looked at in order to choose what to evict" if counted else "Time over time without recomputation"
    text = (
        f"{what}; {BEST}: the least in its row. oom: an op did not fit and nothing was left to evict. "
        f"thrash: given up, because it took more than {limit:.4g} times as long as the step (--limit)."
    )
    curves = experiment.studies[0].curves
    if seeds := max(len(curve.policies) for curve in curves) - 1:
        text += f" random: mean of {seeds + 1} seeds; if one of them fails, so does the budget."
    if counted:
        text += (
            " Each candidate counts, and what is looked at around it: around all (all), or where bounds do not rule "
        )
        text += "it out (bounds)."
    if any(study.step.compat for study in experiment.studies):
        text += " By the rules of DTR's own simulator (--compat)."
    yield Padding(Text(text, "dim"), (1, 0, 0, 0), expand=False)


def render_growth(growth: Growth, console: Console) -> None:
    """Print ops computed again, a table for each budget, lengths down and policies across."""
    for rule in growth.rules:
        _print(console, heading(f"Budget {RULE_NAMES[rule]}", "ops computed again"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("n", "budget", *growth.policies):
            table.add_column(tidy(name), justify="right", no_wrap=True)
        for n in growth.sizes:
            points = [growth.point(n, rule, name) for name in growth.policies]
            marks = [_again(point.run) for point in points]
            least = min((m.number for m in marks if m.number is not None), default=None)
            table.add_row(f"{n:,}", f"{points[0].budget_bytes:,}", *(_cell(mark, least) for mark in marks))
        _print(console, table)
    text = (
        "Linear networks of n layers: every op takes 1 ns, every tensor 1 byte; 2 n ops run anyway. "
        f"{BEST}: the least. oom: out of memory; thrash: given up after "
        f"{2 * (growth.overhead_limit - 1):.4g} n ops computed again (--limit {growth.overhead_limit:.4g})."
    )
    if growth.compat:
        text += " By the rules of DTR's own simulator (--compat)."
    _print(console, Padding(Text(text, "dim"), (1, 0, 0, 0), expand=False))


def _again(run: Run) -> Mark:
    if run.status != "ok":
        return Mark(run.status, None, STYLES[run.status])
    return Mark(f"{run.remat_ns:,}", run.remat_ns)
