"""Formulas and what is done with them, as text for a terminal: sweeps, solutions, projections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.formulas.domains import Interval
from tensortide.formulas.invert import Solution
from tensortide.formulas.projection import Projection, Requirement
from tensortide.formulas.sweep import Sweep
from tensortide.reports.layout import Column, Trimmed, columns_table, tidy
from tensortide.units import format_bytes, format_count, format_seconds

__all__ = ["TITLES", "render_projection", "render_solution", "render_sweep", "shown_total"]

TITLES = {
    "parameters": "Parameters",
    "flops": "FLOPs",
    "bytes": "Bytes",
    "peak_bytes": "Peak",
    "footprint_bytes": "Footprint",
    "minimal_footprint_lower_bytes": "Min. footprint from",
    "minimal_footprint_upper_bytes": "Min. footprint to",
    "peak_with_workspace_bytes": "Peak, workspace",
    "io_bytes": "IO",
    "product_flops": "Product FLOPs",
    "elementwise_flops": "Elementwise FLOPs",
}
"""Totals as they are headed in a table, the most telling first."""


def ranked(names: Iterable[str]) -> list[str]:
    """Totals in the order in which they are shown."""
    order = list(TITLES)
    return sorted(names, key=lambda name: order.index(name) if name in TITLES else len(order))


def shown_total(name: str, value: int | None) -> str:
    """A total in its unit."""
    if value is None:
        return "-"
    return format_bytes(value) if name.endswith("bytes") else format_count(value)


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print the parts one below the other."""
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def title(workload: str, remark: str, setting: Mapping[str, int]) -> Text:
    """What is shown, and at which setting."""
    line = Text(tidy(workload) or "formulas", style="bold")
    line.append(f"  {remark}", style="not bold")
    if setting:
        line.append(f"\n{_settings(setting)}", style="not bold dim")
    return line


def _settings(setting: Mapping[str, int]) -> str:
    return tidy("  ".join(f"{name}={value}" for name, value in setting.items()))


def formula_table() -> Table:
    """Lines of name, formula and number."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(no_wrap=True, justify="right")
    return table


# -- sweep ------------------------------------------------------------------------------------------


def render_sweep(sweep: Sweep, console: Console) -> None:
    """Print one row per point, with as many totals as fit."""
    print_parts(console, _sweep(sweep, console.options))


def _sweep(sweep: Sweep, options: ConsoleOptions) -> Iterator[RenderableType]:
    yield title(sweep.workload, f"over {', '.join(sweep.over)}", sweep.fixed)
    names = ranked(sweep.totals)
    columns = [*sweep.over, *names]
    heads = [TITLES.get(name, tidy(name)) for name in columns]
    values = [
        [f"{value:,}" for value in sweep.column(name) if value is not None]
        if name in sweep.over
        else [shown_total(name, value) for value in sweep.column(name)]
        for name in columns
    ]
    shown = _fitting([max(map(len, (head, *cells))) for head, cells in zip(heads, values, strict=True)], options)
    shaped = [Column(head, right=True, shown=i < shown) for i, head in enumerate(heads)]
    yield columns_table(shaped, list(zip(*values, strict=True)))
    if hidden := columns[max(shown, len(sweep.over)) :]:
        yield Text(f"and {', '.join(map(tidy, hidden))}: in a wider window, or in a file", style="dim")
    outside = [point.outside for point in sweep.points if point.outside]
    if outside:
        count = f"{len(outside)} point{'s are' if len(outside) > 1 else ' is'} outside the region"
        yield Text(f"{count}: {tidy(outside[0])}", style="dim")


def _fitting(widths: Sequence[int], options: ConsoleOptions, gap: int = 2) -> int:
    """How many columns fit."""
    used = 0
    for i, width in enumerate(widths):
        used += width + (gap if i else 0)
        if used > options.max_width:
            return i
    return len(widths)


# -- solve ------------------------------------------------------------------------------------------


def render_solution(solution: Solution, console: Console) -> None:
    """Print the value, what it reaches and what its neighbour would, and the totals there."""
    print_parts(console, _solution(solution))


def _solution(solution: Solution) -> Iterator[RenderableType]:
    show = format_bytes if solution.in_bytes else format_count
    line = Text(f"{solution.symbol} = {solution.value:,}", style="bold")
    relation = "nearest to" if solution.kind == "nearest" else f"{solution.kind} with"
    line.append(f"  {relation} {tidy(solution.target)}", style="not bold")
    others = {name: value for name, value in solution.setting.items() if name != solution.symbol}
    line.append(f"\nat {_settings(others)}" if others else "", style="not bold dim")
    yield line
    reached = f"reaches {show(solution.reached)}"
    if solution.beyond is not None:
        reached += f"; {solution.symbol} = {solution.beyond[0]:,} would reach {show(solution.beyond[1])}"
    how = "proved by the shape of the formulas" if solution.proved else "found by scanning: nothing is proved"
    yield Text(f"{reached} ({how})", style="dim")
    table = formula_table()
    for name in ranked(solution.totals):
        table.add_row(TITLES.get(name, tidy(name)), "", shown_total(name, solution.totals[name]))
    yield Padding(table, (1, 0, 0, 0), expand=False)


# -- projection -------------------------------------------------------------------------------------


def render_projection(projection: Projection, console: Console) -> None:
    """Print what the model must be, what a step of it takes, and how sure that is."""
    print_parts(console, _projection(projection, console.options))


def _projection(projection: Projection, options: ConsoleOptions) -> Iterator[RenderableType]:
    domain, roof = projection.domain, projection.roof
    yield title(projection.workload, f"projected for {domain.model}", {})
    yield Text(
        f"{domain.metric} {domain.error} -> {projection.target}: {_range(projection.samples, domain.unit)}, "
        f"{_range(projection.parameters, 'parameters')}"
    )
    wide = options.max_width
    columns = [
        Column(""),
        *(Column(name, right=True) for name in (domain.unit.capitalize(), "Parameters")),
        *(Column(name, right=True, shown=wide >= 96) for name in map(tidy, (projection.growth, projection.batch))),
        *(Column(name, right=True) for name in ("FLOPs", "Bytes")),
        Column(TITLES.get(projection.held, "Held"), right=True, shown=wide >= 96 and bool(projection.held)),
        Column("Step", right=True),
        Column("bound by", shown=wide >= 118),
        Column("Epoch", right=True),
    ]
    yield columns_table(columns, [_requirement(row, projection) for row in projection.requirements])
    balance = "" if projection.ridge_batch is None else f"; {projection.batch} {projection.ridge_batch} reaches it"
    yield Padding(
        Text(
            f"{roof.name}: {format_count(roof.flops_per_s)}FLOP/s and "
            f"{format_count(roof.bytes_per_s)}B/s reached, "
            f"ridge {roof.ridge:.1f} FLOP/B{balance}\n"
            "low and high: what the rounding of the published constants leaves open",
            style="dim",
        ),
        (1, 0, 0, 0),
        expand=False,
    )


def _range(interval: Interval, unit: str) -> str:
    low, high = format_count(interval.low), format_count(interval.high)
    return f"{format_count(interval.value)} {unit}" + ("" if low == high else f" ({low} to {high})")


def _requirement(row: Requirement, projection: Projection) -> list[str]:
    return [
        row.label,
        format_count(row.samples),
        format_count(row.totals["parameters"]),
        f"{row.setting[projection.growth]:,}",
        f"{row.setting[projection.batch]:,}",
        format_count(row.totals["flops"]),
        format_bytes(row.totals["bytes"]),
        "-" if row.held_bytes is None else format_bytes(row.held_bytes),
        format_seconds(row.step_s),
        "compute" if row.compute_s >= row.memory_s else "memory",
        format_seconds(row.epoch_s),
    ]
