"""The module tree: each row includes those below it, equal siblings share a line of text."""

from __future__ import annotations

import msgspec

from tensortide.graph.model import Graph, Module
from tensortide.reports import report
from tensortide.reports.blocks import Document, Table
from tensortide.reports.sections import Step
from tensortide.reports.sections.modules import fold_modules
from tensortide.timelines import by_module, timeline
from tests.reports.graphs import WIDTH, tower


def tree_of(document: Document) -> Table:
    found = document["modules"]["modules"]
    assert isinstance(found, Table)
    return found


def test_modules_include_what_is_inside_them(graph: Graph, document: Document) -> None:
    rows = Step(graph).modules
    for i, row in enumerate(rows):
        inside = [other for other in rows if other["parent"] == i]
        assert row["flops"] == row["own_flops"] + sum(other["flops"] for other in inside)
        assert row["parameters"] >= sum(other["parameters"] for other in inside)
        assert all(other.depth == row.depth + 1 for other in inside)
    tree = tree_of(document)
    assert rows[0]["parameters"] == tree["parameters"][0] == document["cost"].fact("parameters") == 4 * WIDTH * WIDTH
    assert tree.depth == tuple(row.depth for row in rows)
    roots = [i for i, depth in enumerate(tree.depth) if not depth]
    assert sum(tree["flops"][i] for i in roots) == document["cost"].fact("flops")  # type: ignore[misc]
    assert sum(tree["peak"][i] for i in roots) == document["cost"].fact("peak")  # type: ignore[misc]


def test_equal_siblings_fold_into_one_line_with_their_sum(graph: Graph, document: Document) -> None:
    rows = Step(graph).modules
    lines = fold_modules(rows, depth=3)
    assert [(line.name, line.count, line.depth) for line in lines] == [
        ("(root)", 1, 0),
        ("layers.[0-3]", 4, 1),
        ("fc", 4, 2),
        ("(outside)", 1, 0),
    ]
    blocks = [row for row in rows if row["type"] == "Block"]
    assert lines[1]["flops"] == sum(row["flops"] for row in blocks)
    assert lines[1]["retained"] == sum(row["retained"] for row in blocks)
    assert lines[1]["transient"] == max(row["transient"] for row in blocks)
    assert [line.name for line in fold_modules(rows, depth=0)] == ["(root)", "(outside)"]
    shown = document["modules"].table("folded_cost")
    assert shown["module"] == tuple(line.name for line in lines)
    assert shown.columns[0].after[1] == " x4"


def test_calls_of_modules_are_those_of_the_memory(graph: Graph, document: Document) -> None:
    tree = tree_of(document)
    rows = dict(zip(tree["path"], zip(tree["retained"], tree["transient"], strict=True), strict=True))
    for memory in by_module(timeline(graph)):
        assert rows[memory.path or "(root)"] == (memory.retained, memory.transient)


def test_modules_without_anything_are_left_out_of_the_text() -> None:
    tower_ = tower()
    graph = msgspec.structs.replace(tower_, modules=(*tower_.modules, Module("idle", "Idle")))
    section = report(graph)["modules"]
    assert "idle" in section.table("modules")["module"]
    assert "idle" not in section.table("folded_cost")["module"]


def test_saved_is_no_column_where_nothing_is_saved() -> None:
    (saved,) = [c for c in report(tower(train=False))["modules"].table("folded_cost").columns if c.key == "saved"]
    assert saved.data
