"""A Graph built by hand: storages, lifetimes, roles, loops and what is refused."""

from __future__ import annotations

import pytest

from tensortide.cost import count
from tensortide.errors import GraphError
from tensortide.graph import GraphBuilder, Out, Phase, Role


def test_a_forward_and_a_backward_op_share_an_activation() -> None:
    b = GraphBuilder("mlp")
    x, w = b.input("x", (8, 16)), b.parameter("fc.weight", (16, 4))
    with b.module("fc", "Linear"):
        y = b.op("aten.mm.default", x, w, out=(8, 4), names=("self", "mat2"))
        z = b.op("aten.relu.default", y, out=(8, 4), names=("self",))
    with b.phase(Phase.BACKWARD):
        d = b.op("aten.threshold_backward.default", z, y, out=(8, 4), names=("grad_output", "self"))
    b.output(d)
    graph = b.build()
    roles = [storage.role for storage in graph.storages]
    assert roles == [Role.INPUT, Role.PARAMETER, Role.ACTIVATION, Role.ACTIVATION, Role.OUTPUT]
    assert [storage.death for storage in graph.storages] == [None, None, 3, 3, None]
    assert [graph[i].module for i in range(3)] == ["fc", "fc", "(outside)"]
    assert count(graph).total.macs == 8 * 16 * 4


def test_the_body_of_a_loop_keeps_what_it_reads_from_outside() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,))
    scale = b.op("aten.exp.default", x, out=(4,), names=("self",))
    with b.loop("steps", 10) as carry:
        y = b.op("aten.mul.Tensor", x, scale, out=(4,), names=("self", "other"))
        z = b.op("aten.exp.default", y, out=(4,), names=("self",))
        carry(x, z)
    b.output(z)
    graph = b.build()
    assert graph.loops[0].carried == ((x.index, z.index),)
    assert graph.storages[1].death == 3
    assert graph.trips(1) == 10


def test_views_share_a_storage() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 6))
    y = b.op("aten.view.default", x, out=Out((3, 4), view_of=x), names=("self",), arguments={"size": (3, 4)})
    b.output(b.op("aten.exp.default", y, out=(3, 4), names=("self",)))
    graph = b.build()
    assert len(graph.storages) == 2
    assert graph[0].is_view


def test_arguments_hold_tensors_in_lists_and_results_may_be_absent() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (2, 3)), b.input("y", (4, 3))
    joined = b.call("aten.cat.default", [("tensors", (x, y)), ("dim", 0)], positional=2, outs=[Out((6, 3))])[0]
    assert joined is not None
    made = b.call("aten.native_dropout.default", [("input", joined), ("p", 0.5)], outs=[Out((6, 3)), None])
    assert made[0] is not None
    assert made[1] is None
    b.output(made[0])
    graph = b.build()
    assert [len(argument) for argument in graph[0].arguments.values() if isinstance(argument, tuple)] == [2]
    assert graph[1].result == (graph[1].outputs[0], None)


def test_what_cannot_be_is_refused() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (2,)), b.input("y", (2,))
    with pytest.raises(GraphError, match="unknown dtype 'float3'"):
        b.input("z", (2,), "float3")
    with pytest.raises(GraphError, match="shape"):
        b.op("aten.exp.default", x, out=(-1,))
    with pytest.raises(GraphError, match="mutates a tensor that is not among its inputs"):
        b.op("aten.add_.Tensor", x, out=Out((2,), view_of=x), mutates=[y])
    with pytest.raises(GraphError, match="1 inputs and 2 names"):
        b.op("aten.exp.default", x, out=(2,), names=("a", "b"))
