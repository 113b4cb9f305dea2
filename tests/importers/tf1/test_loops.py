"""Loops, conditionals and functions: which loop a node is in, how often it runs, which sizes come through."""

from __future__ import annotations

from typing import Any

import pytest

from tensortide.expr import Expr
from tensortide.importers.tensorflow.program import OUTSIDE, MetaGraphError, Program
from tensortide.importers.tensorflow.read import read_program
from tests.importers.tf1.build import FLOAT, INT, Func, Graph, counted_loop, shape, tensor, underived


def shapes(program: Program, name: str) -> list[str]:
    node = next(node for node in program.nodes if node.name == name)
    return [",".join(map(said, spec.shape)) if spec.shape is not None else "?" for spec in node.outputs]


def said(size: Expr) -> str:
    return str(size).replace("'", "")


def loop_of(program: Program, name: str) -> int:
    return next(node.loop for node in program.nodes if node.name == name)


def time_of(graph: Graph, feed: str) -> str:
    """The first dim of a feed, as a value."""
    graph.node("Shape", "Shape", feed, out_type=INT)
    for i, value in enumerate((0, 1, 1)):
        graph.const(f"slice_{i}", value)
    return graph.node("time", "StridedSlice", "Shape", "slice_0", "slice_1", "slice_2", shrink_axis_mask=1)


def test_nested_loops_multiply() -> None:
    graph = Graph()
    feed = graph.feed("x", -1, -1, 16)
    steps = time_of(graph, feed)
    graph.feed("state", -1, 16)
    graph.variable("W", 16, 16)
    graph.scalar("inner_steps", 5)

    def outer(states: list[str], invariants: list[str]) -> list[str]:
        def inner(states: list[str], invariants: list[str]) -> list[str]:
            return [graph.node("product", "MatMul", states[0], invariants[0])]

        bound, weight = invariants
        return counted_loop(graph, "inner", bound, states, inner, around="outer/Identity_0", invariants=[weight])[1:]

    counted_loop(graph, "outer", steps, ["state"], outer, invariants=["inner_steps", "W"])
    graph.train("outer/Exit_1")
    program = read_program(graph.data())
    inner, outer_ = program.loops[loop_of(program, "product")], program.loops[0]
    assert (str(inner.trips), program.loops[inner.parent].name) == ("5", "outer/frame")
    assert (str(outer_.trips), outer_.parent) == ("s", OUTSIDE)
    assert shapes(program, "product") == ["b,h"]
    assert loop_of(program, "inner/Enter_0") == loop_of(program, "outer/Identity_0") == 0
    assert loop_of(program, "outer/Enter_0") == loop_of(program, "outer/Exit_1") == OUTSIDE
    assert not underived(program)


def test_a_bound_that_nothing_tells_is_a_listed_symbol() -> None:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.variable("bound", 1)
    graph.node("squeezed", "Squeeze", "bound")
    counted_loop(graph, "loop", "squeezed", ["x"], lambda states, _: [graph.node("y", "Relu", states[0])])
    graph.train("loop/Exit_1")
    program = read_program(graph.data())
    assert said(program.loops[0].trips) == "trips(loop/frame)"
    assert underived(program) == ("trips(loop/frame)",)
    assert program.hints["trips(loop/frame)"] > 0


def test_a_fed_bound_is_its_value() -> None:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.feed("how/many", dtype=INT)
    counted_loop(graph, "loop", "how/many", ["x"], lambda states, _: [graph.node("y", "Relu", states[0])])
    graph.train("loop/Exit_1")
    program = read_program(graph.data())
    assert said(program.loops[0].trips) == "many"


def test_a_state_that_grows_has_a_size_of_its_own() -> None:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.scalar("steps", 7)
    graph.scalar("axis", 0)

    def body(states: list[str], invariants: list[str]) -> list[str]:
        return [graph.node("longer", "ConcatV2", states[0], invariants[0], invariants[1])]

    graph.node("row", "Fill", graph.const("row_shape", 1, 16), graph.node("zero", "Const", dtype=FLOAT))
    counted_loop(graph, "loop", "steps", ["x"], body, invariants=["row", "axis"])
    graph.train("loop/Exit_1")
    program = read_program(graph.data())
    assert shapes(program, "loop/Identity_1") == ["loop/Merge_1:0::dim_0,f"]
    assert underived(program) == ("loop/Merge_1:0::dim_0",)


def test_branches_that_agree_and_branches_that_do_not() -> None:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.feed("y", 4, 16)
    graph.node("p", "Placeholder", dtype=INT, shape=shape())
    graph.node("left", "Switch", "x", "p")
    graph.node("relu", "Relu", "left:1")
    graph.node("same", "Merge", "left", "relu")
    graph.node("right", "Switch", "y", "p")
    graph.node("other", "Merge", "left", "right:1")
    graph.train("same", "other")
    program = read_program(graph.data())
    assert shapes(program, "same")[0] == "b,f"
    assert shapes(program, "other")[0].endswith(",f")
    assert underived(program) == ("other:0::dim_0",)


def test_functional_while_and_call() -> None:
    graph = Graph()
    feed = graph.feed("x", -1, -1, 16)
    steps = time_of(graph, feed)
    graph.feed("h", -1, 16)
    graph.variable("W", 16, 16)
    graph.scalar("zero", 0)
    arguments = ["i", "limit", "state", "weight"]
    graph.function("test", arguments, {"go": "less:z:0"}, [("less", "Less", ["i", "limit"], {"T": INT})])
    graph.function("product", ["a", "w"], {"out": "mul:product:0"}, [("mul", "MatMul", ["a", "w"], {})])
    body = [
        ("one", "Const", [], {"dtype": INT, "value": tensor(1)}),
        ("next", "AddV2", ["i", "one:output:0"], {"T": INT}),
        ("call", "PartitionedCall", ["state", "weight"], {"f": Func("product")}),
    ]
    graph.function("step", arguments, {"i": "next:z:0", "l": "limit", "s": "call:output:0", "w": "weight"}, body)
    graph.node("loop", "While", "zero", steps, "h", "W", cond=Func("test"), body=Func("step"), T=FLOAT)
    graph.node("result", "Relu", "loop:2")
    graph.train("result")
    program = read_program(graph.data())
    assert [str(loop.trips) for loop in program.loops] == ["s"]
    assert loop_of(program, "loop/body/call/mul") == loop_of(program, "loop/body/one") == 0
    assert shapes(program, "result") == ["b,h"]


def while_of(condition: list[Any], goes_on: str, limit: int) -> Program:
    """A loop that counts from 0, as long as the last of the nodes ``condition`` says."""
    graph = Graph()
    graph.feed("h", -1, 16)
    graph.variable("W", 16, 16)
    graph.scalar("zero", 0)
    graph.scalar("limit", limit)
    arguments = ["i", "limit", "state", "weight"]
    graph.function("test", arguments, {"go": goes_on}, condition)
    body = [
        ("one", "Const", [], {"dtype": INT, "value": tensor(1)}),
        ("next", "AddV2", ["i", "one:output:0"], {"T": INT}),
        ("mul", "MatMul", ["state", "weight"], {}),
    ]
    graph.function("step", arguments, {"i": "next:z:0", "l": "limit", "s": "mul:product:0", "w": "weight"}, body)
    graph.node("loop", "While", "zero", "limit", "h", "W", cond=Func("test"), body=Func("step"), T=FLOAT)
    graph.node("result", "Relu", "loop:2")
    graph.train("result")
    return read_program(graph.data())


BELOW = ("below", "Less", ["i", "limit"], {"T": INT})
BY_DATA = ("data", "Greater", ["state", "state"], {"T": FLOAT})
BOTH: Any = ("both", "LogicalAnd", ["below:z:0", "data:z:0"], {})


@pytest.mark.parametrize(("limit", "known"), [(7, True), ((1 << 31) - 2, True), ((1 << 31) - 1, False)])
def test_a_maximum_beyond_reach_is_no_estimate_of_a_loop_that_data_end(limit: int, known: bool) -> None:
    found = while_of([BELOW, BY_DATA, BOTH], "both:z:0", limit)
    assert [said(loop.trips) for loop in found.loops] == ([str(limit)] if known else ["trips(loop)"])
    assert bool(found.unknown_trips) != known


def test_a_counter_that_alone_ends_a_loop_is_known_however_far_it_counts() -> None:
    found = while_of([BELOW], "below:z:0", (1 << 31) - 1)
    assert [str(loop.trips) for loop in found.loops] == [str((1 << 31) - 1)]
    assert not found.unknown_trips


@pytest.mark.parametrize(("limit", "trips"), [(5, "5"), (0, "0"), (-1, "trips(loop)")])
def test_a_counter_that_passes_what_it_must_not_equal_does_not_end_the_loop(limit: int, trips: str) -> None:
    found = while_of([("other", "NotEqual", ["i", "limit"], {"T": INT})], "other:z:0", limit)
    assert [said(loop.trips) for loop in found.loops] == [trips]


def test_functional_if() -> None:
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.node("p", "Placeholder", dtype=INT, shape=shape())
    for name, kind in (("yes", "Relu"), ("no", "Tanh")):
        graph.function(name, ["a"], {"out": "op:y:0"}, [("op", kind, ["a"], {})])
    graph.node("choice", "If", "p", "x", then_branch=Func("yes"), else_branch=Func("no"))
    graph.node("result", "Neg", "choice")
    graph.train("result")
    program = read_program(graph.data())
    assert shapes(program, "result") == ["b,f"]
    assert {"choice/then/op", "choice/else/op"} <= {node.name for node in program.nodes}


def test_functions_that_call_themselves_are_refused() -> None:
    graph = Graph()
    graph.function("again", ["a"], {"out": "op:output:0"}, [("op", "PartitionedCall", ["a"], {"f": Func("again")})])
    graph.feed("x", 4)
    graph.node("y", "PartitionedCall", "x", f=Func("again"))
    graph.train("y")
    with pytest.raises(MetaGraphError, match="without end"):
        read_program(graph.data())


def test_a_cycle_without_next_iteration_is_refused() -> None:
    graph = Graph()
    graph.feed("x", 4)
    graph.node("a", "Add", "x", "b")
    graph.node("b", "Relu", "a")
    graph.node("c", "Relu", "b")
    graph.train("c")
    with pytest.raises(MetaGraphError, match=r"node [ab]: .*cycle"):
        read_program(graph.data())
