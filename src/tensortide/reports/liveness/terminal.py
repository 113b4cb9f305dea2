"""Liveness as text for a terminal, a pipe or a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.reports.layout import Column, Trimmed, bar, columns_table, device_text, heading, tidy
from tensortide.reports.liveness.records import LivenessView, OffloadRow, RecomputeRow, RoleTime, Stored
from tensortide.reports.liveness.words import RANDOM, late_share, name_text
from tensortide.reports.simulation.words import place_text, time_text
from tensortide.reports.totals import assumed
from tensortide.units import format_bytes, format_percent

__all__ = ["LENGTHS", "render_liveness", "title"]

Fact = tuple[str, str, str]
WIDE = 96
LENGTHS = (("10 us", 10**4), ("100 us", 10**5), ("1 ms", 10**6), ("10 ms", 10**7), ("100 ms", 10**8), ("1 s", 10**9))


def render_liveness(view: LivenessView, console: Console, *, top: int = 10) -> None:
    """Print ``view`` with the ``top`` rows of each list."""
    options = console.options
    parts = [title(view), _verdict(view), _facts(view)]
    if view.total.total_byte_ns:
        parts += [*_roles(view, options), *_links(view, options)]
    parts += [*_offload(view, options, top), *_recompute(view, options, top), *assumed(view.assumptions)]
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def title(view: LivenessView) -> Text:
    """What was analysed, and how."""
    text = Text(tidy(view.workload) or "unnamed step", style="bold")
    text.append(f"  one step of {view.ops} ops, memory of {device_text(view.device)}", style="not bold")
    settings = "  ".join(f"{name}={value}" for name, value in view.hyperparameters.items())
    every = "every tensor counts for itself, views too (compat)" if view.mode == "compat" else ""
    for line in (settings, every, f"durations {tidy(view.durations) or 'unknown'}"):
        if line:
            text.append(f"\n{tidy(line)}", style="not bold dim")
    return text


def _verdict(view: LivenessView) -> RenderableType:
    lines = [Text(view.verdict, style="bold"), *map(Text, view.advice)]
    return Padding(Text("\n").join(lines), (1, 0, 0, 0), expand=False)


def _facts(view: LivenessView) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for name, number, remark in (*_memory(view), *_periods(view)):
        style = "" if name.startswith(" ") else "bold"
        table.add_row(Text(name, style), Text(number, style), remark)
    return Padding(table, (1, 0, 0, 0), expand=False)


def _memory(view: LivenessView) -> Iterator[Fact]:
    peak, step = view.peak, max(1, view.step_ns)
    kind = "tensor" if view.mode == "compat" else "storage"
    yield "Step", time_text(view.step_ns), "sum of the durations of the ops"
    yield "Peak", format_bytes(peak.live_bytes), f"alive at once, at {place_text(peak.at)}" if peak.at else ""
    yield "  on average", format_bytes(view.total.total_byte_ns / step), "alive over the step"
    if view.resident_peak_bytes is not None:
        late = late_share(view) or 0.0
        remark = f"peak as the step ran, which releases later ({format_percent(late)} of its memory-time)"
        yield "  as it ran", format_bytes(view.resident_peak_bytes), remark
    share = f"{format_percent(view.active_share_mean)} of the peak on average, median"
    share += f" {format_percent(view.active_share_median)}"
    at = f"most for one op, {place_text(view.active_peak_at)}; {share}" if view.active_peak_at else ""
    yield "In use", format_bytes(view.active_peak_bytes), at
    yield "Allocated", format_bytes(view.footprint_bytes), f"by {view.storages} {kind}s, {view.persistent} of them kept"


def _periods(view: LivenessView) -> Iterator[Fact]:
    counts = dict(view.longer_than)
    longer = [f"> {name}: {format_percent(counts[ns], view.periods)}" for name, ns in LENGTHS if counts[ns]]
    yield "Idle periods", str(view.periods), ", ".join(longer)


def _roles(view: LivenessView, options: ConsoleOptions) -> Iterator[RenderableType]:
    yield heading("Memory-time by role", "bytes on average over the step")
    wide = options.max_width >= WIDE
    columns = [Column("Role"), Column("storages", right=True, shown=wide), Column("alive", right=True)]
    columns += [Column(name, right=True) for name in ("in use", "idle", "unused", "inactive")]
    rows = [_role(row, view, options) for row in (*sorted(view.roles, key=lambda r: -r.total_byte_ns), view.total)]
    yield columns_table([*columns, Column("")], rows, first=False)


def _role(row: RoleTime, view: LivenessView, options: ConsoleOptions) -> tuple[str, ...]:
    step = max(1, view.step_ns)
    times = (row.total_byte_ns, row.active_byte_ns, row.idle_byte_ns, row.unused_byte_ns)
    share = row.total_byte_ns / max(1, view.total.total_byte_ns)
    return (
        row.role.replace("_", " "),
        str(row.count) if row.role != "workspace" else "-",
        *(format_bytes(int(spent / step)) if spent else "-" for spent in times),
        format_percent(row.inactive_share),
        bar(share, 12, options.ascii_only) if row is not view.total else "",
    )


def _links(view: LivenessView, options: ConsoleOptions) -> Iterator[RenderableType]:
    if not view.periods:
        return
    yield heading("Hideable", "periods longer than 2.5 transfers; > is the link of the advice")
    wide = options.max_width >= WIDE
    columns = [
        Column("Link"),
        Column("periods", right=True),
        Column("share", right=True),
        Column("of bytes", right=True),
    ]
    columns += [Column("of memory-time", right=True), Column("each way", right=True), Column("", fold=True, shown=wide)]
    rows = [
        (
            f"{'>' if item.link == view.link else ' '} {tidy(item.link)}",
            str(item.count),
            format_percent(item.count, item.periods),
            format_percent(item.nbytes, item.period_bytes),
            format_percent(item.byte_ns, item.period_byte_ns),
            time_text(item.transfer_ns),
            tidy(item.about),
        )
        for item in view.links
    ]
    yield columns_table(columns, rows, first=False)


def _offload(view: LivenessView, options: ConsoleOptions, top: int) -> Iterator[RenderableType]:
    if not view.offload or not top:
        return
    yield heading(f"Worth moving over {tidy(view.link)}", "most memory-time first; tensors alike together")
    whole = max(1, view.total.total_byte_ns)
    wide = options.max_width >= WIDE
    columns = [Column("Bytes", right=True), Column("", right=True), Column("at peak", right=True, shown=wide)]
    columns += [
        Column("away", right=True),
        Column("transfer", right=True, shown=options.max_width >= 120),
        Column("saves", right=True),
    ]
    rows = [(*_offload_cells(row, whole), *_stored(row.first, row.modules)) for row in view.offload[:top]]
    named = _stored_columns(view.offload[:top], options)
    yield columns_table([*columns, *named], rows, first=False, gap=2 if wide else 1)
    yield from _rest(len(view.offload), top)


def _offload_cells(row: OffloadRow, whole: int) -> Sequence[str]:
    return (
        format_bytes(row.nbytes),
        f"x{len(row.indexes)}" if len(row.indexes) > 1 else "",
        format_bytes(row.peak_bytes) if row.peak_bytes else "-",
        time_text(row.hideable_ns / len(row.indexes)),
        time_text(row.transfer_ns / row.periods),
        format_percent(row.hideable_byte_ns, whole),
    )


def _recompute(view: LivenessView, options: ConsoleOptions, top: int) -> Iterator[RenderableType]:
    if not view.recompute or not top:
        return
    yield heading("Worth recomputing", "most memory-time for its cost first; tensors alike together")
    wide = options.max_width >= WIDE
    columns = [Column("Bytes", right=True), Column("", right=True), Column("at peak", right=True, shown=wide)]
    columns += [
        Column("idle", right=True),
        Column("cost", right=True),
        Column("of step", right=True, shown=options.max_width >= 120),
    ]
    columns += [Column("ops", right=True)]
    rows = [(*_recompute_cells(row, view.step_ns), *_stored(row.first, row.modules)) for row in view.recompute[:top]]
    named = _stored_columns(view.recompute[:top], options)
    yield columns_table([*columns, *named], rows, first=False, gap=2 if wide else 1)
    yield from _rest(len(view.recompute), top)
    if any(row.random for row in view.recompute[:top]):
        yield Text(f"random: {RANDOM}", style="dim")


def _recompute_cells(row: RecomputeRow, step_ns: int) -> Sequence[str]:
    return (
        format_bytes(row.nbytes),
        f"x{len(row.indexes)}" if len(row.indexes) > 1 else "",
        format_bytes(row.peak_bytes) if row.peak_bytes else "-",
        time_text(row.idle_ns / len(row.indexes)),
        time_text(row.cost_ns),
        format_percent(row.cost_ns, step_ns),
        f"{len(row.ops)}{' random' if row.random else ''}",
    )


def _stored_columns(rows: Sequence[OffloadRow | RecomputeRow], options: ConsoleOptions) -> list[Column]:
    """What tensors are called, and where they come from as far as that is known of any."""
    modules = any(row.modules not in ("", "(outside)") for row in rows)
    return [
        Column("Tensor", fold=True),
        Column("Shape", shown=options.max_width >= 132),
        Column("Module", fold=True, shown=modules),
        Column("Source", fold=True, shown=any(row.first.source for row in rows)),
    ]


def _stored(stored: Stored, modules: str) -> tuple[str, ...]:
    return (name_text(stored), stored.tensor, modules, stored.source)


def _rest(count: int, top: int) -> Iterator[RenderableType]:
    if count > top:
        yield Text(f"and {count - top} more kinds of tensors", style="dim")
