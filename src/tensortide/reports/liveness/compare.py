"""Liveness of two steps side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from tensortide.reports.layout import Column, Trimmed, columns_table
from tensortide.reports.liveness.records import LivenessView
from tensortide.reports.liveness.terminal import LENGTHS, title
from tensortide.reports.simulation.words import time_text
from tensortide.units import format_bytes, format_percent

__all__ = ["render_comparison"]

Row = tuple[str, str, str, str]


def render_comparison(first: LivenessView, second: LivenessView, console: Console) -> None:
    """Print both, figure by figure, with what became of each."""
    columns = [Column("", fold=True), *(Column(name, right=True) for name in ("A", "B", "B to A"))]
    rows: list[Row] = []
    for name, section in _sections(first, second):
        rows += [(name, "", "", ""), *((f"  {row[0]}", *row[1:]) for row in section), ("", "", "", "")]
    parts: list[RenderableType] = [Text("A ", "bold").append(title(first)), Text("B ", "bold").append(title(second))]
    parts.append(columns_table(columns, rows[:-1]))
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def _sections(a: LivenessView, b: LivenessView) -> Iterator[tuple[str, Iterator[Row]]]:
    yield "Step", _step(a, b)
    yield "Memory on average over the step", _average(a, b)
    yield "Inactive periods", _periods(a, b)
    yield f"At the peak, over {a.link}", _peak(a, b)


def _step(a: LivenessView, b: LivenessView) -> Iterator[Row]:
    yield _row("time", a.step_ns, b.step_ns, time_text)
    yield _row("ops", a.ops, b.ops, str)
    yield _row("storages" if a.mode == "storage" else "tensors", a.storages, b.storages, str)
    yield _row("sum of all bytes ever allocated", a.footprint_bytes, b.footprint_bytes, format_bytes)
    yield _row("most in use by one op", a.active_peak_bytes, b.active_peak_bytes, format_bytes)


def _average(a: LivenessView, b: LivenessView) -> Iterator[Row]:
    parts = (
        ("alive", "total_byte_ns"),
        ("  in use", "active_byte_ns"),
        ("  idle", "idle_byte_ns"),
        ("  unused", "unused_byte_ns"),
    )
    for name, part in parts:
        first, second = (int(getattr(view.total, part) / max(1, view.step_ns)) for view in (a, b))
        yield _row(name, first, second, format_bytes)
    roles = {row.role: None for view in (a, b) for row in view.roles}
    for role in roles:
        times = [next((row.total_byte_ns for row in view.roles if row.role == role), 0) for view in (a, b)]
        spent = [int(ns / max(1, view.step_ns)) for ns, view in zip(times, (a, b), strict=True)]
        yield _row(role.replace("_", " "), spent[0], spent[1], format_bytes)
    yield ("share inactive", format_percent(a.total.inactive_share), format_percent(b.total.inactive_share), "")


def _periods(a: LivenessView, b: LivenessView) -> Iterator[Row]:
    yield _row("number", a.periods, b.periods, str)
    counts = [dict(view.longer_than) for view in (a, b)]
    for name, ns in LENGTHS:
        if counts[0][ns] or counts[1][ns]:
            shares = [format_percent(n[ns], view.periods) for n, view in zip(counts, (a, b), strict=True)]
            yield (f"longer than {name}", shares[0], shares[1], "")
    found = (a.chosen, b.chosen)
    for name, part, whole in (
        (f"hideable over {a.link}, of periods", "count", "periods"),
        ("  of their bytes", "nbytes", "period_bytes"),
        ("  of their memory-time", "byte_ns", "period_byte_ns"),
    ):
        cells = [format_percent(getattr(item, part), getattr(item, whole)) for item in found]
        yield (name, cells[0], cells[1], "")
    yield _row("  all moves, each way", found[0].transfer_ns, found[1].transfer_ns, time_text)


def _peak(a: LivenessView, b: LivenessView) -> Iterator[Row]:
    for name, field in (
        ("alive", "live_bytes"),
        ("  in use", "active_bytes"),
        ("  not in use", "idle_bytes"),
        ("  of that hideable", "hideable_bytes"),
    ):
        yield _row(name, getattr(a.peak, field), getattr(b.peak, field), format_bytes)


def _row(name: str, first: int, second: int, text: Callable[[int], str]) -> Row:
    ratio = "" if not first or first == second else f"x {second / first:.3g}"
    return (name, text(first), text(second), ratio)
