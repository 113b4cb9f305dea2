"""Section ``solution``: the value of one hyperparameter with which a total reaches a target."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensortide.formulas.formulas import told
from tensortide.formulas.quantities import quantity, ranked
from tensortide.formulas.solution import Solution
from tensortide.reports.blocks import (
    AnyBlock,
    Column,
    Document,
    Fact,
    Facts,
    Note,
    Section,
    Table,
    UnitName,
    data_facts,
)
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.formula_table import EXACT, without_workspace

__all__ = ["document"]


def document(solution: Solution) -> Document:
    """Show the value, what it reaches and what its neighbour would, and the totals there."""
    unit: UnitName = "bytes" if solution.in_bytes else "amount"
    text, next_text = _texts(solution, unit)
    reached = f"reaches {text}" if solution.met else f"reaches {text}: no value meets the target exactly"
    facts = [*data_facts("text", symbol=solution.symbol, target=solution.target, kind=solution.kind)]
    facts += [*data_facts("count", value=solution.value), *data_facts("flag", proved=solution.proved)]
    facts += data_facts(unit, reached=solution.reached)
    if solution.neighbour is not None:
        value, other = solution.neighbour
        reached += f"; {solution.symbol} = {value:,} would reach {next_text}"
        facts += [*data_facts("count", neighbour=value), *data_facts(unit, neighbour_reached=other)]
    if solution.limited_by:
        reached += f"; limited by {solution.limited_by}"
        facts += data_facts("text", limited_by=solution.limited_by)
    facts += data_facts("flag", met=solution.met, by_shape=solution.by_shape, unlimited=solution.unlimited)
    facts += data_facts("text", captured=", ".join(map(str, solution.captured)), unchecked=solution.unchecked)
    facts += data_facts("text", extrapolated=told(solution.extrapolated))
    names = ranked(solution.totals)
    totals = tuple(_total(name, solution.totals[name]) for name in names)
    values = Column("value", "", "number", tuple(solution.totals[name] for name in names))
    blocks: tuple[AnyBlock, ...] = (
        Note(text=reached),
        *_certainty(solution),
        *without_workspace(re.split(r"\W+", solution.target)),
        Facts(rows=tuple(facts)),
        Facts(title="Totals", key="totals", rows=totals),
        Table(key="values", columns=(Column("total", "", "text", tuple(names)), values), top=0),
    )
    made = Section("solution", "Solution", blocks=blocks)
    title, settings = f"{solution.symbol} = {solution.value:,}", dict(solution.setting)
    settings.pop(solution.symbol, None)
    relation = "nearest to" if solution.kind == "nearest" else f"{solution.kind} with"
    return made.document(title, f"{relation} {solution.target}", settings=settings)


def _total(name: str, value: int) -> Fact:
    """A total, rounded, with the exact value beside it where that says more."""
    title, unit, _ = quantity(name)
    return Fact(name, title, value, unit, remark=f"{value:,}" if value >= EXACT else "")


def _certainty(solution: Solution) -> Iterator[Note]:
    """Say how sure the answer is: what its search proves, what was captured, and what was not tested."""
    name = solution.symbol
    search = "the formulas cross the target only once" if solution.by_shape else "found by scanning"
    places = " and ".join(f"{name} = {value:,}" for value in solution.captured)
    captured = f"captured at {places}: all totals equal the formulas" if places else ""
    if solution.proved:
        yield Note(text=f"proved: {captured}; {search}", kind="verdict")
    else:
        unproved = "not checked" if not captured else "checked, not proved"
        yield Note(text=f"{unproved}: {'; '.join(filter(None, (solution.unchecked, captured, search)))}")
    if solution.unlimited:
        yield Note(text=f"no larger {name} fails the target, as far as the formulas go", kind="warning")
    if solution.extrapolated:
        yield Note(text=f"extrapolated: {told(solution.extrapolated)}", kind="warning")


def _texts(solution: Solution, unit: UnitName) -> tuple[str, str]:
    """Print what the value reaches and what its neighbour would; exactly where a value was to be reached, and where
    rounding makes them equal."""
    values = [solution.reached, solution.reached if solution.neighbour is None else solution.neighbour[1]]
    first, second = (value_text(value, unit) for value in values)
    if solution.kind == "nearest" or (first == second and values[0] != values[1]):
        first, second = (f"{value:,.15g}" + " B" * (unit == "bytes") for value in values)
    return first, second
