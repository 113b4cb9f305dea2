"""Tables of formulas: a name, an expression and its value on each line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from tensortide.expr import Expr, text
from tensortide.expr.atoms import alternatives
from tensortide.expr.names import Names
from tensortide.formulas.quantities import quantity
from tensortide.reports.blocks import Column, Note, Table, UnitName, Value
from tensortide.reports.of_records import column, table
from tensortide.reports.render.values import value_text
from tensortide.shown import Show

UNNAMED = Names()
EXACT = 1000
"""From this value on a rounded value says less than the exact one."""


class Line(NamedTuple):
    """A line: ``formula`` is an expression or, where there is none, what to say instead. ``total`` names it in data.

    A maximum of several moments is not shown if ``moments`` says where they are.
    """

    name: Annotated[str, Show(unit="name", fold=True)]
    formula: Expr | str
    value: Annotated[Value, Show(unit="number")]
    unit: UnitName
    total: str = ""
    moments: str = ""

    @property
    def expression(self) -> Annotated[str | None, Show(unit="code", data=True)]:
        """The formula in full."""
        return text(self.formula) if isinstance(self.formula, Expr) else None

    def words(self, names: Names) -> str:
        """The formula with ``names`` for what it repeats."""
        if isinstance(self.formula, str):
            return self.formula
        number = len(alternatives(self.formula)) if self.moments else 1
        return f"the largest of {number} moments, {self.moments}" if number > 1 else names.text(self.formula)

    def rounded(self, exact: bool) -> str:
        """The value in its unit; nothing where the ``exact`` one beside it says the same."""
        few = self.value is None or (isinstance(self.value, int) and self.unit == "amount" and self.value < EXACT)
        return "" if exact and few else value_text(self.value, self.unit)


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
    rows = list(lines)
    formulas = Column("formula", "", "code", tuple(row.words(names) for row in rows), fold=True)
    value = column(Line, rows, "value", unit="count" if exact else "number", data=not exact)
    shown = Column("shown", "", "number", tuple(row.rounded(exact) for row in rows))
    further = [one for name in ("expression", "total") if any((one := column(Line, rows, name)).values)]
    texts = {"title": title, "remark": remark, "rest": f"and {len(rows) - (top or 0)} more"}
    return table(Line, rows, "name", formulas, value, shown, *further, key=key, top=top, **texts)


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
