"""Explanations name the rule, its source and what was put into it; stubs of missing rules can be completed."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
import torch

from tensortide.cost import explain, missing, read_rows, registry
from tensortide.errors import NoSuchOp
from tensortide.graph import TENSOR, Call
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.sections.count_answer import document
from tests.cost.probe import graph_of, recorded, tensor

GRAPH = recorded(lambda: torch.relu(torch.mm(torch.ones(3, 4), torch.ones(4, 5))).t())


def test_rule_source_and_numbers() -> None:
    found = explain(GRAPH, "mm")
    assert (found.rule, found.formula, found.how) == ("aten::mm", "m n k MACs", "rule")
    assert dict(found.symbols) == {"m": "3", "n": "5", "k": "4"}
    assert dict(found.arguments) == {"self": "f32[3,4]", "mat2": "f32[4,5]"}
    source = Path(found.file).read_text().splitlines()
    assert "def work(op: OpCall)" in "".join(source[found.line - 1 : found.line + 2])
    assert found.cost is not None
    text = str(found)
    for part in ("m = 3", "MACs      60", "FLOPs     120 = 2 x MACs + 0", "128 read, 60 written", "exact     yes"):
        assert part in text


def test_markdown_has_the_whole_numbers_of_the_text() -> None:
    found = explain(recorded(lambda: torch.mm(torch.ones(300, 400), torch.ones(400, 500))), "mm")
    markdown = render_markdown(document(found))
    for part in (
        "MACs | 60,000,000 |",
        "FLOPs | 120,000,000 |",
        "Read bytes | 1,280,000 |",
        "Written bytes | 600,000 |",
    ):
        assert part in markdown


@pytest.mark.parametrize("name", ["aten.relu.default", "aten::relu", "aten.relu", "relu", "relu.default"])
def test_ways_to_name_an_op(name: str) -> None:
    assert explain(GRAPH, name).name == "aten.relu"


def test_by_index_and_views() -> None:
    last = explain(GRAPH, len(GRAPH) - 1)
    assert (last.name, last.how) == ("aten.t", "view")
    assert "only renames memory" in str(last)
    assert explain(GRAPH, str(len(GRAPH) - 1)) == last


def test_nearest_names_where_there_is_none() -> None:
    with pytest.raises(NoSuchOp, match=r"no op 'reluu' in the graph.\nIts ops include: .*aten\.relu"):
        explain(GRAPH, "reluu")
    with pytest.raises(NoSuchOp, match="no op 99: the graph has"):
        explain(GRAPH, 99)


def test_stub_of_a_missing_rule() -> None:
    call = Call("strange.class.wide", (("x", TENSOR), ("op", 3), ("lambda", (1, 2))), 3)
    (found,) = missing(graph_of((call, [tensor(4, 4)], [tensor(4)]), (call, [tensor(4, 4)], [tensor(4)])))
    assert found.group.count == 2
    assert '@tensortide.cost.rule("strange::class.wide"' in found.stub
    assert 'x = op.shape("x")  # (4, 4), float32' in found.stub
    ast.parse(found.stub)
    row = "\n".join(line[2:] for line in found.stub.splitlines()[1:4])
    read_rows(tomllib.loads(row)["ops"])
    try:
        assert registry.find("strange::class.wide") is not None
    finally:
        del registry._table["strange::class.wide"]
    assert "strange.class.wide x2 (4,4) in (outside)" in str(found)
    assert missing(GRAPH) == []
