"""The module tree: each row includes those below it, equal siblings share a line of text."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from tensortide.graph.model import Graph, Module
from tensortide.reports import report
from tensortide.reports.blocks import Document, Table
from tensortide.reports.sections import Step
from tensortide.reports.sections.modules import ALIKE, ModuleRow, fold_modules
from tensortide.timelines import by_module, timeline
from tensortide.timelines.module_figures import ModuleFigures
from tests.reports.graphs import WIDTH, tower


def tree_of(document: Document) -> Table:
    found = document["modules"]["modules"]
    assert isinstance(found, Table)
    return found


def test_modules_include_what_is_inside_them(graph: Graph, document: Document) -> None:
    rows = Step(graph).modules
    for i, row in enumerate(rows):
        inside = [other for other in rows if other.parent == i]
        assert row.total.flops == row.own.flops + sum(other.total.flops for other in inside)
        assert row.total.parameters >= sum(other.total.parameters for other in inside)
        assert all(other.depth == row.depth + 1 for other in inside)
    tree = tree_of(document)
    assert rows[0].total.parameters == tree["parameters"][0] == document["cost"].fact("parameters") == 4 * WIDTH * WIDTH
    assert tree.depth == tuple(row.depth for row in rows)
    roots = [i for i, depth in enumerate(tree.depth) if not depth]
    assert sum(tree["flops"][i] for i in roots) == document["cost"].fact("flops")  # type: ignore[misc]
    assert sum(tree["peak_bytes"][i] for i in roots) == document["cost"].fact("peak_bytes")  # type: ignore[misc]


def test_equal_siblings_fold_into_one_line_with_their_sum(graph: Graph, document: Document) -> None:
    rows = Step(graph).modules
    lines = fold_modules(rows, depth=3)
    assert [(line.name, line.count, line.depth) for line in lines] == [
        ("(root)", 1, 0),
        ("layers.[0-3]", 4, 1),
        ("fc", 4, 2),
        ("(outside)", 1, 0),
    ]
    blocks = [row for row in rows if row.type == "Block"]
    assert lines[1].total.flops == sum(row.total.flops for row in blocks)
    assert lines[1].memory.retained_bytes == sum(row.memory.retained_bytes for row in blocks)
    assert lines[1].memory.transient_bytes == max(row.memory.transient_bytes for row in blocks)
    assert [line.name for line in fold_modules(rows, depth=0)] == ["(root)", "(outside)"]
    shown = document["modules"].table("folded_cost")
    assert shown["module"] == tuple(line.name for line in lines)
    assert shown.columns[0].after[1] == " x4"


def test_calls_of_modules_are_those_of_the_memory(graph: Graph, document: Document) -> None:
    tree = tree_of(document)
    rows = dict(zip(tree["path"], zip(tree["retained_bytes"], tree["transient_bytes"], strict=True), strict=True))
    for memory in by_module(timeline(graph)):
        assert rows[memory.path or "(root)"] == (memory.retained_bytes, memory.transient_bytes)


def test_modules_without_anything_are_left_out_of_the_text() -> None:
    tower_ = tower()
    graph = msgspec.structs.replace(tower_, modules=(*tower_.modules, Module("idle", "Idle")))
    section = report(graph)["modules"]
    assert "idle" in section.table("modules")["module"]
    assert "idle" not in section.table("folded_cost")["module"]


def test_saved_is_no_column_where_nothing_is_saved() -> None:
    (saved,) = [c for c in report(tower(train=False))["modules"].table("folded_cost").columns if c.key == "saved_bytes"]
    assert saved.data


# -- folding ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Tree:
    """A module tree: of each module its parent and what differs."""

    made: list[tuple[int, dict[str, Any]]] = dataclasses.field(default_factory=list)

    def add(self, name: str, parent: int = 0, flops: int = 1000, kind: str = "Linear", parameters: int = 10) -> int:
        total = ModuleFigures(flops, parameters=parameters)
        self.made.append((parent, {"name": name, "type": kind, "total": total}))
        return len(self.made) - 1

    def row(self, number: int) -> ModuleRow:
        parent, known = self.made[number]
        children = tuple(self.row(inner) for inner, (outer, _) in enumerate(self.made) if outer == number)
        return ModuleRow(**known, path=known["name"], own=ModuleFigures(ops=1), parent=parent, children=children)

    def names(self) -> list[tuple[str, int]]:
        return [(line.name, line.count) for line in fold_modules([self.row(0)], depth=3)[1:]]


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
