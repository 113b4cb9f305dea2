"""A run under a budget as text for a terminal, a pipe or a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.reports.layout import Column, Trimmed, bar, columns_table, device_text, heading, tidy
from tensortide.reports.simulation.curve import curve_text
from tensortide.reports.simulation.records import Evicted, Recomputed, SimulationView, Stopped
from tensortide.reports.simulation.words import place_text, short, time_text
from tensortide.units import format_bytes, format_percent

Fact = tuple[str, str, str]


def render_simulation(view: SimulationView, console: Console, *, top: int = 15) -> None:
    """Print ``view`` with the ``top`` rows of each list."""
    options = console.options
    parts = [_title(view), _verdict(view), _facts(view)]
    if view.stopped is not None and view.stopped.held:
        parts += _held(view.stopped, options)
    parts += _curve(view, options)
    parts += [*_recomputed(view, options, top), *_evicted(view, options, top), *_instead(view, top)]
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def _title(view: SimulationView) -> Text:
    text = Text(tidy(view.workload) or "unnamed step", style="bold")
    text.append(f"  one step of {view.ops} ops, memory of {device_text(view.device)}", style="not bold")
    settings = "  ".join(f"{name}={value}" for name, value in view.hyperparameters.items())
    durations = tidy(view.durations) or "unknown"
    policy = f"policy {view.policy}: {view.rules}" if view.rules else f"plan {view.policy}"
    for line in (settings, policy, f"durations {durations}"):
        if line:
            text.append(f"\n{tidy(line)}", style="not bold dim")
    return text


def _verdict(view: SimulationView) -> RenderableType:
    style = "bold green" if view.status == "ok" else "bold red"
    lines = [Text(view.verdict, style=style), *map(Text, view.advice)]
    return Padding(Text("\n").join(lines), (1, 0, 0, 0), expand=False)


def _facts(view: SimulationView) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for name, number, remark in (*_memory(view), *_time(view), *_work(view)):
        style = "" if name.startswith(" ") else "bold"
        table.add_row(Text(name, style), Text(number, style), remark)
    return Padding(table, (1, 0, 0, 0), expand=False)


def _memory(view: SimulationView) -> Iterator[Fact]:
    so_far = "" if view.status in ("ok", "over") else ", up to where it was given up"
    yield (
        "Peak",
        format_bytes(view.peak_bytes),
        f"{format_percent(view.peak_bytes, view.baseline_bytes)} of before{so_far}",
    )
    yield "  before", format_bytes(view.baseline_bytes), "the step's own peak: what --budget 100% means"
    if view.least_op is not None:
        yield "  at least", format_bytes(view.least_bytes), f"{place_text(view.least_op)}, with what must stay"
    if view.counters is not None:
        yield "  constants", format_bytes(view.counters.constant_bytes), "what nothing can make again"


def _time(view: SimulationView) -> Iterator[Fact]:
    ended = view.status in ("ok", "over")
    remark = f"+{format_percent(view.overhead - 1)}" if ended else "until it was given up"
    yield "Time", time_text(view.clock_ns), remark
    yield "  before", time_text(view.model_ns), "each op once"
    if view.recomputed:
        yield "  again", time_text(view.remat_ns), f"{view.recomputed} op{'s' * (view.recomputed > 1)} computed again"


def _work(view: SimulationView) -> Iterator[Fact]:
    counters = view.counters
    if counters is None:
        return
    released = counters.evictions - counters.forced
    yield (
        "Evictions",
        str(counters.evictions),
        f"{counters.forced} to make room, {released} as the program dropped them",
    )
    if counters.banished:
        yield "  for good", str(counters.banished), "what nothing could need any more, not among them"
    direct, collateral = counters.direct_remats, counters.collateral_remats
    if direct:
        yield (
            "Recomputed",
            str(direct + collateral),
            f"tensors: {direct} that were needed, {collateral} that came with them",
        )
    yield "Search", str(counters.evaluations), f"candidates weighed, {counters.accesses} storages looked at for it"


def _held(stop: Stopped, options: ConsoleOptions) -> Iterator[RenderableType]:
    """What was resident when nothing could be evicted."""
    waiting = f"while {stop.waiting} ops waited for it" if stop.waiting else ""
    yield heading("What could not be evicted", waiting)
    whole = sum(row.pinned_bytes + row.locked_bytes for row in stop.held)
    rows = [
        (
            row.role.replace("_", " "),
            str(row.storages),
            format_bytes(row.pinned_bytes + row.locked_bytes),
            format_percent(row.pinned_bytes + row.locked_bytes, whole),
            format_bytes(row.pinned_bytes) if row.pinned_bytes else "-",
            format_bytes(row.locked_bytes) if row.locked_bytes else "-",
            bar((row.pinned_bytes + row.locked_bytes) / max(whole, 1), 12, options.ascii_only),
        )
        for row in stop.held
    ]
    names = ("tensors", "Bytes", "share", "must stay", "in use")
    yield columns_table([Column("Role"), *(Column(n, right=True) for n in names), Column("")], rows, first=False)


def _curve(view: SimulationView, options: ConsoleOptions) -> Iterator[RenderableType]:
    yield heading("Memory over the step", "bytes while each op runs, with and without the budget")
    yield Text("\n").join(curve_text(view, options.max_width, ascii_only=options.ascii_only))


def _recomputed(view: SimulationView, options: ConsoleOptions, top: int) -> Iterator[RenderableType]:
    if not view.recomputed or not top:
        return
    if any(row.name != "(outside)" for row in view.modules):
        yield heading("Computed again, by module", "modules that differ by number together")
        yield _recomputed_table("Module", view.modules, options, top)
    yield heading("Computed again, by kind of op")
    yield _recomputed_table("Op", view.kinds, options, top)


def _recomputed_table(name: str, rows: Sequence[Recomputed], options: ConsoleOptions, top: int) -> RenderableType:
    columns = [*(Column(n, right=True) for n in ("Time", "share")), Column(""), Column("Runs", right=True)]
    columns += [Column("of ops", right=True), Column(name, fold=True)]
    cells = [
        (
            time_text(row.ns),
            format_percent(row.share),
            bar(row.share, 8, options.ascii_only),
            str(row.count),
            str(row.ops),
            short(row.name),
        )
        for row in rows[:top]
    ]
    if rest := rows[top:]:
        ns, runs = sum(row.ns for row in rest), sum(row.count for row in rest)
        share = format_percent(sum(row.share for row in rest))
        cells.append((time_text(ns), share, "", str(runs), str(sum(row.ops for row in rest)), f"{len(rest)} more"))
    return columns_table(columns, cells, first=False)


def _evicted(view: SimulationView, options: ConsoleOptions, top: int) -> Iterator[RenderableType]:
    if not view.evicted or not top:
        return
    yield heading("Evicted most", "what made room, and how often it came back; tensors alike together")
    columns = [Column("Made room", right=True), Column("times", right=True), Column("came back", right=True)]
    columns += [Column("Each", right=True), Column("", right=True), Column("Tensor", fold=True)]
    modules = any(row.module not in ("", "(outside)") for row in view.evicted)
    columns += [Column("Role", shown=options.max_width >= 96), Column("Module", fold=True, shown=modules)]
    rows = [_evicted_row(row) for row in view.evicted[:top]]
    yield columns_table(columns, rows, first=False, gap=2 if options.max_width >= 96 else 1)
    if rest := view.evicted[top:]:
        yield Text(f"and {sum(row.storages for row in rest)} more tensors", style="dim")


def _evicted_row(row: Evicted) -> tuple[str, ...]:
    return (
        format_bytes(row.forced * row.nbytes),
        str(row.forced),
        str(row.remats),
        format_bytes(row.nbytes),
        f"x{row.storages}" if row.storages > 1 else "",
        short(row.name),
        row.role.replace("_", " "),
        tidy(row.module),
    )


def _instead(view: SimulationView, top: int) -> Iterator[RenderableType]:
    if not top or all(item.status != "ok" for item in view.instead):
        return
    yield heading("Other policies", "at this budget, the best first")
    order = sorted(view.instead, key=lambda item: (item.status != "ok", item.overhead))
    rows = [
        (
            item.policy,
            {"ok": f"+{format_percent(item.overhead - 1)}", "oom": "out of memory"}.get(item.status, "over the limit"),
            format_bytes(item.peak_bytes),
        )
        for item in order[:top]
    ]
    columns = [Column("Policy"), Column("Time", right=True), Column("Peak", right=True)]
    yield columns_table(columns, rows, first=False)
    if len(order) > top:
        yield Text(f"and {len(order) - top} more policies", style="dim")
