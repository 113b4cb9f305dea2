"""Siblings share a line only if they are numbered, of one structure, and cost about the same."""

from __future__ import annotations

import dataclasses

import pytest

from tensortide.reports.sections.modules import ALIKE, COLUMNS, ModuleRow, fold_modules


@dataclasses.dataclass
class Tree:
    """Rows of a module tree, a parent before its children."""

    rows: list[ModuleRow] = dataclasses.field(default_factory=list)

    def add(self, name: str, parent: int = 0, flops: int = 1000, kind: str = "Linear", parameters: int = 10) -> int:
        blank: dict[str, str | int] = {spec.key: 0 for spec in COLUMNS}
        known = {"path": name, "type": kind, "parent": parent, "own_ops": 1, "flops": flops, "parameters": parameters}
        self.rows.append(ModuleRow(name=name, depth=0, values=blank | known))
        return len(self.rows) - 1

    def names(self) -> list[tuple[str, int]]:
        return [(line.name, line.count) for line in fold_modules(self.rows, depth=3)[1:]]


@pytest.fixture
def tree() -> Tree:
    made = Tree()
    made.add("(root)", parent=-1)
    return made


def test_numbered_siblings_alike_share_a_line(tree: Tree) -> None:
    for name in ("0", "1", "2"):
        tree.add(name)
    assert tree.names() == [("[0-2]", 3)]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "head"},
        {"name": "1", "kind": "Conv2d"},
        {"name": "1", "parameters": 11},
        {"name": "1", "flops": 1000 + int(2 * ALIKE * 1000)},
    ],
    ids=["not a number", "another type", "other parameters", "other FLOPs"],
)
def test_siblings_that_differ_keep_lines_of_their_own(tree: Tree, other: dict[str, str | int]) -> None:
    tree.add("0")
    tree.add(**other)  # type: ignore[arg-type]
    assert tree.names() == [("0", 1), (str(other["name"]), 1)]


def test_siblings_that_differ_below_keep_lines_of_their_own(tree: Tree) -> None:
    for name, inner in (("0", "fc"), ("1", "fc"), ("2", "proj")):
        tree.add(inner, parent=tree.add(name))
    assert tree.names() == [("[0-1]", 2), ("fc", 2), ("2", 1), ("proj", 1)]


def test_siblings_fold_within_the_tolerance(tree: Tree) -> None:
    tree.add("0", flops=1000)
    tree.add("1", flops=1000 - int(ALIKE * 1000))
    assert tree.names() == [("[0-1]", 2)]
