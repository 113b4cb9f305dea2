"""Names of sizes: what is found by itself, what the caller says, what is not guessed."""

from __future__ import annotations

import pytest

from tensortide.expr import parse
from tensortide.importers.tensorflow.program import MetaGraphError, Program
from tensortide.importers.tensorflow.read import read_program
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


def reshaped(batch: int = 8) -> Graph:
    """A product of rows, cut into heads by numbers of the file, and a gradient that has the shape as numbers too."""
    graph = Graph()
    graph.feed("x", batch, 20, 40)
    graph.variable("W", 40, 36)
    graph.node("rows", "Reshape", "x", graph.const("flat", -1, 40), T=FLOAT)
    graph.node("y", "MatMul", "rows", "W")
    graph.node("heads", "Reshape", "y", graph.const("cut", batch, 20, 4, 9), T=FLOAT)
    graph.node("grad", "Relu", "heads")
    graph.node("back", "Reshape", "grad", graph.const("gradients/heads_grad/Shape", 20 * batch, 36), T=FLOAT)
    graph.train("back")
    return graph


@pytest.mark.parametrize("bind", [{"x": ["n", "t", "f"]}, {"cut": ["n", "t", "a", 9]}, {"x": ["n", 20, "f"]}])
def test_a_name_reaches_the_numbers_that_say_the_same(bind: dict[str, list[str | int]]) -> None:
    """``n*t = 8*20`` where a product of rows is cut: forward and gradient have both, wherever they are bound."""
    program = read_program(reshaped().data(), bind=bind)
    first, second = shape_of(program, "x")[:2]
    assert first == "n"
    assert shape_of(program, "heads")[:2] == [first, second]
    assert parse(shape_of(program, "back")[0]) == parse(first) * parse(second)


def test_a_size_bound_in_one_place_and_kept_in_another_is_refused() -> None:
    """A batch of 1 is a number wherever nobody names it: the caller who names one of two that must be equal is told."""
    graph = reshaped(1)
    graph.feed("mask", 1, 4, 9, 20)
    graph.node("scores", "BatchMatMul", "mask", "turned")
    graph.node("turned", "Transpose", "heads", graph.const("order", 0, 2, 1, 3))
    graph.train("scores")
    with pytest.raises(MetaGraphError, match=r"node scores: .*n, equal in the file, bound by the caller in one place"):
        read_program(graph.data(), bind={"cut": ["n", 20, 4, 9]})


def repeated() -> Graph:
    """What is repeated twice, each time as often as a number of its own says, and must be as long."""
    graph = Graph()
    graph.feed("x", -1, dtype=INT)
    for name in ("inputs", "labels"):
        graph.node(f"{name}/cut", "Slice", "x", graph.const(f"{name}/at", 2), graph.const(f"{name}/size", -1))
        graph.node(name, "Tile", f"{name}/cut", graph.const(f"{name}/times", 12))
    graph.node("both", "AddN", "inputs", "labels", T=FLOAT)
    graph.train("both")
    return graph


def test_a_number_named_in_one_of_two_places_that_a_product_ties_is_refused() -> None:
    """``12*(s - 2)`` must be ``n*(s - 2)``: the formulas of both would differ at every other n."""
    with pytest.raises(MetaGraphError, match=r"node both: .*bound"):
        read_program(repeated().data(), bind={"inputs/times": ["n"]})
    program = read_program(repeated().data(), bind={"(inputs|labels)/times": ["n"]})
    assert shape_of(program, "inputs") == shape_of(program, "labels") == ["b*n - 2*n"]


def test_a_number_that_stays_one_beside_a_size_of_its_value_is_said() -> None:
    """Ones as many as the batch, with which nothing is computed that could tell."""
    graph = Graph()
    graph.feed("x", 8, 40)
    graph.node("ones", "Fill", graph.const("how_many", 8), graph.node("one", "Const", dtype=FLOAT), T=FLOAT)
    graph.train("x", "ones")
    program = read_program(graph.data(), bind={"x": ["n", "f"]})
    assert shape_of(program, "ones") == ["8"]
    assert any(note.startswith("the number 8 of how_many") for note in program.notes)


def test_a_fed_vector_has_an_element_for_each_of_the_batch() -> None:
    graph = Graph()
    graph.feed("ids", -1, -1, dtype=INT)
    graph.feed("lengths", -1, dtype=INT)
    graph.train("ids", "lengths")
    program = read_program(graph.data())
    assert shape_of(program, "lengths") == shape_of(program, "ids")[:1] == ["b"]
    assert "lengths is taken to have an element for each of the batch" in program.notes
