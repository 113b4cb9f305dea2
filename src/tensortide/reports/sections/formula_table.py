"""Tables of formulas: a name, an expression and its value on each line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tensortide.expr import Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.expr.names import Names
from tensortide.formulas.quantities import quantity
from tensortide.reports.blocks import Column, Note, Table, UnitName, Value
from tensortide.reports.render.values import value_text

__all__ = ["EXACT", "Line", "formula_table", "names_table", "without_workspace"]

UNNAMED = Names()
EXACT = 1000
"""From this value on a rounded value says less than the exact one."""


class Line(NamedTuple):
    """A line: ``formula`` is an expression or, where there is none, what to say instead. ``key`` names it in data.

    A maximum of several moments is not shown if ``moments`` says where they are.
    """

    name: str
    formula: Expr | str
    value: Value
    unit: UnitName
    key: str = ""
    moments: str = ""


def formula_table(
    key: str,
    title: str,
    lines: Iterable[Line],
    *,
    names: Names = UNNAMED,
    exact: bool = False,
    remark: str = "",
    top: int | None = None,
) -> Table:
    """Lines of name, formula and value. Values are text in the views, as each line has its own unit.

    Data have every expression in full; ``names`` shorten those that are shown. ``exact`` shows values to the unit too.
    """
    found = list(lines)
    exact_texts = (text(line.formula) if isinstance(line.formula, Expr) else None for line in found)
    rounded = (_rounded(line, exact) for line in found)
    columns = [
        Column("name", "", "name", tuple(line.name for line in found), fold=True),
        Column("formula", "", "code", tuple(_shown(line, names) for line in found), fold=True),
        Column("value", "", "count" if exact else "number", tuple(line.value for line in found), data=not exact),
        Column("shown", "", "number", tuple(rounded)),
        Column("expression", "", "code", tuple(exact_texts), data=True),
        Column("total", "", "text", tuple(line.key for line in found), data=True),
    ]
    kept = [c for c in columns if any(c.values) or c.key not in ("expression", "total")]
    rest = f"and {len(found) - top} more" if top is not None and len(found) > top else ""
    return Table(key=key, title=title, remark=remark, columns=tuple(kept), top=top, rest=rest)


def _rounded(line: Line, exact: bool) -> str:
    """The value in its unit; nothing where the exact one beside it says the same."""
    few = line.value is None or (isinstance(line.value, int) and line.unit == "amount" and line.value < EXACT)
    return "" if exact and few else value_text(line.value, line.unit)


def _shown(line: Line, names: Names) -> str:
    if isinstance(line.formula, str):
        return line.formula
    number = len(alternatives(line.formula))
    return (
        f"the largest of {number} moments, {line.moments}" if line.moments and number > 1 else names.text(line.formula)
    )


def without_workspace(names: Iterable[str]) -> Iterable[Note]:
    """Say what memory leaves out, if it is among the totals ``names``."""
    if any(quantity(name).title.startswith(("Peak", "Least")) and "workspace" not in name for name in names):
        yield Note(text="peak and least memory are without the workspace of kernels, which report and memory include")


def names_table(names: Names) -> Iterable[Table]:
    """Return what the names in formulas stand for, if there are any."""
    if names.meanings:
        columns = (
            Column("name", "", "name", tuple(f"{name} =" for name in names.meanings)),
            Column("formula", "", "code", tuple(names.meanings.values()), fold=True),
        )
        yield Table(key="names", title="Names", remark="for what the formulas repeat", columns=columns)
