"""The minimal footprint of a step as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.graph.roles import WORKSPACE
from tensortide.replays import replay
from tensortide.reports.layout import Column, Trimmed, bar, columns_table, device_text, heading, tidy
from tensortide.reports.modules import pattern, shared
from tensortide.timelines import Resident, StorageTimeline
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.plans import MinimalFootprint

_STOPS = {
    "work": "the work limit ended the search",
    "time": "the time limit ended the search: another run may differ",
    "stopped": "stopped by hand",
}


_LOOPS = {
    "none": "",
    "written out": (
        " Loops are written out, and the ops of all iterations take part in the order: the bounds hold for all orders "
        "of them."
    ),
    "together": (
        " Loops are written out but too long to be taken apart: each outermost one runs in one stretch, its ops in the "
        "recorded order. The bounds hold for the orders that do so; others might need less."
    ),
}
"""How the loops of a step took part."""


def render_footprint(found: MinimalFootprint, graph: Graph, console: Console, *, top: int = 15) -> None:
    """Print ``found``, the minimal footprint of ``graph`` (loops written out), with the ``top`` groups of storages at
    its peak."""
    played = replay(graph, found.plan)
    parts = [_title(graph, found), _facts(found), *_at_peak(played, found, graph, console.options, top)]
    parts.append(_model(graph, found))
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def _title(graph: Graph, found: MinimalFootprint) -> Text:
    settings = "  ".join(f"{name}={value}" for name, value in graph.meta.hyperparameters.items())
    text = Text(tidy(graph.meta.workload) or "unnamed step", style="bold")
    text.append(f"  {len(graph)} ops on {device_text(found.device)}", style="not bold")
    if settings:
        text.append(f"\n{tidy(settings)}", style="not bold dim")
    return text


def _facts(found: MinimalFootprint) -> RenderableType:
    saved = found.captured_peak_bytes - found.upper_bytes
    gap = f"gap {format_bytes(found.gap_bytes)}, {format_percent(found.gap_bytes, found.lower_bytes)}"
    order = "such order" if found.loops == "together" else "order"
    verdict = f"proved: no {order} needs less" if found.proved else "the best order found; none needs less than"
    facts = [
        (
            "Minimal peak",
            found.upper_bytes,
            verdict,
        ),
        ("  lower bound", found.lower_bytes, f"by {found.certificate}; {gap}"),
        ("Captured order", found.captured_peak_bytes, _less(saved, found.captured_peak_bytes)),
        ("Persistent", found.persistent_bytes, "resident throughout: parameters, buffers, optimizer state, inputs"),
        ("All storages", found.footprint_bytes, "summed, whether or not alive together"),
    ]
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for name, nbytes, remark in facts:
        style = "" if name.startswith(" ") else "bold"
        table.add_row(Text(name, style), Text(format_bytes(nbytes), style), remark)
    if found.stop in _STOPS:
        table.add_row("", "", _STOPS[found.stop])
    return Padding(table, (1, 0, 0, 0), expand=False)


def _less(saved: int, captured: int) -> str:
    if not saved:
        return "the order of the recorded step is the best one found"
    return f"the recorded order; another saves {format_bytes(saved)}, {format_percent(saved, captured)}"


def _at_peak(
    played: StorageTimeline, found: MinimalFootprint, graph: Graph, options: ConsoleOptions, top: int
) -> Iterator[RenderableType]:
    """What is resident at the peak of the best order: by role, then in groups."""
    if found.peak_op < 0:
        return
    op, position = graph[found.peak_op], played.peak_op
    yield heading(
        "Alive at the peak",
        f"op {found.peak_op}, {_short(op.name)} in {tidy(op.module)}; number {position} of the order",
    )
    roles = {role: int(series[position]) for role, series in played.by_role.items() if series[position]}
    rows = [
        (
            role.replace("_", " "),
            format_bytes(nbytes),
            format_percent(nbytes, found.upper_bytes),
            _bar(nbytes, found, options),
        )
        for role, nbytes in sorted(roles.items(), key=lambda item: (item[0] == WORKSPACE, -item[1]))
    ]
    yield columns_table(
        [Column("Role"), Column("Bytes", right=True), Column("share", right=True), Column("")], rows, first=False
    )
    groups = _groups(played.alive())
    head = [
        Column("Bytes", right=True),
        Column("", right=True),
        Column("Tensor", fold=True),
        Column("Role"),
        Column("Module", fold=True),
    ]
    yield columns_table(head, [_group_row(group) for group in groups[:top]])
    if rest := [resident for group in groups[top:] for resident in group]:
        nbytes = sum(resident.nbytes for resident in rest)
        yield Text(f"and {len(rest)} more storages, {format_bytes(nbytes)} together", style="dim")


def _bar(nbytes: int, found: MinimalFootprint, options: ConsoleOptions) -> str:
    return bar(nbytes / found.upper_bytes, 16, options.ascii_only)


def _groups(residents: tuple[Resident, ...]) -> list[list[Resident]]:
    """Storages of one size and origin in modules that differ only by number, the largest group first."""
    groups: dict[tuple[object, ...], list[Resident]] = {}
    for item in residents:
        groups.setdefault(
            (item.role, item.nbytes, pattern(item.name) or item.op_name, pattern(item.module)), []
        ).append(item)
    return sorted(groups.values(), key=lambda group: -sum(item.nbytes for item in group))


def _group_row(group: list[Resident]) -> tuple[str, ...]:
    modules = shared([item.module for item in group])
    name = shared([item.name for item in group]) or group[0].op_name
    return (
        format_bytes(sum(item.nbytes for item in group)),
        f"x{len(group)}" if len(group) > 1 else "",
        _short(name.removeprefix(f"{modules}.")),
        group[0].role.replace("_", " "),
        tidy(modules),
    )


def _short(name: str) -> str:
    return tidy(name.removeprefix("aten.").removesuffix(".default"))


def _model(graph: Graph, found: MinimalFootprint) -> RenderableType:
    """Under which rules this holds."""
    several = len({storage.device for storage in graph.storages}) > 1
    text = (
        "Each op runs once. What exists before the step and after it stays throughout; what the step leaves behind "
        "stays from its birth; everything else, and gradients that only wait for zero_grad, goes after its last use. "
        "Views and ops in place take nothing; reads and writes of a storage keep their order; a kernel's workspace "
        "counts while it runs."
    )
    text += _LOOPS[found.loops]
    if several:
        text += " Storages on other devices are not counted here: choose with --device."
    return Padding(Text(text, style="dim"), (1, 0, 0, 0), expand=False)
