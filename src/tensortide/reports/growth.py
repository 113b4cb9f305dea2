"""What costs become as a model grows, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from tensortide.expr import text
from tensortide.formulas.asymptotics import Asymptotics, Growth, Intensity
from tensortide.formulas.shares import Share
from tensortide.reports.formulas import TITLES, formula_table, print_parts, ranked, title
from tensortide.reports.layout import Column, bar, columns_table, heading, tidy
from tensortide.units import format_percent

__all__ = ["render_asymptotics"]


def render_asymptotics(
    found: Asymptotics, terms: Mapping[str, Sequence[Share]], console: Console, *, top: int = 4
) -> None:
    """Print what each total grows into, per parameter, the intensity, and the largest of its ``terms``."""
    print_parts(console, _asymptotics(found, terms, console.options, top))


def _asymptotics(
    found: Asymptotics, terms: Mapping[str, Sequence[Share]], options: ConsoleOptions, top: int
) -> Iterator[RenderableType]:
    yield title(found.workload, f"as {tidy(found.growth)} grows, with p parameters; values at", found.setting)
    yield heading("Per parameter", "the limit, then the next term")
    table = formula_table()
    for growth in (found[name] for name in ranked(growth.name for growth in found.totals)):
        for row in _growth_rows(growth, found.setting):
            table.add_row(*row)
    yield table
    if found.intensity is not None:
        yield heading("FLOPs per byte accessed", "operational intensity")
        yield _intensity(found.intensity, found)
    yield heading("Largest terms", "of each total, at the values above")
    yield _shares(terms, options, top)
    for note in found.notes:
        yield Text(f"note: {_short(note, 400)}", style="dim")


def _short(formula: str, most: int = 160) -> str:
    """A formula for a reader: the middle of a long one is left out."""
    formula = tidy(formula)
    return formula if len(formula) <= most else f"{formula[: most // 2]} ... {formula[-most // 3 :]}"


def _growth_rows(growth: Growth, setting: Mapping[str, int]) -> Iterator[tuple[RenderableType, ...]]:
    name = TITLES.get(growth.name, growth.name)
    if growth.name == "parameters":
        yield Text(name, "bold"), Text(_short(f"p = {text(growth.leading)} + ...")), ""
        return
    value = growth.per_parameter.value(setting)
    limit = growth.per_parameter.power == 0
    yield Text(name, "bold"), Text(_short(str(growth.per_parameter))), f"{value:,.6g}" if limit else ""
    if growth.per_parameter_next is not None:
        following = str(growth.per_parameter_next)
        signed = f"- {following[1:]}" if following.startswith("-") else f"+ {following}"
        yield "", Text(_short(signed, 240), "dim"), ""


def _intensity(intensity: Intensity, found: Asymptotics) -> RenderableType:
    table, batch = formula_table(), found.batch
    root = "sqrt(p)" if found.degree == 2 else "p" if found.degree == 1 else f"p**(1/{found.degree})"
    if intensity.u is not None and intensity.w is not None:
        table.add_row(Text("about", "bold"), Text(f"{batch}*{root}/(u*{root} + w*{batch})"), "")
        table.add_row("  u", Text(str(intensity.u)), f"{float(intensity.u.value(found.setting)):,.4g}")
        table.add_row("  w", Text(str(intensity.w)), f"{intensity.w.value(found.setting):,.4g}")
    value = f"{float(intensity.large_model.value(found.setting)):,.4g}"
    table.add_row(Text("large model", "bold"), Text(_short(str(intensity.large_model))), value)
    if intensity.large_batch is not None:
        value = f"{float(intensity.large_batch.value(found.setting)):,.4g}"
        table.add_row(Text(f"large {batch}", "bold"), Text(_short(str(intensity.large_batch), 240)), value)
    return table


def _shares(terms: Mapping[str, Sequence[Share]], options: ConsoleOptions, top: int) -> RenderableType:
    rows = []
    for name in ranked(terms):
        for i, share in enumerate(terms[name][:top]):
            part = bar(share.share, 8, options.ascii_only)
            rows.append(("" if i else TITLES.get(name, name), _short(share.term), format_percent(share.share), part))
    columns = [Column("Total"), Column("Term", fold=True), Column("share", right=True), Column("")]
    return columns_table(columns, rows, first=False)
