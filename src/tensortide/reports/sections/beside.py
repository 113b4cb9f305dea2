"""Facts of two results side by side."""

from __future__ import annotations

from collections.abc import Iterable

from tensortide.reports.blocks import Column, Fact, Facts, Section, Tree
from tensortide.reports.render.values import fact_text

__all__ = ["facts_of", "facts_table"]


def facts_of(section: Section) -> list[Fact]:
    """List the facts of ``section`` that have a label and a number."""
    rows = [fact for block in section.blocks if isinstance(block, Facts) for fact in block.rows]
    return [fact for fact in rows if fact.label and isinstance(fact.value, int | float)]


def facts_table(
    a: Iterable[Fact], b: Iterable[Fact], names: tuple[str, str] = ("A", "B"), *, key: str = "figures", title: str = ""
) -> Tree:
    """Show the facts that both have, a row each. The columns are text, because units differ by row."""
    others = {fact.key: fact for fact in b}
    pairs = [(fact, others[fact.key]) for fact in a if fact.key in others]
    values = [tuple(fact.value if isinstance(fact.value, int | float) else None for fact in pair) for pair in pairs]
    return Tree(
        key=key,
        title=title,
        columns=(
            Column("figure", "Figure", "text", tuple(fact.label for fact, _ in pairs), fold=True),
            Column("a", names[0], "number", tuple(fact_text(fact) for fact, _ in pairs)),
            Column("b", names[1], "number", tuple(fact_text(fact) for _, fact in pairs)),
            Column(
                "change", "difference", "change", tuple(y / x - 1 if x and y is not None else None for x, y in values)
            ),
            Column("key", "", "text", tuple(fact.key for fact, _ in pairs), data=True),
            Column("a_value", "", "number", tuple(x for x, _ in values), data=True),
            Column("b_value", "", "number", tuple(y for _, y in values), data=True),
        ),
        depth=tuple(fact.level for fact, _ in pairs),
    )
