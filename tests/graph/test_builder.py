"""A Graph built by hand: storages, lifetimes, roles, loops and what is refused."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.cost import count
from tensortide.cost.table import table_of
from tensortide.errors import GraphError
from tensortide.expr import expr_of, text
from tensortide.graph import Graph, GraphBuilder, Handle, Out, Phase, Role, load, save, unrolled, validate
from tensortide.timelines import timeline


def test_a_forward_and_a_backward_op_share_an_activation() -> None:
    b = GraphBuilder("mlp")
    x, w = b.input("x", (8, 16)), b.parameter("fc.weight", (16, 4))
    with b.module("fc", "Linear"):
        y = b.op("aten.mm", x, w, out=(8, 4))
        z = b.op("aten.relu", y, out=y)
    with b.phase("backward"):
        d = b.op("aten.threshold_backward", z, y, 0, out=z)
    b.output(d)
    graph = b.build()
    roles = [storage.role for storage in graph.storages]
    assert roles == [Role.INPUT, Role.PARAMETER, Role.ACTIVATION, Role.ACTIVATION, Role.OUTPUT]
    assert [storage.death for storage in graph.storages] == [None, None, 3, 3, None]
    assert [graph[i].module for i in range(3)] == ["fc", "fc", "(outside)"]
    assert count(graph).total.macs == 8 * 16 * 4


def mlp(batch: int = 8) -> Graph:
    """A training step of two layers."""
    b = GraphBuilder("mlp")
    n = b.symbol("batch", batch)
    x, t = b.input("x", (n, 784)), b.input("t", (n, 10))
    w1, w2 = b.parameter("w1", (784, 256)), b.parameter("w2", (256, 10))
    h = b.op("aten.relu", b.op("aten.mm", x, w1, out=(n, 256)), out=(n, 256))
    y = b.op("aten.mm", h, w2, out=(n, 10))
    with b.phase("backward"):
        dy = b.op("aten.mse_loss_backward", b.input("one", ()), y, t, 1, out=y)
        xt, ht, w2t = (b.op("aten.t", a, out=Out(a.shape[::-1], view_of=a)) for a in (x, h, w2))
        g2 = b.op("aten.mm", ht, dy, out=w2, role=Role.GRADIENT)
        dh = b.op("aten.threshold_backward", b.op("aten.mm", dy, w2t, out=h), h, 0, out=h)
        g1 = b.op("aten.mm", xt, dh, out=w1, role=Role.GRADIENT)
    with b.phase("optimizer"):
        for w, g in ((w1, g1), (w2, g2)):
            b.op("aten.add_", w, g, arguments={"alpha": -0.1})
    return b.build()


def test_a_training_step_has_formulas() -> None:
    graph = mlp()
    assert text(expr_of(graph.storages[4].nbytes)) == "1024*batch"
    total = count(graph)
    assert total.coverage.complete
    assert graph[-1].name == "aten.add_.Tensor"
    assert graph[-1].written_storages == {3}
    assert table_of(total).totals["parameters"].value == 784 * 256 + 256 * 10
    assert [s.role for s in graph.storages if s.birth is not None].count(Role.GRADIENT) == 2


def test_arguments_have_the_names_of_the_signature() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (4, 4)), b.input("y", (4, 4))
    b.op("aten.cat", [x, y], 1, out=(4, 8))
    b.op("aten.sum", x, (1,), True, out=(4, 1))
    b.op("aten.convolution", b.input("i", (1, 2, 4)), b.input("k", (2, 2, 1)), None, out=(1, 2, 4))
    b.op("foreign.op", x, y, out=(4,))
    b.ops("aten._foreach_add_", [x, y], [y, x])
    graph = b.build()
    assert graph[0].call.arguments[1] == ("dim", 1)
    assert graph[1].name == "aten.sum.dim_IntList"
    assert graph[2].arguments["bias"] is None
    assert list(graph[3].arguments) == ["x0", "x1"]
    assert (graph[4].name, graph[4].call.mutated) == ("aten._foreach_add_.List", (0, 1))


def test_the_body_of_a_loop_keeps_what_it_reads_from_outside() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,))
    scale = b.op("aten.exp", x, out=(4,))
    with b.loop("steps", 10) as carry:
        y = b.op("aten.mul", x, scale, out=(4,))
        z = b.op("aten.exp", y, out=(4,))
        carry(x, z)
    with b.loop("back", None, gradient_of=carry):
        b.op("aten.exp", z, out=(4,))
    b.output(z)
    graph = b.build()
    assert graph.loops[0].carried == ((x.index, z.index),)
    assert graph.storages[1].death == 3
    assert graph.trips(1) == 10
    assert (graph.loops[1].assumed, graph.loops[1].trips, graph.loops[1].gradient_of) == (True, 1, 0)


def test_a_loop_written_out_reads_what_the_iteration_before_made() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,))
    with b.loop("steps", 3) as carry:
        y = b.op("aten.exp", x, out=x)
        carry(x, y)
    b.output(b.op("aten.add", x, y, out=x))
    flat = unrolled(b.build())
    validate(flat)
    reads = [flat.ops[0].inputs[0], *(op.outputs[0] for op in flat.ops[:2])]
    assert [op.inputs[0] for op in flat.ops[:3]] == reads
    assert flat.ops[3].inputs == (flat.ops[0].inputs[0], flat.ops[2].outputs[0])
    assert timeline(flat).peak_bytes == 3 * 16


def test_views_share_a_storage() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 6))
    y = b.op("aten.view", x, (3, 4), out=Out((3, 4), view_of=x))
    b.output(last=b.op("aten.exp", y, out=(3, 4)))
    graph = b.build()
    assert len(graph.storages) == 2
    assert graph[0].is_view
    assert graph.named[-1].name == "last"


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
    with pytest.raises(GraphError, match="no dimension can be negative"):
        b.op("aten.exp", x, out=(-1,))
    with pytest.raises(GraphError, match="integers are needed"):
        b.input("z", (2.5,))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="mutates a tensor that is not among its inputs"):
        b.op("aten.add_.Tensor", x, x, out=Out((2,), view_of=x), mutates=[y])
    with pytest.raises(GraphError, match="1 inputs and 2 names"):
        b.op("aten.exp", x, out=(2,), names=("a", "b"))
    with pytest.raises(GraphError, match=r"aten\.mm needs the shape"):
        b.op("aten.mm", x)
    with pytest.raises(GraphError, match=r"aten.mm\(tensor, tensors\) fits no overload of the op: aten.mm.default"):
        b.op("aten.mm", x, [y], out=(2,))
    with pytest.raises(GraphError, match="a view of shape"):
        b.op("aten.view", x, (3,), out=Out((3,), view_of=x))
    with pytest.raises(GraphError, match="is a set"):
        b.op("foreign.exp", {x}, out=(2,))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="of another graph"):
        b.op("aten.exp", Handle(77, (2,), "float32"), out=(2,))
    other = GraphBuilder("other").input("y", (2,))
    with pytest.raises(GraphError, match="of another graph"):
        b.op("aten.exp", other, out=(2,))
    with pytest.raises(GraphError, match="of another graph"):
        b.op("aten.view", x, (2,), out=Out((2,), view_of=other))
    with pytest.raises(GraphError, match="of another graph"):
        b.output(y=other)
    with pytest.raises(GraphError, match="None is no tensor"):
        b.output(y=None)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"the trip count of loop 'l' is 2\.5: an integer"), b.loop("l", 2.5):  # type: ignore[arg-type]
        pass
    with pytest.raises(GraphError, match=r"the symbol 'n' is 2\.5: an integer"):
        b.symbol("n", 2.5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="is no phase: forward, backward"), b.phase("first"):
        pass
    with pytest.raises(GraphError, match="a loop carries"), b.loop("l", 2) as carry:
        carry(x, b.op("aten.exp", x, out=(3,)))


@given(st.data())
def test_what_is_built_is_valid_and_counts_as_a_tally_does(data: st.DataObject) -> None:
    """Products of random sizes, in random loops, phases and modules: totals are those of a tally beside it."""
    b = GraphBuilder("random")
    b.assume("lifetimes by last use")
    sizes = [b.symbol(name, data.draw(st.integers(1, 6))) for name in "nmk"]
    size, values, macs = st.sampled_from([*sizes, 1, 7]), [b.input("x", (sizes[0], sizes[1]))], 0

    def some_ops(trips: int, depth: int) -> int:
        macs = 0
        for _ in range(data.draw(st.integers(1, 3))):
            kind = data.draw(st.sampled_from(["mm", "relu_", "view", "loop"]))
            x = data.draw(st.sampled_from(values))
            rows, columns = x.shape
            if kind == "mm":
                w = b.parameter(f"w{len(values)}", (columns, wide := data.draw(size)))
                values.append(b.op("aten.mm", x, w, out=(rows, wide)))
                macs += trips * int(rows) * int(columns) * int(wide)
            elif kind == "relu_":
                values.append(b.op("aten.relu_", x))
            elif kind == "view":
                values.append(b.op("aten.t", x, out=Out((columns, rows), view_of=x, strides=(1, columns))))
                values[-1] = b.op("aten.clone", values[-1], out=values[-1])
            elif depth:
                inner = data.draw(st.integers(0, 4))
                with b.loop(f"loop{len(values)}", inner), b.phase(data.draw(st.sampled_from(list(Phase)))):
                    macs += some_ops(trips * inner, depth - 1)
        return macs

    macs = some_ops(1, 2)
    b.output(values[-1])
    graph = b.build()
    assert graph.meta.assumptions == ("lifetimes by last use",)
    assert count(graph).total.macs == macs
    for i, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            storage = graph.storages[graph.tensors[tensor].storage]
            assert (storage.birth or 0) <= i < (len(graph) if storage.death is None else storage.death)


def test_a_built_graph_survives_its_file(tmp_path: Path) -> None:
    graph = mlp()
    save(graph, tmp_path / "mlp.tide")
    again = load(tmp_path / "mlp.tide")
    assert again == graph
    assert [expr_of(n) for t in again.tensors for n in t.shape] == [expr_of(n) for t in graph.tensors for n in t.shape]


def test_a_large_graph_takes_time_in_proportion_to_its_ops() -> None:
    def seconds(ops: int) -> float:
        start = time.process_time()
        b = GraphBuilder()
        x, w = b.input("x", (8, 8)), b.parameter("w", (8, 8))
        for _ in range(ops):
            x = b.op("aten.mm", x, w, out=(8, 8))
        b.output(x)
        b.build()
        return time.process_time() - start

    seconds(1000)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.01)


def test_the_page_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/build.md").read_text()
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    exec(code, {"print": lambda *values: lines.append(" ".join(map(str, values)))})
    assert "\n".join(lines) == printed.strip()
    assert load(tmp_path / "mlp.tide").meta.workload == "mlp"


def test_the_edits_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/build.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"print": lambda *values: None}
    build, edit = re.findall(r"```(?:python|py)\n(.*?)```", page, re.DOTALL)
    exec(build, names)
    edits, refused = edit.strip().rsplit("\n", 1)
    exec(edits, names)
    with pytest.raises(GraphError, match="delete it too, or rewire it"):
        exec(refused, names)
