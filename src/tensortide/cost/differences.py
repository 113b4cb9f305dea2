"""Two cost tables of one step side by side: every op in which they differ, each with the reason."""

from __future__ import annotations

import enum
import functools
from typing import Annotated

import msgspec

from tensortide.cost.table import QUANTITIES, ZERO, Quantity, Table
from tensortide.expr import Expr, total
from tensortide.shown import Show


class Difference(msgspec.Struct, frozen=True):
    """One quantity of one op in both tables, summed over its runs."""

    name: Annotated[str, Show("Op", "path", fold=True)]
    type: Annotated[str, Show("Type")]
    quantity: Annotated[Quantity, Show()]
    theirs: Expr
    ours: Expr
    reason: enum.StrEnum

    @property
    def change(self) -> Expr:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def reason_name(self) -> Annotated[str, Show("Reason", dim=True)]:
        """The reason in a word."""
        return self.reason.name.lower()


class Comparison(msgspec.Struct, frozen=True, dict=True):
    """The table of another tool beside ours, and all ops in which they differ.

    The changes sum to the difference of the totals, exactly. A member of the enumeration of reasons has a name and,
    for its value, a sentence.
    """

    theirs: Table
    ours: Table
    differences: tuple[Difference, ...]

    @functools.cached_property
    def by_reason(self) -> dict[Quantity, dict[enum.StrEnum, tuple[int, Expr]]]:
        """The ops that differ, counted, and their changes, by quantity and reason."""
        groups: dict[Quantity, dict[enum.StrEnum, list[Expr]]] = {quantity: {} for quantity in QUANTITIES}
        for difference in self.differences:
            groups[difference.quantity].setdefault(difference.reason, []).append(difference.change)
        return {q: {reason: (len(all), total(all)) for reason, all in found.items()} for q, found in groups.items()}

    def by_type(self, quantity: Quantity) -> dict[str, tuple[Expr, Expr, tuple[enum.StrEnum, ...]]]:
        """Per op type: theirs, ours, and the reasons of the ops that differ."""
        theirs, ours = (table.by(lambda row: row.type) for table in (self.theirs, self.ours))
        reasons: dict[str, dict[enum.StrEnum, None]] = {}
        for difference in self.differences:
            if difference.quantity == quantity:
                reasons.setdefault(difference.type, {})[difference.reason] = None
        none = {quantity: ZERO}
        return {
            kind: (theirs.get(kind, none)[quantity], ours.get(kind, none)[quantity], tuple(reasons.get(kind, ())))
            for kind in dict.fromkeys([*theirs, *ours])
        }
