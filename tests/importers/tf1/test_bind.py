"""Names of sizes: what is found by itself, what the caller says, what is not guessed."""

from __future__ import annotations

from tensortide.expr import parse
from tensortide.importers.tf1.program import Program
from tensortide.importers.tf1.read import read_program
from tests.importers.tf1.build import FLOAT, INT, Graph


def shape_of(program: Program, name: str) -> list[str]:
    node = next(node for node in program.nodes if node.name == name)
    return [str(dim) for dim in node.outputs[0].shape or ()]


def recurrent(width: int = 40, rows: int = 1000) -> Graph:
    """An embedding, one step of a recurrent cell with four gates, a product with a table of its own."""
    graph = Graph()
    graph.feed("ids", -1, dtype=INT)
    graph.feed("state", -1, width)
    graph.variable("table", rows, width)
    graph.variable("W", 2 * width, 4 * width)
    graph.variable("out", rows, width)
    graph.scalar("axis", 0)
    graph.scalar("one", 1)
    graph.node("x", "GatherV2", "table", "ids", "axis", Tparams=FLOAT)
    graph.node("both", "ConcatV2", "x", "state", "one")
    graph.node("gates", "MatMul", "both", "W")
    graph.node("split", "Split", "one", "gates", num_split=4)
    graph.node("new", "Mul", "split", "state")
    graph.node("logits", "MatMul", "new", "out", transpose_b=True)
    graph.train("logits")
    return graph


def test_sizes_follow_from_the_structure() -> None:
    program = read_program(recurrent().data())
    assert shape_of(program, "table") == ["v", "h"]
    assert shape_of(program, "W") == ["2*h", "4*h"]
    assert shape_of(program, "state") == ["b", "h"]
    assert shape_of(program, "logits") == ["b", "v"]
    assert program.hints == {"b": 32, "h": 40, "v": 1000}
    assert "2 independent sizes of 1000 are taken to be one" in program.notes


def test_names_of_the_caller() -> None:
    bind = {"table": ["words", "embedding"], "state": ["batch", "hidden"]}
    program = read_program(recurrent().data(), bind=bind)
    assert shape_of(program, "W") == ["embedding + hidden", "4*hidden"]
    assert shape_of(program, "both") == ["batch", "embedding + hidden"]
    assert program.hints == {"batch": 32, "embedding": 40, "hidden": 40, "words": 1000}


def test_expressions_of_the_caller() -> None:
    program = read_program(recurrent().data(), bind={"table": ["v", "heads*8"]})
    assert shape_of(program, "x") == ["b", "8*heads"]
    assert program.hints["heads"] == 5


def test_sizes_that_stay_numbers() -> None:
    program = read_program(recurrent().data(), bind={"table|out": [1000, "h"]})
    assert shape_of(program, "logits") == ["b", "1000"]


def test_a_table_as_long_as_wide_is_said_to_be_uncertain() -> None:
    program = read_program(recurrent(48, 48).data())
    assert shape_of(program, "table")[0] != shape_of(program, "table")[1]
    assert any("not certain" in note for note in program.notes)


def test_a_feed_does_not_become_a_width_by_its_value() -> None:
    graph = Graph()
    graph.feed("x", 64, 64)
    graph.variable("W", 64, 64)
    graph.node("y", "MatMul", "x", "W")
    graph.train("y")
    program = read_program(graph.data())
    rows, width = shape_of(program, "y")
    assert rows != width
    assert any("keeps its own name" in note for note in program.notes)


def test_constants_are_sizes_where_they_meet_one() -> None:
    """A reshape to ``[-1, 40]``: 40 is the width, because a product says so."""
    graph = Graph()
    graph.feed("x", -1, -1, 40)
    graph.variable("W", 40, 500)
    graph.const("shape", -1, 40)
    graph.node("rows", "Reshape", "x", "shape", T=FLOAT)
    graph.node("y", "MatMul", "rows", "W")
    graph.train("y")
    program = read_program(graph.data())
    assert shape_of(program, "rows") == ["b*s", shape_of(program, "W")[0]]
    assert shape_of(program, "y")[0] == "b*s"


def test_heads_times_their_size() -> None:
    graph = Graph()
    graph.feed("x", -1, -1, dtype=INT)
    graph.variable("table", 500, 96)
    graph.variable("Q", 96, 96)
    graph.scalar("axis", 0)
    graph.node("e", "GatherV2", "table", "x", "axis", Tparams=FLOAT)
    graph.node("rows", "Reshape", "e", graph.const("flat", -1, 96), T=FLOAT)
    graph.node("q", "MatMul", "rows", "Q")
    graph.node("split", "Reshape", "q", graph.const("heads", 2, -1, 6, 16), T=FLOAT)
    graph.train("split")
    program = read_program(graph.data())
    heads, size = shape_of(program, "split")[2:]
    assert parse(shape_of(program, "q")[1]) == parse(heads) * parse(size)


def test_masks_are_full() -> None:
    graph = Graph()
    graph.feed("x", -1, 40)
    graph.node("found", "Where", "x", T=FLOAT)
    graph.train("found")
    program = read_program(graph.data())
    assert shape_of(program, "found") == ["b*f", "2"]
    assert "num_true(found) is taken to be the most it can be, b*f" in program.notes


def test_examples_make_whole_sizes() -> None:
    graph = Graph()
    graph.feed("x", -1)
    graph.node("y", "Reshape", "x", graph.const("shape", -1, 60), T=FLOAT)
    graph.train("y")
    program = read_program(graph.data())
    assert program.hints["b"] % 60 == 0
