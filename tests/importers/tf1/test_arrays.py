"""Arrays that grow, and the loops that read and write them: lengths are trips, loops over one length share theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tensortide.cost import count
from tensortide.cost.table import Table, table_of
from tensortide.expr import parse, total
from tensortide.importers.tensorflow.program import MetaGraphError, Program
from tensortide.importers.tensorflow.read import read_program
from tensortide.importers.tf1.load import import_graph
from tests.importers.tf1.build import FLOAT, INT, Graph, counted_loop, shape, tensor, underived
from tests.importers.tf1.test_loops import shapes, time_of

FIXTURES = Path(__file__).parents[2] / "data" / "tf1"


def table(name: str) -> Table:
    step = import_graph(FIXTURES / f"{name}.meta.gz")
    return table_of(count(step.graph), step.symbols)


@pytest.mark.parametrize("name", ["encoder_decoder", "decoder_until_done"])
def test_an_encoder_decoder_by_its_products(name: str) -> None:
    """Counted by hand from the model: a cell per step is ``2h x 4h``, attention ``2h x h`` and every memory state
    twice, the projection ``h x v``; backward is twice forward. The decoder runs as often as its labels are long."""
    found = table(name)
    products = total(row.of_step("flops") for row in found.rows if "MatMul" in row.type)
    assert products == parse("3*(2*b*s*2*h*4*h + 2*b*t*2*h*4*h + 2*b*t*2*h*h + 2*2*b*t*s*h + 2*b*t*h*v)")
    assert found.totals["parameters"] == parse("2*v*h + 2*(8*h**2 + 4*h) + 2*h**2 + h*v")
    assert {str(row.trips) for row in found.rows} == {"1", "s", "t"}


@pytest.mark.parametrize("name", ["encoder_decoder", "decoder_until_done"])
def test_an_encoder_decoder_has_sizes_with_names(name: str) -> None:
    program = read_program(FIXTURES / f"{name}.meta.gz")
    assert program.hints.keys() == {"b", "s", "t", "h", "v"}
    assert [str(loop.trips) for loop in program.loops if loop.gradient_of < 0] == ["t", "s"]
    backward = [loop for loop in program.loops if loop.gradient_of >= 0]
    assert all(loop.trips == program.loops[loop.gradient_of].trips for loop in backward)
    assert len(backward) == 2


def test_outputs_of_an_iterator_have_names() -> None:
    program = read_program(FIXTURES / "encoder_decoder.meta.gz")
    assert shapes(program, "IteratorGetNext") == ["b,s", "b,t", "b,t", "b"]


class Growing:
    """A graph with an array of size 0 that grows; ``stack`` reads all of it."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.graph.feed("x", -1, -1, 4)
        self.steps = time_of(self.graph, "x")
        self.graph.feed("state", -1, 4)
        self.array()

    def array(self, name: str = "array", size: str = "") -> None:
        size = size or self.graph.scalar(f"{name}/size", 0)
        self.graph.node(name, "TensorArrayV3", size, dtype=FLOAT, dynamic_size=size == f"{name}/size")

    def write(self, name: str, index: str, value: str, flow: str, handle: str = "array") -> str:
        return self.graph.node(name, "TensorArrayWriteV3", handle, index, value, flow, T=FLOAT)

    def stack(self, flow: str, handle: str = "array") -> Program:
        graph = self.graph
        graph.node("size", "TensorArraySizeV3", handle, flow)
        graph.node("range", "Range", graph.scalar("zero", 0), "size", graph.scalar("one", 1), Tidx=INT)
        graph.node("y", "TensorArrayGatherV3", handle, "range", flow, dtype=FLOAT)
        graph.train("y")
        return read_program(graph.data())

    def loop(self, scope: str, bound: str, index: Sequence[tuple[str, str]] = (), flow: str = "array:1") -> str:
        """A loop that writes its state at every trip; ``index`` are ops with a constant, from its counter on."""
        graph = self.graph

        def body(states: list[str], invariants: list[str]) -> list[str]:
            at = f"{scope}/Identity_0"
            for i, (kind, more) in enumerate(index):
                at = graph.node(f"{scope}/index_{i}", kind, at, more, T=INT)
            return [self.write(f"{scope}/write", at, "state", states[0], handle=invariants[0])]

        return counted_loop(graph, scope, bound, [flow], body, invariants=["array"])[1]


def test_an_array_is_as_long_as_the_loop_that_writes_it() -> None:
    growing = Growing()
    assert shapes(growing.stack(growing.loop("loop", growing.steps)), "y") == ["s,b,4"]


def test_an_index_that_begins_later() -> None:
    growing = Growing()
    offset = growing.graph.scalar("three", 3)
    program = growing.stack(
        growing.loop("loop", growing.steps, [("Add", offset), ("Sub", growing.graph.scalar("1", 1))])
    )
    assert shapes(program, "y") == ["s + 2,b,4"]


def test_writes_one_by_one() -> None:
    growing = Growing()
    flow = "array:1"
    for i in (0, 3, 1):
        flow = growing.write(f"write_{i}", growing.graph.scalar(f"at_{i}", i), "state", flow)
    assert shapes(growing.stack(flow), "y") == ["4,b,4"]


def test_one_write_after_a_loop() -> None:
    growing = Growing()
    flow = growing.loop("loop", growing.steps)
    assert shapes(growing.stack(growing.write("last", growing.steps, "state", flow)), "y") == ["s + 1,b,4"]


def test_two_loops_that_write_one_array() -> None:
    """Both lengths are exact and neither is surely the larger one."""
    growing = Growing()
    growing.graph.feed("other", dtype=INT)
    flow = growing.loop("second", "other", flow=growing.loop("first", growing.steps))
    assert shapes(growing.stack(flow), "y") == ["max(other, s),b,4"]


def test_an_index_that_is_data_leaves_the_length_open() -> None:
    growing = Growing()
    growing.graph.node("found", "ArgMax", "state", growing.graph.scalar("axis", 0), output_type=INT)
    growing.graph.node("at", "Max", "found", growing.graph.const("axes", 0), T=INT)
    program = growing.stack(growing.write("write", "at", "state", "array:1"))
    assert shapes(program, "y") == ["range:0::dim_0,b,4"]


def data_loop(growing: Growing, body: Sequence[str] = (), ahead: bool = False) -> str:
    """A loop that runs until data say so, writes the growing array, and reads ``body``, another one, by its counter."""
    graph = growing.graph
    frame = "until"
    graph.node("begin", "Const", dtype=INT, value=tensor(0))
    for name, source in (("t", "begin"), ("flow", "array:1")):
        graph.node(f"{name}/Enter", "Enter", source, frame_name=frame, is_constant=False)
        graph.node(f"{name}/Merge", "Merge", f"{name}/Enter", f"{name}/Next")
    for name in ("array", "state", *body):
        graph.node(f"{name}/in", "Enter", name, frame_name=frame, is_constant=True)
    graph.node("done", "Max", "state/in", graph.const("both", 0, 1, control="t/Merge"))
    graph.node("go", "LoopCond", "done")
    for name in ("t", "flow"):
        graph.node(f"{name}/Switch", "Switch", f"{name}/Merge", "go")
    graph.node("t/more", "Add", "t/Switch:1", graph.scalar("step", 1, control="t/Switch"), T=INT)
    at = "t/Switch:1"
    if ahead:
        graph.node("is_last", "Max", "state/in", graph.const("both_again", 0, 1, control="t/Merge"))
        graph.node("t/arm", "Switch", "t/more", "is_last", T=INT)
        at = "t/arm:1"
    for name in body:
        graph.node(f"{name}/read", "TensorArrayReadV3", f"{name}/in", at, f"{name}/in", dtype=FLOAT)
    growing.write("write", "t/Switch:1", "state/in", "flow/Switch:1", handle="array/in")
    graph.node("t/Next", "NextIteration", "t/more")
    waits = [f"^{name}/read" for name in body]
    graph.node("flow/passed", "Identity", "write", *waits)
    graph.node("flow/Next", "NextIteration", "flow/passed")
    return graph.node("flow/Exit", "Exit", "flow/Switch")


def test_a_loop_that_data_end_has_the_trips_of_its_labels() -> None:
    """The loss compares every output with a label."""
    growing = Growing()
    flow = data_loop(growing)
    growing.graph.feed("labels", -1, -1, 4)
    growing.graph.node("size", "TensorArraySizeV3", "array", flow)
    zero, one = growing.graph.scalar("zero", 0), growing.graph.scalar("one", 1)
    growing.graph.node("range", "Range", zero, "size", one, Tidx=INT)
    growing.graph.node("stack", "TensorArrayGatherV3", "array", "range", flow, dtype=FLOAT)
    growing.graph.node("loss", "Sub", "stack", "labels")
    growing.graph.train("loss")
    program = read_program(growing.graph.data())
    assert shapes(program, "loss") == shapes(program, "labels")
    assert str(program.loops[0].trips) == shapes(program, "labels")[0].split(",")[0]
    assert not underived(program)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_loop_that_data_end_runs_at_most_as_often_as_its_inputs_last(ahead: bool) -> None:
    """What it reads one step ahead, under a condition, is not read in the last trip."""
    growing = Growing()
    growing.array("inputs", growing.steps)
    program = growing.stack(data_loop(growing, ["inputs"], ahead))
    assert str(program.loops[0].trips) == "s"
    assert "trips(until) is taken to be the most it can be, s" in program.notes
    assert shapes(program, "y") == ["s,b,4"]


def test_a_loop_that_nothing_tells_is_a_listed_symbol() -> None:
    growing = Growing()
    program = growing.stack(data_loop(growing))
    assert underived(program) == ("trips(until)",)
    assert shapes(program, "y") == ["trips(until),b,4"]


def test_loops_over_one_length_share_their_trips() -> None:
    """Both run up to the largest of the lengths, which each computes anew."""
    growing = Growing()
    graph = growing.graph
    graph.feed("lengths", -1, dtype=INT)
    for name in ("first", "second"):
        graph.node(f"{name}/most", "Max", "lengths", graph.const(f"{name}/axes", 0), T=INT)
        counted_loop(
            graph,
            name,
            f"{name}/most",
            ["x"],
            lambda states, _, name=name: [graph.node(f"{name}/y", "Relu", states[0])],
        )
    graph.train("first/Exit_1", "second/Exit_1")
    program = read_program(graph.data())
    assert [str(loop.trips) for loop in program.loops] == ["'trips(first/frame)'"] * 2


def test_a_scattered_array_is_as_long_as_what_is_scattered() -> None:
    growing = Growing()
    growing.graph.node("places", "Placeholder", dtype=INT, shape=shape(-1))
    flow = growing.graph.node("scatter", "TensorArrayScatterV3", "array", "places", "x", "array:1", T=FLOAT)
    program = growing.stack(flow)
    assert shapes(program, "y") == shapes(program, "x")


def test_a_feed_is_not_empty() -> None:
    """A size of 0 for what is fed is said to be wrong, never silently taken."""
    graph = Graph()
    graph.feed("x", -1, 16)
    graph.node("none", "Fill", graph.const("dims", 0, 16), graph.node("zero", "Const", dtype=FLOAT), T=FLOAT)
    graph.node("both", "AddN", "x", "none", T=FLOAT)
    graph.train("both")
    with pytest.raises(MetaGraphError, match=r"node both: .*0"):
        read_program(graph.data())
