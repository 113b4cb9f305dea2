"""Modules of two steps: those that differ, equal siblings folded; on the page all, and both trees side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensortide.metrics.differences.join import Pair
from tensortide.metrics.differences.side import NOTHING, WHOLE, Amounts
from tensortide.metrics.differences.step import StepDifference
from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table, UnitName
from tensortide.reports.sections.comparison_columns import change, difference

__all__ = ["Row", "folded", "section"]

ALIKE = 0.02
"""Siblings fold if their differences of FLOPs differ by no more than this part."""
FIGURES: tuple[tuple[str, str, UnitName, int], ...] = (
    ("flops", "FLOPs", "flops", 0),
    ("bytes", "Bytes", "bytes", 120),
    ("parameters", "Params", "amount", 0),
    ("saved", "Saved", "bytes", 90),
    ("peak", "At peak", "bytes", 0),
    ("time", "Time", "ns", 0),
    ("ops", "Ops", "count", 130),
)
"""Figures of a module with what is inside it; the least width of a terminal that shows their differences."""


class Row(msgspec.Struct, frozen=True):
    """A row of text: one pair of modules, or folded ones, with the sums of their figures."""

    name: str
    depth: int
    kind: str
    a: Amounts
    b: Amounts
    count: int = 1


def section(found: StepDifference, top: int, depth: int, tail: str = "") -> Section:
    """Make the section: what matched, the modules that differ, and both trees."""
    blocks: list[AnyBlock] = []
    rows = folded(found.root, depth)
    if rows:
        blocks.append(_differing(found, rows, top, depth))
    blocks.append(Note(text=str(found.matching), kind="coverage"))
    blocks += _trees(found)
    one, other = found.letters
    about = f"{other} less {one}, submodules included; the largest difference first"
    return Section(f"modules{tail}", "Where it differs" + f", {one} → {other}" * bool(tail), about, tuple(blocks))


def _differing(found: StepDifference, rows: Sequence[Row], top: int, depth: int) -> Table:
    several = tuple(f" x{row.count}" if row.count > 1 else "" for row in rows)
    columns = [
        Column("module", "Module", "path", tuple(row.name for row in rows), fold=True, after=several),
        Column(
            "kind", "", "text", tuple("" if row.kind in ("changed", "same") else row.kind for row in rows), dim=True
        ),
    ]
    alone = all(row.a.ops != row.b.ops and row.b - row.a == Amounts(row.b.ops - row.a.ops) for row in rows)
    for key, label, unit, width in FIGURES:
        values = [getattr(row.b, key) - getattr(row.a, key) for row in rows]
        columns.append(difference(key, label, unit, values, at_width=0 if alone else width, data=not any(values)))
        if key == "flops" and any(values):
            columns.append(change("change", "change", [(row.a.flops, row.b.flops) for row in rows]))
    levels = tuple(row.depth for row in rows)
    return Table(key="differing", columns=tuple(columns), depth=levels, to_depth=depth, top=top)


# -- the page ---------------------------------------------------------------------------------------


def _trees(found: StepDifference) -> Iterator[Table]:
    """Yield all modules joined, with the differences; then the modules of each side."""
    pairs = [(pair, depth) for pair, depth in _levels(found.root) if pair.path != WHOLE]
    numbers = {pair: number for number, (pair, _) in enumerate(pairs)}
    yield _joined(pairs, numbers)
    for side, letter in enumerate(found.letters):
        own = [(pair, depth) for pair, depth in pairs if (pair.a, pair.b)[side] is not None]
        yield _side(own, numbers, side, letter)


def _levels(pair: Pair, depth: int = -1) -> Iterator[tuple[Pair, int]]:
    yield pair, depth
    for child in pair.children:
        yield from _levels(child, depth + 1)


def _joined(pairs: Sequence[tuple[Pair, int]], numbers: dict[Pair, int]) -> Table:
    columns = [
        Column("module", "Module", "path", tuple(pair.name for pair, _ in pairs)),
        Column("kind", "", "text", tuple(pair.kind for pair, _ in pairs), pick=True),
    ]
    for key, label, unit, _ in FIGURES:
        whole = [[getattr(one, key) for one in pair.whole] for pair, _ in pairs]
        own = [[getattr(one, key) for one in pair.own] for pair, _ in pairs]
        columns.append(difference(key, label, unit, [b - a for a, b in whole], data=not any(a or b for a, b in whole)))
        for letter, side in (("a", 0), ("b", 1)):
            columns.append(Column(f"{letter}_{key}", "", unit, tuple(values[side] for values in whole), data=True))
        columns.append(Column(f"own_{key}", "", unit, tuple(b - a for a, b in own), data=True))
    unknown = [tuple(pair.whole[side].unknown for pair, _ in pairs) for side in (0, 1)]
    columns += (Column(f"{letter}_unknown_ops", "", "count", unknown[i], data=True) for i, letter in enumerate("ab"))
    columns += [
        Column("a_path", "", "path", tuple(pair.a.label if pair.a else "" for pair, _ in pairs), data=True),
        Column("b_path", "", "path", tuple(pair.b.label if pair.b else "" for pair, _ in pairs), data=True),
        Column("pair", "", "count", tuple(numbers[pair] for pair, _ in pairs), data=True),
    ]
    depth = tuple(depth for _, depth in pairs)
    return Table(key="modules", columns=tuple(columns), depth=depth, linked="pair", only="page")


def _side(pairs: Sequence[tuple[Pair, int]], numbers: dict[Pair, int], side: int, letter: str) -> Table:
    """The modules of one side, with the numbers of their pairs."""
    nodes = [node for pair, _ in pairs if (node := (pair.a, pair.b)[side]) is not None]
    columns = [
        Column("module", f"Module of {letter}", "path", tuple(node.name for node in nodes)),
        Column("type", "Type", "text", tuple(node.type for node in nodes), dim=True),
    ]
    for key, label, unit, _ in FIGURES:
        shown = key in ("flops", "parameters", "peak")
        values = tuple(getattr(node.whole, key) for node in nodes)
        columns.append(Column(key, label, unit, values, zero="-", data=not shown))
    columns.append(Column("pair", "", "count", tuple(numbers[pair] for pair, _ in pairs), data=True))
    depth = _depths([node.path for node in nodes])
    key = f"modules_{'ab'[side]}"
    return Table(key=key, columns=tuple(columns), depth=depth, linked="pair", beside=side == 1, only="page")


def _depths(paths: Sequence[str]) -> tuple[int, ...]:
    """The depth of each path below the path before it that contains it."""
    found: list[int] = []
    open_: list[str] = []
    for path in paths:
        while open_ and not (open_[-1] == "" != path != "(outside)" or path.startswith(f"{open_[-1]}.")):
            open_.pop()
        found.append(len(open_))
        open_.append(path)
    return tuple(found)


# -- folding ----------------------------------------------------------------------------------------


def folded(root: Pair, depth: int) -> list[Row]:
    """List the modules that differ, the largest difference first, down to ``depth`` levels.

    Numbered siblings that differ alike are one row, and a module that only encloses one that differs shares its row.
    """
    return list(_Folder(root).rows([root], -1, depth)) if root.children else []


class _Folder:
    def __init__(self, root: Pair) -> None:
        self.scale = {
            key: sum(abs(getattr(pair.own[1], key) - getattr(pair.own[0], key)) for pair in root.walk()) or 1
            for key, *_ in FIGURES
        }
        self.shapes: dict[Pair, int] = {}
        known: dict[object, int] = {}
        for pair in reversed([*root.walk()]):
            own = pair.difference
            below = tuple(self.shapes[child] for child in pair.children)
            shape = pair.kind, own.parameters, own.ops, "" if pair.name[0].isdigit() else pair.name, below
            self.shapes[pair] = known.setdefault(shape, len(known))

    def rows(self, members: Sequence[Pair], level: int, depth: int, prefix: str = "") -> Iterator[Row]:
        """Yield a row for modules that differ alike, then those inside them."""
        below = self._below(members)
        name = prefix + _name(members)
        top = members[0].path in (WHOLE, "")
        if members[0].path == WHOLE:
            for group in below:
                yield from self.rows(group, 0, depth)
            return
        own = any(pair.own[0] != pair.own[1] for pair in members)
        if len(below) == 1 and not own and members[0].kind == "changed":
            yield from self.rows(below[0], level, depth, "" if top else f"{name}.")
            return
        a, b = (sum((pair.whole[side] for pair in members), NOTHING) for side in (0, 1))
        yield Row(name, level, members[0].kind, a, b, len(members))
        if level < depth and members[0].kind not in ("added", "removed"):
            for group in below:
                yield from self.rows(group, level + 1, depth)

    def _below(self, members: Sequence[Pair]) -> list[list[Pair]]:
        """Group the children of all members that differ, position by position, the largest difference first."""
        groups: list[list[Pair]] = []
        for same in zip(*(pair.children for pair in members), strict=True):
            if not any(map(_differs, same)):
                continue
            if groups and self._alike(groups[-1][-1], same[0]):
                groups[-1].extend(same)
            else:
                groups.append(list(same))
        return sorted(groups, key=lambda group: -self._weight(group))

    def _alike(self, one: Pair, other: Pair) -> bool:
        if not (one.name[0].isdigit() and other.name[0].isdigit() and self.shapes[one] == self.shapes[other]):
            return False
        a, b = one.difference.flops, other.difference.flops
        return abs(a - b) <= ALIKE * max(abs(a), abs(b))

    def _weight(self, group: Sequence[Pair]) -> float:
        """The largest share of a figure's difference that a group has."""
        sums = sum((pair.difference for pair in group), NOTHING)
        shares: list[float] = [abs(getattr(sums, key)) / scale for key, scale in self.scale.items()]
        return max(shares)


def _differs(pair: Pair) -> bool:
    return pair.difference != NOTHING or any(one.own[0] != one.own[1] for one in pair.walk())


def _name(pairs: Sequence[Pair]) -> str:
    """Name modules that are folded: by the range of their numbers, of both sides where they differ."""
    if len({pair.name for pair in pairs}) == 1:
        return pairs[0].name
    sides = []
    for nodes in ([pair.a for pair in pairs], [pair.b for pair in pairs]):
        numbers = sorted(int(node.name) for node in nodes if node is not None)
        sides += [f"[{numbers[0]}-{numbers[-1]}]"] if numbers else []
    return " → ".join(dict.fromkeys(sides))
