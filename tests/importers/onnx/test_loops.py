"""Trips of loops: known, set, or guesses that are said; and what loops stack and carry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import InferenceError, infer_shapes

import tensortide
from tensortide.cost import count
from tensortide.errors import GraphFileError, TensortideError, UnknownCost, WorkloadError
from tensortide.expr import expr_of, text
from tensortide.graph import Graph, unrolled
from tests.importers.onnx.build import BOOL, FLOAT, INT64, graph, model, node, port, stored

W = stored("w", FLOAT, [4, 4], 1.0)
NO_MAXIMUM = (1 << 63) - 1
PRODUCT = node("MatMul", "s w", "t")


def looped(condition: str, *nodes: Any, trips: int = 100, name: str = "loop") -> Any:
    """A loop around one product of 2 x 4 and 4 x 4; its body hands on ``condition``."""
    body = graph(
        [PRODUCT, *nodes, node("Identity", condition, "going")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4])], ["going", "t"],
    )  # fmt: skip
    kept = [W, stored("m", INT64, [], trips), stored("yes", BOOL, [], True)]
    return model([node("Loop", "m yes x", "y", body=body, name=name)], {"x": (FLOAT, [2, 4])}, "y", kept)


def opened(made: Any, **symbols: int) -> Graph:
    return tensortide.open(made, hyperparameters=symbols or None).graph


def test_a_loop_whose_condition_is_handed_on_runs_as_often_as_its_maximum() -> None:
    found = opened(looped("c"))
    assert (found.loops[0].trips, found.loops[0].assumed) == (100, False)
    assert count(found).total.macs == 100 * 2 * 4 * 4


def test_a_loop_that_data_may_end_is_a_guess_until_it_is_given() -> None:
    made = looped("less", node("ReduceSum", "t", "sum", keepdims=0), node("Less", "sum one", "less"))
    made.graph.initializer.append(stored("one", FLOAT, [], 1.0))
    found = opened(made)
    assert (found.loops[0].trips, found.loops[0].assumed) == (100, True)
    assert any("its maximum of 100" in note for note in found.meta.assumptions)
    given = opened(made, **{"trips.loop": 4})
    assert (given.loops[0].trips, given.loops[0].assumed) == (4, False)
    assert count(given).total.macs == 4 * 2 * 4 * 4


def ended_by_data(trips: int) -> Any:
    """The same loop, whose condition is data."""
    made = looped("less", node("ReduceSum", "t", "sum", keepdims=0), node("Less", "sum one", "less"), trips=trips)
    made.graph.initializer.append(stored("one", FLOAT, [], 1.0))
    return made


@pytest.mark.parametrize("trips", [1 << 31, 10**12, 1 << 62, NO_MAXIMUM - 1])
def test_a_trip_count_is_known_however_large_it_is(trips: int) -> None:
    found = opened(looped("c", trips=trips))
    assert (found.loops[0].trips, found.loops[0].assumed) == (trips, False)
    assert count(found, strict=True).total.macs == trips * 2 * 4 * 4
    with pytest.raises(TensortideError, match="the loops written out would be"):
        unrolled(found)


@pytest.mark.parametrize("maximum", [NO_MAXIMUM, None])
def test_a_loop_that_nothing_ends_is_no_known_count_and_says_why(maximum: int | None) -> None:
    made = looped("c", trips=maximum or 1)
    if maximum is None:
        made.graph.node[0].input[0] = ""
    found = opened(made)
    assert (found.loops[0].trips, found.loops[0].assumed) == (1, True)
    why = "its maximum is 2**63 - 1, which stands for none" if maximum else "it has no maximum"
    assert any(f"nothing ends the loop: {why}, and its" in note for note in found.meta.assumptions)
    with pytest.raises(UnknownCost, match=r"--set trips.loop=N"):
        count(found, strict=True)
    given = opened(made, **{"trips.loop": 10**12})
    assert count(given, strict=True).total.macs == 10**12 * 2 * 4 * 4
    assert not any("trips" in note for note in given.meta.assumptions)


INT32, DOUBLE = 6, 11


def looped_with(maximum: Any) -> Any:
    """The loop with another stored maximum."""
    made = looped("c")
    made.graph.initializer[1].CopyFrom(maximum)
    return made


@pytest.mark.parametrize(
    ("maximum", "what"),
    [
        (stored("m", FLOAT, [], 3.5), "float32, not one int64"),
        (stored("m", DOUBLE, [], 3.0), "float64, not one int64"),
        (stored("m", INT32, [], 3), "int32, not one int64"),
        (stored("m", BOOL, [], True), "bool, not one int64"),
        (stored("m", INT64, [2], [7, 8]), r"int64 of the shape \(2,\), not one int64"),
        (stored("m", INT64, [1, 3], 7), r"int64 of the shape \(1, 3\), not one int64"),
        (stored("m", INT64, [0], []), r"int64 of the shape \(0,\), not one int64"),
        (stored("m", FLOAT, [2], [7.0, 8.0]), r"float32 of the shape \(2,\), not one int64"),
    ],
)
@pytest.mark.parametrize("given", [{}, {"trips.loop": 3}])
def test_a_maximum_that_is_not_one_integer_is_refused_with_the_node(
    maximum: Any, what: str, given: dict[str, int]
) -> None:
    made = looped_with(maximum)
    with pytest.raises(GraphFileError, match=rf"node loop \(Loop\): its maximum of trips is {what}$"):
        opened(made, **given)
    inferred = pytest.raises(InferenceError, match="unsupported type") if maximum.data_type != INT64 else nullcontext()
    with inferred:
        infer_shapes(made, check_type=True, strict_mode=True)
    if list(maximum.dims):
        with pytest.raises(ValueError, match="ambiguous"):
            ReferenceEvaluator(made).run(None, {"x": np.zeros((2, 4), np.float32)})


@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
def test_a_maximum_is_a_scalar_or_a_tensor_of_one_element(shape: list[int]) -> None:
    made = looped_with(stored("m", INT64, shape, 7))
    infer_shapes(made, check_type=True, strict_mode=True)
    (run,) = ReferenceEvaluator(made).run(None, {"x": np.ones((2, 4), np.float32)})
    assert np.asarray(run)[0, 0] == 4**7
    assert opened(made).loops[0].trips == 7


def test_a_maximum_that_is_an_input_or_a_sequence_has_its_kind_checked_too() -> None:
    for kind, shape, what in ((FLOAT, [], "float32"), (INT64, [2], "int64 of the shape"), (INT32, [1], "int32")):
        made = looped("c")
        del made.graph.initializer[1]
        made.graph.input.append(port("m", kind, shape))
        with pytest.raises(GraphFileError, match=f"its maximum of trips is {what}"):
            opened(made)
    made = looped("c")
    made.graph.node.insert(0, node("SequenceConstruct", "m", "many"))
    made.graph.node[1].input[0] = "many"
    with pytest.raises(GraphFileError, match="its maximum of trips is a sequence"):
        opened(made)


def test_a_maximum_of_an_open_size_is_no_error_until_the_size_is_given() -> None:
    made = looped("c")
    del made.graph.initializer[1]
    made.graph.input.append(port("m", INT64, ["n"]))
    assert opened(made).loops[0].assumed
    assert opened(made, n=1).loops[0].assumed
    with pytest.raises(GraphFileError, match=r"int64 of the shape \(2,\)"):
        opened(made, n=2)


@pytest.mark.parametrize("trips", [0, -1, -(1 << 63)])
@pytest.mark.parametrize("made", [looped, ended_by_data])
def test_a_maximum_below_one_is_no_trip_whatever_data_say(trips: int, made: Callable[..., Any]) -> None:
    found = opened(made("c", trips=trips) if made is looped else made(trips))
    assert not found.loops
    assert count(found, strict=True).total.macs == 0
    assert not any("trips" in note for note in found.meta.assumptions)


def test_a_maximum_beyond_reach_is_no_estimate_of_a_loop_that_data_end() -> None:
    found = opened(ended_by_data(NO_MAXIMUM))
    assert (found.loops[0].trips, found.loops[0].assumed) == (1, True)
    for trips in ((1 << 31) - 1, 10**12, NO_MAXIMUM - 1):
        found = opened(ended_by_data(trips))
        assert (found.loops[0].trips, found.loops[0].assumed) == (1, True)
        assert any(f"its maximum of {trips} at most" in note for note in found.meta.assumptions)
    assert opened(ended_by_data(10**12), **{"trips.loop": 10**12}).loops[0].trips == 10**12
    with pytest.raises(WorkloadError, match="runs at most 1000000000000 times"):
        opened(ended_by_data(10**12), **{"trips.loop": 10**12 + 1})


def test_trips_that_are_given_are_in_the_sizes_that_follow_from_them() -> None:
    body = graph(
        [PRODUCT, node("ReduceSum", "t", "sum", keepdims=0), node("Less", "sum one", "going"),
         node("Identity", "s", "row")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4])], ["going", "t", "row"],
    )  # fmt: skip
    kept = [W, stored("one", FLOAT, [], 1.0), stored("yes", BOOL, [], True)]
    nodes = [node("Loop", "- yes x", "y rows", body=body, name="loop"), node("MatMul", "rows w", "z")]
    made = model(nodes, {"x": (FLOAT, [2, 4])}, "z", kept)
    found = opened(made, **{"trips.loop": 9})
    assert count(found, strict=True).total.macs == (9 + 9) * 2 * 4 * 4
    assert not any("trips.loop" in note for note in found.meta.assumptions)


COUNTERS = {
    "iterations": ([node("Less", "i five", "going")], "i"),
    "iterations to a maximum": ([node("LessOrEqual", "i far", "going")], "i"),
    "a state": ([node("Add", "k two", "next"), node("Less", "next five", "going")], "next"),
    "a state, before it steps": ([node("Add", "two k", "next"), node("GreaterOrEqual", "five k", "going")], "next"),
    "a state that falls": ([node("Sub", "k two", "next"), node("Greater", "next low", "going")], "next"),
    "two bounds": ([node("Add", "k two", "next"), node("Less", "i five", "a"), node("Less", "k three", "b"),
                    node("And", "a b", "going")], "next"),
    "the condition before, too": ([node("Less", "i five", "a"), node("And", "c a", "going")], "i"),
    "a bound that is an attribute": ([node("Constant", "", "n", value_int=4), node("Less", "i n", "going")], "i"),
    "a list of one": ([node("Constant", "", "n", value_ints=[4]), node("Less", "i n", "a"),
                       node("Squeeze", "a", "going")], "i"),
    "a bound that is not met, and falls behind": ([node("Greater", "i five", "going")], "i"),
    "a condition that is false": ([node("Identity", "no", "going")], "i"),
    "no bound that is met": ([node("GreaterOrEqual", "i five", "a"), node("Not", "a", "going")], "i"),
    "either of two bounds": ([node("Add", "k two", "next"), node("Less", "i three", "a"), node("Less", "k far", "b"),
                              node("Or", "a b", "going")], "next"),
    "neither of two bounds": ([node("Add", "k two", "next"), node("Greater", "i three", "a"),
                               node("Greater", "k five", "b"), node("Or", "a b", "ab"), node("Not", "ab", "going")],
                              "next"),
    "a bound that is met exactly": ([node("Equal", "i three", "a"), node("Not", "a", "going")], "i"),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_with_a_bound_is_counted_as_the_loop_runs(name: str) -> None:
    nodes, following = COUNTERS[name]
    body = graph(
        [PRODUCT, *nodes, node("Identity", following, "kk"), node("Identity", "k", "seen")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4]), port("k", INT64)], ["going", "t", "kk", "seen"],
    )  # fmt: skip
    numbers = {"two": 2, "three": 3, "five": 5, "far": 900, "low": -7, "start": 1, "m": 20}
    kept = [W, stored("yes", BOOL, [], True), stored("no", BOOL, [], False)]
    kept += [stored(n, INT64, [], value) for n, value in numbers.items()]
    made = model([node("Loop", "m yes x start", "y k seen", body=body)], {"x": (FLOAT, [2, 4])}, "y seen", kept)
    _, seen = ReferenceEvaluator(made).run(None, {"x": np.zeros((2, 4), np.float32)})
    found = opened(made)
    assert [(loop.trips, loop.assumed) for loop in found.loops] == [(len(seen), False)]
    with pytest.raises(WorkloadError, match=f"runs {len(seen)} times: that is known"):
        opened(made, **{f"trips.{found.loops[0].name}": 3})


@pytest.mark.parametrize("most", [3, 50])
def test_a_maximum_and_a_counter_are_a_minimum_in_the_symbol_of_the_maximum(most: int) -> None:
    body = graph(
        [PRODUCT, node("Less", "i five", "going")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4])], ["going", "t"],
    )  # fmt: skip
    kept = [W, stored("yes", BOOL, [], True), stored("five", INT64, [], 5)]
    nodes = [node("Loop", "m yes x", "y", body=body, name="loop")]
    made = model(nodes, {"x": (FLOAT, [2, 4]), "m": (INT64, [])}, "y", kept)
    found = opened(made, m=most)
    assert (found.loops[0].trips, found.loops[0].assumed) == (min(most, 6), False)
    assert text(expr_of(found.loops[0].trips)) == "min(6, m)"
    assert opened(made).loops[0].assumed


def test_a_state_that_grows_is_priced_at_its_first_size_and_that_is_a_guess() -> None:
    body = graph(
        [PRODUCT, node("Concat", "t x", "u", axis=0), node("Identity", "c", "going")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, ["n", 4])], ["going", "u"],
    )  # fmt: skip
    kept = [W, stored("m", INT64, [], 5), stored("yes", BOOL, [], True)]
    nodes = [node("Loop", "m yes x", "y", body=body, name="loop"), node("MatMul", "y w", "z")]
    found = opened(model(nodes, {"x": (FLOAT, [2, 4])}, "z", kept))
    assert any("grows with every trip" in note for note in found.meta.decisive)
    assert count(found).total.macs == (5 * 2 + (2 + 5 * 2)) * 4 * 4


def test_trips_over_a_maximum_that_is_an_input_are_refused_with_the_setting_of_that_input() -> None:
    body = graph(
        [PRODUCT, node("Identity", "c", "going")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4])], ["going", "t"],
    )  # fmt: skip
    nodes = [node("Loop", "m yes x", "y", body=body, name="loop")]
    made = model(nodes, {"m": (INT64, []), "x": (FLOAT, [2, 4])}, "y", [W, stored("yes", BOOL, [], True)])
    with pytest.raises(WorkloadError, match="runs at most 1 times; m = 1 is assumed: --set m=N"):
        opened(made, **{"trips.loop": 10})
    assert count(opened(made, m=10)).total.macs == 10 * 2 * 4 * 4


def test_trips_that_are_known_or_over_the_maximum_are_refused() -> None:
    with pytest.raises(WorkloadError, match="runs 100 times: that is known"):
        opened(looped("c"), **{"trips.loop": 4})
    ended = looped("less", node("ReduceSum", "t", "sum", keepdims=0), node("Less", "sum one", "less"), trips=7)
    ended.graph.initializer.append(stored("one", FLOAT, [], 1.0))
    with pytest.raises(WorkloadError, match="runs at most 7 times"):
        opened(ended, **{"trips.loop": 8})


def test_what_a_loop_stacks_is_as_long_as_the_trips_that_are_given(tmp_path: Path) -> None:
    body = graph(
        [node("Relu", "s", "t"), node("ReduceSum", "t", "sum", keepdims=0), node("Less", "sum one", "less")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4])], ["less", "t", "t"],
    )  # fmt: skip
    made = model(
        [node("Loop", "- - x", "y rows", body=body, name="loop"), node("Relu", "rows", "z")],
        {"x": (FLOAT, [2, 4])}, "z", [stored("one", FLOAT, [], 1.0)],
    )  # fmt: skip
    (file := tmp_path / "stacked.onnx").write_bytes(made.SerializeToString())
    for given in (opened(made, **{"trips.loop": 10}), opened(str(file), **{"trips.loop": 10})):
        assert given.tensors[-1].shape == (10, 2, 4)
        assert not any("trips" in note for note in given.meta.assumptions)


def triangle(condition: str, *nodes: Any, around: int = 5, start: bool = True) -> Any:
    """A loop of as many trips as the index of the one around it, whose body hands on ``condition``."""
    inner = graph(
        [PRODUCT, *nodes, node("Identity", condition, "kk")],
        [port("j", INT64), port("k", BOOL), port("s", FLOAT, [2, 4])], ["kk", "t"],
    )  # fmt: skip
    outer = graph(
        [node("Loop", "i start u", "v", body=inner), node("Identity", "c", "cc")],
        [port("i", INT64), port("c", BOOL), port("u", FLOAT, [2, 4])], ["cc", "v"],
    )  # fmt: skip
    kept = [W, stored("m", INT64, [], around), stored("yes", BOOL, [], True), stored("start", BOOL, [], start),
            stored("two", INT64, [], 2), stored("one", FLOAT, [], 1.0)]  # fmt: skip
    return model([node("Loop", "m yes x", "y", body=outer)], {"x": (FLOAT, [2, 4])}, "y", kept)


def test_an_inner_loop_of_as_many_trips_as_the_outer_index_runs_on_average_half_of_them() -> None:
    found = opened(triangle("k"))
    assert count(found, strict=True).total.macs == (0 + 1 + 2 + 3 + 4) * 2 * 4 * 4


def test_an_inner_loop_of_as_many_trips_as_the_outer_index_heeds_its_condition() -> None:
    counted = opened(triangle("less", node("Less", "j two", "less"), around=6))
    assert count(counted, strict=True).total.macs == (0 + 1 + 2 + 3 + 3 + 3) * 2 * 4 * 4
    assert count(opened(triangle("k", start=False)), strict=True).total.macs == 0
    data = opened(triangle("less", node("ReduceSum", "t", "sum", keepdims=0), node("Less", "sum one", "less")))
    assert [(loop.trips, loop.assumed) for loop in data.loops] == [(5, False), (2, True)]
    assert any("data may end it before" in note for note in data.meta.assumptions)


def test_what_a_loop_of_no_trips_stacks_has_the_declared_sizes() -> None:
    body = graph(
        [PRODUCT, node("ReduceMax", "t", "row", axes=[0], keepdims=0), node("Identity", "c", "going")],
        [port("i", INT64), port("c", BOOL), port("s", FLOAT, [2, 4])], ["going", "t", "row"],
    )  # fmt: skip
    body.output[2].CopyFrom(port("row", FLOAT, [4]))
    kept = [W, stored("m", INT64, [], 0), stored("yes", BOOL, [], True)]
    nodes = [node("Loop", "m yes x", "y rows", body=body), node("MatMul", "rows w", "z")]
    assert opened(model(nodes, {"x": (FLOAT, [2, 4])}, "z", kept)).tensors[-1].shape == (0, 4)


def test_loops_can_be_written_out() -> None:
    assert len(unrolled(opened(looped("c", trips=3))).ops) == 3 * 4
    assert len(unrolled(tensortide.open(looped("c", trips=3), train=True).graph)) > 3 * 4
