"""Section ``solution``: the value of one hyperparameter with which a total reaches a target."""

from __future__ import annotations

from tensortide.formulas.invert import Solution
from tensortide.reports.blocks import Column, Document, Fact, Facts, Note, Section, Table, UnitName, data_facts
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.formulas import TITLES, ranked, unit_of

__all__ = ["document"]


def document(solution: Solution) -> Document:
    """Show the value, what it reaches and what its neighbour would, and the totals there."""
    unit: UnitName = "bytes" if solution.in_bytes else "amount"
    reached = f"reaches {value_text(solution.reached, unit)}"
    facts = [*data_facts("text", symbol=solution.symbol, target=solution.target, kind=solution.kind)]
    facts += [*data_facts("count", value=solution.value), *data_facts("flag", proved=solution.proved)]
    facts += data_facts(unit, reached=solution.reached)
    if solution.beyond is not None:
        value, beyond = solution.beyond
        reached += f"; {solution.symbol} = {value:,} would reach {value_text(beyond, unit)}"
        facts += [*data_facts("count", beyond=value), *data_facts(unit, beyond_reached=beyond)]
    how = "proved by the shape of the formulas" if solution.proved else "found by scanning: nothing is proved"
    names = ranked(solution.totals)
    totals = tuple(Fact(name, TITLES.get(name, name), solution.totals[name], unit_of(name)) for name in names)
    values = Column("value", "", "number", tuple(solution.totals[name] for name in names))
    blocks = (
        Note(text=f"{reached} ({how})"),
        Facts(rows=tuple(facts)),
        Facts(title="Totals", key="totals", rows=totals),
        Table(key="values", columns=(Column("total", "", "text", tuple(names)), values), top=0),
    )
    made = Section("solution", "Solution", blocks=blocks)
    title, settings = f"{solution.symbol} = {solution.value:,}", dict(solution.setting)
    settings.pop(solution.symbol, None)
    relation = "nearest to" if solution.kind == "nearest" else f"{solution.kind} with"
    return made.document(title, f"{relation} {solution.target}", settings=settings)
