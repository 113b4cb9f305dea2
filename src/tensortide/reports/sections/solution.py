"""Section ``solution``: the value of one hyperparameter with which a total reaches a target."""

from __future__ import annotations

from tensortide.formulas.invert import Solution
from tensortide.reports.blocks import Column, Document, Fact, Facts, Note, Section, Table, UnitName
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.formulas import ranked, total_fact

__all__ = ["document"]


def document(solution: Solution) -> Document:
    """Show the value, what it reaches and what its neighbour would, and the totals there."""
    unit: UnitName = "bytes" if solution.in_bytes else "amount"
    reached = f"reaches {value_text(solution.reached, unit)}"
    facts = [
        Fact("symbol", "", solution.symbol, data=True),
        Fact("value", "", solution.value, "count", data=True),
        Fact("target", "", solution.target, data=True),
        Fact("kind", "", solution.kind, data=True),
        Fact("reached", "", solution.reached, unit, data=True),
        Fact("proved", "", solution.proved, "flag", data=True),
    ]
    if solution.beyond is not None:
        value, beyond = solution.beyond
        reached += f"; {solution.symbol} = {value:,} would reach {value_text(beyond, unit)}"
        facts.append(Fact("beyond", "", value, "count", data=True))
        facts.append(Fact("beyond_reached", "", beyond, unit, data=True))
    how = "proved by the shape of the formulas" if solution.proved else "found by scanning: nothing is proved"
    names = ranked(solution.totals)
    values = Column("value", "", "number", tuple(solution.totals[name] for name in names))
    blocks = (
        Note(text=f"{reached} ({how})"),
        Facts(rows=tuple(facts)),
        Facts(title="Totals", key="totals", rows=tuple(total_fact(name, solution.totals[name]) for name in names)),
        Table(key="values", columns=(Column("total", "", "text", tuple(names)), values), top=0),
    )
    relation = "nearest to" if solution.kind == "nearest" else f"{solution.kind} with"
    return Document(
        title=f"{solution.symbol} = {solution.value:,}",
        subtitle=(f"{relation} {solution.target}",),
        settings={name: value for name, value in solution.setting.items() if name != solution.symbol},
        sections=(Section("solution", "Solution", blocks=blocks),),
    )
