"""Tables of differences: pairs of two trees of amounts (``tensortide.differences``), shown as their fields declare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from tensortide.differences import Amounts, Both, Node, Pair, Together, Values, match
from tensortide.graph.module_paths import as_one
from tensortide.reports.blocks import Column, Fact, Table, UnitName
from tensortide.reports.folding import Folding
from tensortide.reports.of_records import fields, value_of
from tensortide.reports.render.values import fact_text, value_text

A = TypeVar("A", bound=Amounts)
T = TypeVar("T", Node[Any], Pair[Any])
SIDES = ("A", "B")
ALIKE = 0.02
"""Siblings fold if their differences of their first amount differ by no more than this part."""


def table(
    kind: type[A],
    rows: Sequence[Both[A]],
    *names: str | Column,
    key: str,
    sides: tuple[str, str] = SIDES,
    keys: tuple[str, str] = ("a", "b"),
    **options: Any,
) -> Table:
    """Make the Table of ``rows``, whose amounts are of ``kind``; ``options`` are those of a Table, and the columns are
    as in ``columns``."""
    return Table(key=key, columns=columns(kind, rows, *names, sides=sides, keys=keys), **options)


def columns(
    kind: type[A],
    rows: Sequence[Both[A]],
    *names: str | Column,
    sides: tuple[str, str] = SIDES,
    keys: tuple[str, str] = ("a", "b"),
    **changes: Any,
) -> tuple[Column, ...]:
    """Make the columns ``names`` of ``rows``, in this order, with ``changes`` of how their fields are declared.

    A name is that of a field or property of ``kind`` after what is shown of it: ``a.flops`` and ``b.flops`` of both
    ``sides``, ``difference.flops`` with its sign, ``change.flops`` as a part of the first, ``own.flops``, the
    difference without what is inside. Keys are ``a_flops``, ``b_flops`` (or as ``keys`` call the sides),
    ``difference_flops``, ``flops_change`` and ``own_difference_flops``; ``change.flops as change`` is one called
    otherwise. A Column among the names stands as it is. Differences and changes that are all 0 are for data alone.
    """
    split = [one.partition(" as ")[0].partition(".") for one in names if isinstance(one, str)]
    several = len({amount for _, _, amount in split}) > 1
    beside = {amount for part, _, amount in split if part in ("a", "b")}
    made: list[Column] = []
    for name in names:
        if isinstance(name, Column):
            made.append(name)
            continue
        dotted, _, key = name.partition(" as ")
        part, _, amount = dotted.partition(".")
        title = fields(kind)[amount].show.title
        difference = "difference" if amount in beside or not title else title
        titles = {"a": f"{title} of {sides[0]}" if several and title else sides[0], "b": sides[1], "change": "change"}
        called = {"a": f"{keys[0]}_{amount}", "b": f"{keys[1]}_{amount}", "change": f"{amount}_change"}
        key = key or called.get(part, f"{'own_' * (part == 'own')}difference_{amount}")
        one = _column(kind, rows, part, amount, key, titles.get(part, difference))
        made.append(msgspec.structs.replace(one, **changes) if changes else one)
    return tuple(made)


def _column(kind: type[A], rows: Sequence[Both[A]], part: str, amount: str, key: str, title: str) -> Column:
    show, unit = fields(kind)[amount].show, fields(kind)[amount].unit
    both = [one.values(amount, own=part == "own") for one in rows]
    options: dict[str, Any] = {"zero": "-" if show.zero is None else show.zero, "at_width": show.at_width}
    if part in ("a", "b"):
        values = tuple(value_of(one, [part], unit) for one in both)
        return Column(key, title, unit, values, sum=show.sum, bar=show.bar, data=show.data, **options)
    shown = "change" if part == "change" else "difference"
    unit = "change" if part == "change" else unit
    values = tuple(value_of(one, [shown], unit) for one in both)
    if shown == "difference":
        options["before"] = tuple("+" if isinstance(value, int | float) and value > 0 else "" for value in values)
    return Column(key, title, unit, values, data=show.data or part == "own" or not any(values), **options)


def of_facts(a: Iterable[Fact], b: Iterable[Fact], sides: tuple[str, str] = SIDES, **options: Any) -> Table:
    """Make the Table of the facts that both have, a row each. What is shown is text, because units differ by row."""
    pairs = [(x, y) for x, y in match(a, b, lambda fact: fact.key) if x and y]
    both = [Values(*(one.value if isinstance(one.value, int | float) else None for one in pair)) for pair in pairs]
    columns = (
        Column("title", "Figure", "text", tuple(x.label for x, _ in pairs), fold=True),
        Column("a_text", sides[0], "number", tuple(fact_text(x) for x, _ in pairs)),
        Column("b_text", sides[1], "number", tuple(fact_text(y) for _, y in pairs)),
        Column("change", "difference", "change", tuple(values.change for values in both)),
        Column("name", "", "text", tuple(x.key for x, _ in pairs), data=True),
        Column("a", "", "number", tuple(values.a for values in both), data=True),
        Column("b", "", "number", tuple(values.b for values in both), data=True),
    )
    return Table(columns=columns, depth=tuple(x.level for x, _ in pairs), **{"key": "figures", **options})


def signed_text(value: float | None, unit: UnitName) -> str:
    """Print a difference with its sign, and ``-`` for none."""
    return f"{'+' if value > 0 else ''}{value_text(value, unit)}" if value else "-"


def change_text(both: Values, unit: UnitName) -> str:
    """Print a change in percent, or as a factor if it is large: ``+12.4 % (3.17 T → 3.56 T)``, or ``0 → 3 GiB``."""
    (before, after), share = (value_text(one, unit) for one in both), both.change
    shown = f"{before} → {after}" if before != after else signed_text(both.difference, unit)
    if share is None:
        return f"({shown})"
    percent = f"{100 * share:+.2g} %" if abs(share) < 0.01 else f"{100 * share:+.1f} %"
    return f"{f'{share + 1:.1f}x' if share >= 2 else percent} ({shown})"


# -- trees ------------------------------------------------------------------------------------------


def levels(root: T, depth: int = 0) -> Iterator[tuple[T, int]]:
    """Yield all pairs inside one, or all nodes, with their levels."""
    for child in root.children:
        yield child, depth
        yield from levels(child, depth + 1)


def folded(root: Pair[A], names: Sequence[str], depth: int, exactly: Sequence[str] = ()) -> list[Together[A]]:
    """List the pairs inside one that differ, the largest difference in the amounts ``names`` first, down to ``depth``
    levels.

    Numbered siblings that differ alike in the first amount, and in those called ``exactly`` by as much, are one row,
    and a node that only encloses one that differs shares its row.
    """
    rules = _Folder(root, names, exactly)
    return [Together(some, name, level) for some, name, level in rules.rows(rules.inside([root]), depth)]


class _Folder(Folding[Pair[A]]):
    def __init__(self, root: Pair[A], names: Sequence[str], exactly: Sequence[str]) -> None:
        self.names = names
        pairs = [*root.walk()]
        own = [[one.values(name, own=True).difference or 0 for one in pairs] for name in names]
        self.scale = [sum(map(abs, values)) or 1 for values in own]
        self.differing: set[Pair[A]] = set()
        self.shapes: dict[Pair[A], int] = {}
        known: dict[object, int] = {}
        for pair in reversed(pairs):
            name = "" if pair.name[:1].isdigit() else pair.name
            figures = tuple(pair.values(one).difference for one in exactly)
            shape = pair.kind, name, figures, tuple(self.shapes[child] for child in pair.children)
            self.shapes[pair] = known.setdefault(shape, len(known))
            if pair.own[0] != pair.own[1] or not self.differing.isdisjoint(pair.children):
                self.differing.add(pair)

    def only_encloses(self, some: Sequence[Pair[A]]) -> bool:
        """Tell whether only what is inside of nodes differs."""
        return some[0].kind == "changed" and all(pair.own[0] == pair.own[1] for pair in some)

    def name(self, some: Sequence[Pair[A]]) -> str:
        """Name pairs by the numbers of both sides, where they differ."""
        sides = ([pair.a for pair in some], [pair.b for pair in some])
        names = ([node.name for node in nodes if node is not None] for nodes in sides)
        return " → ".join(dict.fromkeys(as_one(one) for one in names if one))

    def inside(self, some: Sequence[Pair[A]]) -> list[list[Pair[A]]]:
        """Group what differs, the largest difference first; nothing inside nodes that one side alone has."""
        groups = [] if some[0].kind in ("added", "removed") else super().inside(some)
        return sorted(groups, key=lambda group: -self._weight(group))

    def stands(self, same: Sequence[Pair[A]]) -> bool:
        """Tell whether one of several pairs differs."""
        return not self.differing.isdisjoint(same)

    def alike(self, one: Pair[A], other: Pair[A]) -> bool:
        """Tell whether two numbered pairs differ alike."""
        if not (one.name[:1].isdigit() and other.name[:1].isdigit() and self.shapes[one] == self.shapes[other]):
            return False
        a, b = (pair.values(self.names[0]).difference or 0 for pair in (one, other))
        return bool(abs(a - b) <= ALIKE * max(abs(a), abs(b)))

    def _weight(self, group: Sequence[Pair[A]]) -> float:
        """The largest share of an amount's difference that a group has."""
        sums = [Together(group).values(name).difference or 0 for name in self.names]
        return float(max(abs(value) / scale for value, scale in zip(sums, self.scale, strict=True)))
