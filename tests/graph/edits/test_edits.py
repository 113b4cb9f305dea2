"""Edits: what is conserved, what undoes what, and what cannot be."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tensortide.cost import count
from tensortide.errors import GraphError
from tensortide.expr import expr_of, text
from tensortide.graph import Graph, GraphBuilder, Out, validate
from tensortide.graph.edits import compacted, delete, fuse, insert, replace, resized, rewire, split, tensor
from tensortide.timelines import timeline
from tests.graph.test_builder import mlp
from tests.graphs import graphs


def chain() -> Graph:
    """exp, mul by the input, relu, add of the product: five storages of 16 bytes."""
    b = GraphBuilder()
    x = b.input("x", (4,))
    e = b.op("aten.exp", x, out=x)
    m = b.op("aten.mul", e, x, out=x)
    r = b.op("aten.relu", m, out=x)
    b.output(b.op("aten.add", r, m, out=x))
    return b.build()


@given(graphs(), st.data())
def test_deleting_what_was_inserted_gives_the_graph_again(graph: Graph, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(graph)))
    there = [
        i for i, t in enumerate(graph.tensors)
        if (birth := graph.storages[t.storage].birth) is None or birth < at
    ]  # fmt: skip
    inputs = [tensor(graph, i) for i in data.draw(st.lists(st.sampled_from(there), max_size=2))] if there else []
    made = insert(graph, at, "test.new", *inputs, outs=[Out((3,), "float32")])
    validate(made)
    assert made[at].name == "test.new"
    assert len(made) == len(graph) + 1
    assert sum(s.nbytes for s in made.storages) == sum(s.nbytes for s in compacted(graph).storages) + 12
    again = delete(made, [at])
    assert again.ops == compacted(graph).ops
    assert again.tensors == compacted(graph).tensors
    births = [(s.nbytes, s.birth) for s in compacted(graph).storages]
    assert [(s.nbytes, s.birth) for s in again.storages] == births


@given(graphs(), st.data())
def test_fusing_keeps_the_interface(graph: Graph, data: st.DataObject) -> None:
    assume(len(graph))
    members = data.draw(st.sets(st.sampled_from(range(len(graph))), min_size=1, max_size=4))
    try:
        made = fuse(graph, members, "all")
    except GraphError as refused:
        event(str(refused).rpartition("(")[2])
        return
    validate(made)
    assert len(made) == len(graph) - len(members) + 1
    (view,) = [view for view in made if view.name == "fused.op.all"]
    inner = {t for op in members for t in graph.ops[op].outputs}
    outer = {t for op in members for t in graph.ops[op].inputs if t not in inner}
    assert len(view.inputs) <= len(outer) + len(members) * 3
    assert sorted(t.numel for t in set(view.inputs)) <= sorted(t.numel for t in map(graph.tensors.__getitem__, outer))
    left = {s.nbytes for s in made.storages}
    assert left <= {s.nbytes for s in graph.storages}
    assert timeline(made).peak_bytes <= timeline(graph).footprint_bytes


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_parts_of_a_product_have_its_work(parts: int, rows: int, columns: int) -> None:
    b = GraphBuilder()
    x, w = b.input("x", (parts * rows, columns)), b.parameter("w", (columns, 3))
    y = b.op("aten.mm", x, w, out=(parts * rows, 3))
    b.output(b.op("aten.relu", y, out=y))
    graph = b.build()
    made = split(graph, 0, parts, inputs={0: 0}, outputs={0: 0})
    before, after = count(graph).total, count(made).total
    assert (after.macs, after.flops) == (before.macs, before.flops)
    assert after.cost.written_bytes == before.cost.written_bytes
    assert after.cost.read_bytes == before.cost.read_bytes + (parts - 1) * 4 * columns * 3
    assert timeline(made).peak_bytes == timeline(graph).peak_bytes
    assert [view.inputs[0].offset for view in list(made)[:-1]] == [i * rows * columns for i in range(parts)]


def test_what_only_the_fused_ops_use_is_gone() -> None:
    graph = chain()
    made = fuse(graph, [0, 1], "scale", arguments={"macs": 0, "elementwise_flops": 8})
    assert [view.name for view in made] == ["fused.op.scale", "aten.relu.default", "aten.add.Tensor"]
    assert len(made.storages) == len(graph.storages) - 1
    assert count(made).total.flops == count(graph).total.flops
    assert (
        count(made).total.accessed_bytes == count(graph).total.accessed_bytes - 3 * 16
    )  # written once, read once, x read once less
    assert count(fuse(graph, [0, 1], "scale")).total.unknown_ops == 1


def test_fusing_around_a_reader_is_a_cycle() -> None:
    with pytest.raises(
        GraphError, match=r"ops 1, 3 cannot be one op: op 2 \(aten.relu.default\) has to run after op 1"
    ):
        fuse(chain(), [1, 3], "no")
    step = mlp()
    with pytest.raises(GraphError, match="different phases"):
        fuse(step, [0, 5], "no")


def test_a_deleted_op_must_not_be_missed() -> None:
    with pytest.raises(GraphError, match=r"op 1 \(aten.mul.Tensor\) uses tensor 1, which no op before it makes"):
        delete(chain(), [0])
    with pytest.raises(GraphError, match="there is no op 9"):
        delete(chain(), [9])
    assert len(delete(chain(), [3])) == 3


def test_a_tensor_dies_where_its_new_last_reader_is() -> None:
    graph = delete(chain(), [3])
    assert [s.death for s in graph.storages] == [None, 2, 3, 3]


def test_a_detour_is_inserted_and_rewired() -> None:
    graph = chain()
    made = insert(graph, 3, "aten.neg", tensor(graph, 2), outs=[Out((4,))])
    fresh = len(made.tensors) - 1
    made = rewire(made, {2: fresh}, ops=[4])
    assert made.ops[4].inputs == (3, fresh)
    assert made.storages[made.tensors[fresh].storage].death == 5
    with pytest.raises(GraphError, match=r"uses tensor .*, which no op before it makes"):
        rewire(made, {1: fresh}, ops=[1])
    with pytest.raises(GraphError, match=r"cannot take the place of"):
        rewire(mlp(), {0: 1})


def test_a_call_is_replaced() -> None:
    graph = chain()
    made = replace(graph, 2, "aten.gelu", tensor(graph, 2), arguments={"approximate": "tanh"})
    assert count(made).total.flops == count(graph).total.flops + 4 * (9 - 1)
    back = replace(made, 2, "aten.relu", tensor(made, 2))
    assert back.ops == compacted(graph).ops
    with pytest.raises(GraphError, match="which no op before it makes"):
        replace(graph, 0, "aten.exp", tensor(graph, 4))


def test_sizes_take_other_values() -> None:
    graph = resized(mlp(8), {"batch": 32})
    assert count(graph).total.flops == count(mlp(32)).total.flops
    assert timeline(graph).peak_bytes == timeline(mlp(32)).peak_bytes
    assert text(expr_of(graph.storages[4].nbytes)) == "1024*batch"
    assert resized(graph, {"batch": 8}).storages == mlp(8).storages
    with pytest.raises(GraphError, match="no size of the graph has a symbol 'bath'; 'batch' is meant"):
        resized(graph, {"bath": 2})


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(GraphError, match="has no dimension 0 that 3 parts divide"):
        split(chain(), 0, 3, inputs={0: 0}, outputs={0: 0})
    with pytest.raises(GraphError, match="every one of its 1 outputs"):
        split(chain(), 0, 2, inputs={0: 0}, outputs={})
