"""Loops written out: the same work and the same storages, and memory over time as iteration by iteration it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tensortide.cost import count
from tensortide.errors import GraphError
from tensortide.expr import as_expr
from tensortide.graph import Graph, GraphBuilder, Out, unrolled, validate
from tensortide.importers.tensorflow.building.convert import graph_of_program
from tensortide.importers.tensorflow.program import OUTSIDE, Loop, Program, Ref
from tensortide.memory import footprint_bytes
from tensortide.timelines import timeline
from tests.graph.test_loops import looped
from tests.importers.tf1.costs.files import step
from tests.importers.tf1.costs.programs import Builder, accumulating


def test_a_graph_without_loops_is_itself() -> None:
    graph = msgspec.structs.replace(looped(), loops=(), ops=looped().ops[:1])
    assert unrolled(graph) is graph


def test_nested_loops() -> None:
    graph = unrolled(looped(5, 3))
    assert [op.label for op in graph.ops] == ["op0", *["op1", *["op2"] * 3] * 5]
    assert graph.loops == ()
    assert "5, 15, 5" in graph.meta.assumptions[-1]


def test_too_long_a_graph_is_an_error() -> None:
    with pytest.raises(GraphError, match="more than"):
        unrolled(looped(10**9))


def same_work(graph: Graph) -> Graph:
    """The graph unrolled; work and storages are the same."""
    flat = unrolled(graph)
    validate(flat)
    before, after = count(graph).total.cost, count(flat).total.cost
    assert (after.macs, after.elementwise_flops, after.bytes) == (
        before.macs,
        before.elementwise_flops,
        before.bytes,
    )
    assert sum(storage.nbytes for storage in flat.storages) == footprint_bytes(graph)
    return flat


def test_an_accumulator_stays_one_storage() -> None:
    """x, the sum, and one iteration's square at a time."""
    flat = same_work(graph_of_program(accumulating()))
    added = [op for op in flat.ops if op.label == "added"]
    assert len(added) == 4
    assert len({flat.tensors[op.outputs[0]].storage for op in added}) == 1
    assert timeline(flat).peak_bytes == 3 * 24


def stashing(trips: int, size: int) -> Program:
    """A loop that doubles ``state`` and keeps every value; a gradient loop that takes them back, last first."""
    b = Builder()
    b.loops = [Loop("forward", OUTSIDE, as_expr(trips)), Loop("gradients/back", OUTSIDE, as_expr(trips), 0)]
    stack = b.add("StackV2", shapes=[[2]], dtype="resource", name="stack")
    there = b.add("Enter", [stack], [[2]], dtype="resource", name="there")
    here = b.add("Enter", [stack], [[2]], dtype="resource", name="here")
    start = b.add("Fill", shapes=[[size]], name="start")
    enter = b.add("Enter", [start], [[size]], name="enter")
    merge = b.add("Merge", [enter], [[size], []], name="merge", loop=0)
    done = b.add("LoopCond", [there], [[]], dtype="bool", name="done", loop=0)
    switch = b.add("Switch", [merge, done], [[size], [size]], name="switch", loop=0)
    push = b.add("StackPushV2", [there, Ref(switch, 1)], [[size]], name="push", loop=0)
    doubled = b.add("Neg", [push], [[size]], name="doubled", loop=0)
    back = b.add("NextIteration", [doubled], [[size]], name="next", loop=0)
    b.feed_back(merge, back)
    last = b.add("Exit", [switch], [[size]], name="last")
    pop = b.add("StackPopV2", [here], [[size]], name="pop", loop=1, control=[last])
    b.add("Neg", [pop], [[size]], name="used", loop=1)
    return b.program()


def test_stashes_pile_up_and_are_taken_back_last_first() -> None:
    """After t iterations t values are kept, and the last state lives beside them."""
    trips, size = 5, 250
    flat = same_work(graph_of_program(stashing(trips, size)))
    line = timeline(flat)
    labels = [op.label for op in flat.ops]
    at = {label: [i for i, name in enumerate(labels) if name == label] for label in ("doubled", "used")}
    assert [int(line.resident[i]) // (4 * size) for i in at["doubled"]] == [2, 3, 4, 5, 6]
    assert [int(line.resident[i]) // (4 * size) for i in at["used"]] == [6, 5, 4, 3, 2]
    taken = [flat.tensors[flat.ops[i].outputs[0]].storage for i, name in enumerate(labels) if name == "pop"]
    kept = [flat.tensors[flat.ops[i].inputs[1]].storage for i, name in enumerate(labels) if name == "push"]
    assert taken == kept[::-1]
    assert len(set(kept)) == trips


@pytest.mark.parametrize("name", ["simple_while", "dynamic_rnn", "dynamic_rnn_with_backprop", "word_lm"])
def test_published_graphs(reference: Path, name: str) -> None:
    same_work(step(reference, name).graph)


def test_peak_of_the_word_lm_grows_by_what_steps_keep(reference: Path) -> None:
    """At the end of the forward loops every step's activations are there: linear in the steps."""
    from tensortide.importers.tf1.load import import_graph
    from tests.importers.tf1.costs.files import graph_file

    file = graph_file(reference, "word_lm")
    peaks = [
        timeline(unrolled(import_graph(file, settings={"s": s, "b": 2, "h": 5, "v": 11}).graph)).peak_bytes
        for s in (10, 20, 30)
    ]
    assert peaks[2] - peaks[1] == peaks[1] - peaks[0] > 0


def test_only_the_last_iteration_leaves_an_output() -> None:
    """h = h @ w, four times: w, h and the next h at a time, and the input before it."""
    b = GraphBuilder("loop")
    h, w = b.input("h", (4, 4)), b.parameter("w", (4, 4))
    with b.loop("loop", 4) as carry:
        start = b.op("jax.carry", h, out=Out((4, 4), view_of=h))
        following = b.op("aten.mm.default", start, w, out=(4, 4))
        carry(start, following)
    b.output(following)
    flat = same_work(b.build())
    assert [storage.death for storage in flat.storages if storage.birth is not None][-1:] == [None]
    assert timeline(flat).peak_bytes == 4 * 64
