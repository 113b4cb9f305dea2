"""Which nodes are the step."""

from __future__ import annotations

from typing import Any

from tensortide.importers.tensorflow.read import read_program
from tests.importers.tf1.build import FLOAT, Graph, tensor, variables


def training() -> Graph:
    """A product and its update, an unused metric, an initializer, a saver and a summary."""
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.variable("W", 16, 16)
    zero: Any = tensor(0, (), "float32")
    graph.node(
        "zeros", "Fill", graph.const("zeros/shape", 16, 16), graph.node("zeros/value", "Const", value=zero), T=FLOAT
    )
    graph.node("W/Assign", "Assign", "W", "zeros", T=FLOAT)
    graph.node("y", "MatMul", "x", "W")
    graph.node("g", "MatMul", "x", "y", transpose_a=True)
    graph.node("rate", "Const", dtype=FLOAT, value=zero)
    graph.node("update", "ApplyGradientDescent", "W", "rate", "g", "^y", T=FLOAT)
    graph.node("metric", "L2Loss", "y", T=FLOAT)
    graph.node("summary", "ScalarSummary", "metric", "metric")
    graph.node("save/name", "Const", dtype=FLOAT, value=zero)
    graph.node("save/SaveV2", "SaveV2", "save/name", "save/name", "save/name", "W")
    graph.node("save/done", "Identity", "save/name", "^save/SaveV2", T=FLOAT)
    return graph


STEP = ["x", "W", "y", "g", "rate", "update"]


def kept(graph: Graph, **options: Any) -> list[str]:
    return [node.name for node in read_program(graph.data(), **options).nodes]


def test_from_train_op() -> None:
    graph = training()
    graph.node("step", "NoOp", "^update")
    graph.train("step")
    assert kept(graph) == [*STEP, "step"]


def test_from_the_updates_of_trained_variables() -> None:
    program = read_program(training().data())
    assert program.roots == ("update",)
    assert [node.name for node in program.nodes] == STEP
    assert variables(program) == program.trainable == ("W",)


def test_from_fetches() -> None:
    assert kept(training(), fetches=["metric"]) == ["x", "W", "y", "metric"]


def test_from_sinks_without_updates() -> None:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.node("y", "Relu", "x", T=FLOAT)
    graph.node("unread", "Tanh", "x", T=FLOAT)
    graph.node("init", "NoOp")
    assert kept(graph) == ["x", "y", "unread"]


def test_the_other_preparation_keeps_dead_ends() -> None:
    names = kept(training(), preparation="catamount")
    assert names == ["x", "W", "y", "g", "rate", "update", "metric", "summary"]
    program = read_program(training().data(), preparation="catamount", drop=["metric", "sum.*"])
    assert [node.name for node in program.nodes] == STEP
    assert all(not node.control for node in program.nodes)
