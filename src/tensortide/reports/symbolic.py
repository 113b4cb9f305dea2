"""The formulas of a step as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tensortide.expr import Condition, Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.formulas.formulas import QUANTITIES
from tensortide.formulas.result import Symbolic
from tensortide.reports.formulas import TITLES, shown_total
from tensortide.reports.layout import Trimmed, heading, tidy

__all__ = ["condition_text", "render_symbolic", "symbolic_plain"]

_MEASURES = {"flops": "FLOPs", "bytes": "bytes"}


def render_symbolic(found: Symbolic, console: Console, *, depth: int, top: int) -> None:
    """Print every total as a formula with its value, then FLOPs and bytes by phase, module and op."""
    values = found.evaluate()
    for part in _parts(found, values, depth, top):
        console.print(Trimmed(part), highlight=False, end="")


def _parts(found: Symbolic, values: Mapping[str, int], depth: int, top: int) -> Iterator[RenderableType]:
    title = Text(tidy(found.formulas.workload) or "formulas", style="bold")
    title.append(f"  formulas in {', '.join(found.symbols)}", style="not bold")
    setting = "  ".join(f"{name}={value}" for name, value in found.formulas.defaults.items())
    title.append(f"\nvalues at {tidy(setting)}", style="not bold dim")
    yield title
    yield heading("Totals")
    table = _table()
    for name, expr in found.formulas.totals.items():
        shown, moments = text(expr), len(alternatives(expr))
        if moments > 1:
            shown = f"the largest of {moments} moments, {'see below' if name == 'peak_bytes' else 'in --json'}"
        table.add_row(Text(TITLES.get(name, tidy(name)), "bold"), Text(shown), shown_total(name, values.get(name)))
    yield table
    if found.regimes:
        yield from _peak(found)
    for measure, unit in _MEASURES.items():
        if f"{measure}" in found.formulas.totals:
            yield heading(f"{unit} by phase")
            yield _breakdown(found, found.by_phase(measure), measure, top)
            yield heading(f"{unit} by module", "what is inside included; * stands for the numbers of repeated modules")
            modules = {p: e for p, e in found.by_module(measure).items() if p.count(".") < depth}
            yield _breakdown(found, modules, measure, None)
            yield heading(f"{unit} by op", f"the {top} largest")
            yield _breakdown(found, found.by_op(measure), measure, top)
    yield from _remarks(found)


def _table() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=34)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(no_wrap=True, justify="right")
    return table


def _peak(found: Symbolic) -> Iterator[RenderableType]:
    """The moment of the peak, and how far each symbol may move before another moment is the peak."""
    regime = found.regime()
    yield heading("Peak", "bytes of the storages that are alive; kernels' own workspace is not in it")
    table = _table()
    setting = found.formulas.defaults
    table.add_row(Text("here", "bold"), Text(text(regime.bytes)), shown_total("bytes", regime.bytes.evaluate(setting)))
    table.add_row("", Text(f"during {tidy(regime.place)}", "dim"), "")
    reaches = []
    for name in found.symbols:
        low, high = found.reach(name)
        if low > 1 or high is not None:
            reaches.append(f"{name} {low:,} and up" if high is None else f"{name} {low:,} to {high:,}")
    held = f"for {'; '.join(reaches)} (one at a time)" if len(found.regimes) > 1 and reaches else "at any setting"
    table.add_row(Text("holds", "bold"), Text(tidy(held)), "")
    others = [other for other in found.regimes if other is not regime]
    for other in sorted(others, key=lambda o: -o.bytes.evaluate(setting))[:3]:
        table.add_row("else", Text(text(other.bytes)), shown_total("bytes", other.bytes.evaluate(setting)))
        table.add_row("", Text(f"during {tidy(other.place)}", "dim"), "")
    yield table
    if len(others) > 3:
        yield Text(f"and {len(others) - 3} more, in --json", style="dim")


def _breakdown(found: Symbolic, parts: Mapping[str, Expr | None], measure: str, top: int | None) -> RenderableType:
    table = _table()
    setting = found.formulas.defaults
    valued = [(name, expr, -1 if expr is None else expr.evaluate(setting)) for name, expr in parts.items()]
    if top is not None:
        valued = sorted(valued, key=lambda part: -part[2])[:top]
    for name, expr, value in valued:
        if expr is None:
            table.add_row(tidy(name), Text("no formula", "yellow"), "")
        elif value:
            table.add_row(tidy(name), Text(text(expr)), shown_total(measure, value))
    return table


def _remarks(found: Symbolic) -> Iterator[RenderableType]:
    yield heading("Where they hold")
    table = _table()
    for condition in found.formulas.region:
        table.add_row("if", Text(condition_text(condition)), "")
    further: dict[Condition, list[str]] = {}
    for name, asked in found.formulas.only.items():
        for condition in asked:
            further.setdefault(condition, []).append(TITLES.get(name, tidy(name)))
    for condition, names in further.items():
        table.add_row("if", Text(f"{condition_text(condition)}; for these only: {'; '.join(names)}"), "")
    fixed = ", ".join(f"{name}={value}" for name, value in found.settings.items())
    if fixed:
        table.add_row("with", Text(tidy(fixed)), "")
    for name, reason in found.structural.items():
        table.add_row("structure", Text(tidy(f"{name} changes it: {reason}")), "")
    for name, reason in found.held.items():
        table.add_row(Text("held", "yellow"), Text(tidy(f"{name}={found.settings.get(name)}: {reason}")), "")
    for remark in found.numeric:
        table.add_row(Text("no formula", "yellow"), Text(tidy(remark)), "")
    for name, count in found.unknown.items():
        table.add_row(Text("unknown", "yellow"), Text(tidy(f"{name} x{count} has no cost rule and adds nothing")), "")
    missing = [name for name in QUANTITIES if name not in found.formulas.totals and not name.startswith("minimal")]
    for name in missing:
        table.add_row(Text("no formula", "yellow"), Text(f"{name}: {QUANTITIES[name]}"), "")
    checked = f"{found.captures} captures; compared with {len(found.checked)} that no formula was made from"
    table.add_row("from", Text(checked), "")
    for note in found.notes:
        table.add_row("note", Text(tidy(note)), "")
    yield table


def condition_text(condition: Condition) -> str:
    """A condition for people: ``12 divides hidden`` rather than a floor."""
    divisor = condition.divisor
    return str(condition) if divisor is None else f"{text(divisor[0])} divides {text(divisor[1])}"


def symbolic_plain(found: Symbolic) -> dict[str, object]:
    """The formulas as plain data: text of expressions, values at the defaults."""
    values = found.evaluate()

    def shown(expr: Expr | None) -> str | None:
        return None if expr is None else text(expr)

    return {
        "workload": found.formulas.workload,
        "symbols": dict(found.formulas.defaults),
        "totals": {name: {"formula": text(e), "value": values.get(name)} for name, e in found.formulas.totals.items()},
        "region": [str(condition) for condition in found.formulas.region],
        "only": {name: [str(c) for c in asked] for name, asked in found.formulas.only.items()},
        "regimes": [{"phase": r.phase, "module": r.module, "op": r.op, "bytes": text(r.bytes)} for r in found.regimes],
        "flops_by_phase": {name: shown(expr) for name, expr in found.by_phase().items()},
        "flops_by_module": {name: shown(expr) for name, expr in found.by_module().items()},
        "rows": [
            {
                "phase": row.phase,
                "module": row.module,
                "op": row.op,
                "count": shown(row.count),
                "product_flops": shown(row.product_flops),
                "elementwise_flops": shown(row.elementwise_flops),
                "bytes": shown(row.bytes),
            }
            for row in found.rows
        ],
        "structural": dict(found.structural),
        "held": dict(found.held),
        "settings": dict(found.settings),
        "numeric": list(found.numeric),
        "unknown": dict(found.unknown),
        "captures": found.captures,
        "checked": [dict(setting) for setting in found.checked],
        "notes": list(found.notes),
    }
