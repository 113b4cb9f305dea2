"""From a Program to a Graph: order, storages, phases, roles, loops, conditionals."""

from __future__ import annotations

import msgspec
import pytest

from tensortide.cost import count
from tensortide.cost.table import table_of
from tensortide.expr import as_expr, expr_of, symbol
from tensortide.graph import Graph, Phase, Role
from tensortide.importers.tensorflow.building.arrange import order
from tensortide.importers.tensorflow.building.convert import graph_of_program
from tensortide.importers.tensorflow.program import OUTSIDE, Loop, MetaGraphError, Ref
from tensortide.importers.tensorflow.read import read_program
from tensortide.memory import footprint_bytes
from tensortide.timelines import timeline
from tests.importers.tf1.build import FLOAT
from tests.importers.tf1.build import Graph as File
from tests.importers.tf1.costs.programs import Builder, accumulating

N, T = symbol("n"), symbol("t")


def storage_of(graph: Graph, label: str, output: int = 0) -> int:
    op = next(op for op in graph.ops if op.label == label)
    return graph.tensors[op.outputs[output]].storage


def test_a_loop_is_counted_every_iteration() -> None:
    graph = graph_of_program(accumulating())
    assert [(loop.name, expr_of(loop.trips)) for loop in graph.loops] == [("loop", T)]
    total = count(graph).total
    assert expr_of(total.flops) == 2 * N * T  # a product and a sum per element and iteration
    assert total.flops == 2 * 6 * 4


def test_an_accumulator_is_one_storage() -> None:
    """x, the sum, every iteration's square, and the number that says which value it started with."""
    graph = graph_of_program(accumulating())
    assert len({storage_of(graph, name) for name in ("start", "enter", "merge", "switch", "added", "exit")}) == 1
    assert expr_of(footprint_bytes(graph)) == 4 * (2 * N + N * T + T)
    added = next(i for i, op in enumerate(graph.ops) if op.label == "added")
    assert graph[added].written_storages == {storage_of(graph, "start")}


def test_a_sum_whose_start_is_needed_elsewhere_is_a_new_storage() -> None:
    graph = graph_of_program(accumulating(shared=True))
    assert storage_of(graph, "added") != storage_of(graph, "start")
    assert storage_of(graph, "merge") == storage_of(graph, "start")


def test_what_a_loop_carries_is_in_its_table() -> None:
    graph = graph_of_program(accumulating())
    by_label = {op.label: op for op in graph.ops}
    assert graph.loops[0].carried == ((by_label["merge"].outputs[0], by_label["step"].outputs[0]),)
    assert len(by_label["merge"].inputs) == 1


def test_nested_loops_run_the_product_of_their_trips() -> None:
    b = Builder()
    b.loops = [Loop("outer", OUTSIDE, as_expr(3)), Loop("inner", 0, as_expr("t"))]
    b.hints = {"t": 5}
    x = b.add("Placeholder", shapes=[[2]], name="x")
    y = b.add("Neg", [x], [[2]], loop=0)
    b.add("Neg", [y], [[2]], name="deep", loop=1)
    graph = graph_of_program(b.program())
    deep = next(i for i, op in enumerate(graph.ops) if op.label == "deep")
    assert expr_of(graph.trips(deep)) == 3 * T
    assert count(graph).total.flops == 2 * 3 + 2 * 15


def test_nodes_run_after_what_they_need_and_loops_in_one_stretch() -> None:
    b = Builder()
    b.loops = [Loop("loop", OUTSIDE, as_expr(2))]
    b.add("Neg", [4], [[1]], name="last")
    b.add("Neg", [2], [[1]], name="in loop", loop=0)
    b.add("Placeholder", shapes=[[1]], name="x")
    b.add("NoOp", control=[0], shapes=[], name="after")
    b.add("Neg", [1], [[1]], name="in loop too", loop=0)
    b.add("Shape", [0], [[1]], name="question")
    ordered = order(b.program())
    assert [b.nodes[i].name for i in ordered] == ["x", "in loop", "in loop too", "last", "question", "after"]


def test_a_cycle_that_is_no_loop_is_an_error() -> None:
    b = Builder()
    b.add("Neg", [1], [[1]])
    b.add("Neg", [0], [[1]], name="other")
    with pytest.raises(MetaGraphError, match="own result"):
        graph_of_program(b.program())


def training() -> Builder:
    """``loss = sum(w * x)`` with a momentum step on w and a clipped gradient."""
    b = Builder()
    b.hints = {"n": 3}
    w = b.add("VariableV2", shapes=[["n"]], name="model/w")
    slot = b.add("VariableV2", shapes=[["n"]], name="model/w/Momentum")
    average = b.add("VariableV2", shapes=[["n"]], name="model/average")
    rate = b.add("VariableV2", shapes=[[]], name="rate")
    x = b.add("Placeholder", shapes=[["n"]], name="x")
    read = b.add("Identity", [w], [["n"]], name="model/w/read")
    product = b.add("Mul", [read, x], [["n"]], name="model/mul")
    b.add("AssignSub", [average, product], [["n"]], name="model/update")
    gradient = b.add("Mul", [product, x], [["n"]], name="train/gradients/model/mul_grad/Mul")
    clipped = b.add("Mul", [gradient, x], [["n"]], name="clip/mul")
    read_rate = b.add("Identity", [rate], [[]], name="rate/read")
    momentum = b.add("Const", shapes=[[]], name="momentum")
    b.add(
        "ApplyMomentum", [w, slot, read_rate, clipped, momentum], [["n"]], name="train/apply", use_nesterov=False
    )  # fmt: skip
    return b


def trained() -> Graph:
    return graph_of_program(training().program(trainable=("model/w",), roots=("train/apply",)))


def test_phases() -> None:
    phases = {op.label: op.phase for op in trained().ops}
    assert phases["model/mul"] is phases["model/update"] is phases["rate/read"] is Phase.FORWARD
    assert phases["train/gradients/model/mul_grad/Mul"] is phases["clip/mul"] is Phase.BACKWARD
    assert phases["train/apply"] is Phase.OPTIMIZER


def test_roles_and_what_a_model_holds() -> None:
    graph = trained()
    roles = {entry.name: (entry.role, entry.trainable) for entry in graph.named}
    assert roles == {
        "model.w": (Role.PARAMETER, True),
        "model.w.Momentum": (Role.OPTIMIZER_STATE, False),
        "model.average": (Role.BUFFER, False),
        "rate": (Role.BUFFER, False),
        "x": (Role.INPUT, False),
    }
    held = count(graph).sizes
    assert (held.trainable, held.buffers, held.optimizer_state_bytes, held.input_bytes) == (3, 4, 12, 12)


def test_updates_write_their_variable_and_slots() -> None:
    graph = trained()
    apply = next(view for view in graph if view.op.label == "train/apply")
    assert apply.written_storages == {storage_of(graph, "model/w"), storage_of(graph, "model/w/Momentum")}
    assert storage_of(graph, "train/apply") == storage_of(graph, "model/w") == storage_of(graph, "model/w/read")
    saved = graph.storages[storage_of(graph, "model/mul")]
    assert saved.role is Role.ACTIVATION
    assert timeline(graph).persistent_bytes == 12 * 4 + 4 + 4  # w, slot, average and x; rate; the constant


def test_resource_variables_are_storages_that_reads_share_and_steps_write() -> None:
    b = Builder()
    b.hints = {"n": 3}
    w = b.add("VarHandleOp", shapes=[["n"]], name="w")
    m = b.add("VarHandleOp", shapes=[["n"]], name="w/m")
    read = b.add("ReadVariableOp", [w], [["n"]], name="read")
    gradient = b.add("Mul", [read, read], [["n"]], name="gradients/mul")
    b.add("ResourceApplyAdagrad", [w, m, read, gradient], [], name="apply")
    graph = graph_of_program(b.program(trainable=("w",)))
    held = count(graph).sizes
    assert (expr_of(held.trainable), expr_of(held.optimizer_state_bytes)) == (N, 4 * N)
    assert storage_of(graph, "read") == storage_of(graph, "w")
    apply = next(view for view in graph if view.op.label == "apply")
    assert apply.written_storages == {storage_of(graph, "w"), storage_of(graph, "w/m")}
    assert apply.op.phase is Phase.OPTIMIZER
    assert count(graph).coverage.complete


def test_footprint_and_parameters_are_in_the_rows() -> None:
    table = table_of(count(trained()), {"n": 3})
    rows = {row.name: row for row in table.rows}
    assert rows["model/w"].parameters == N
    assert rows["model/mul"].footprint == rows["model/w"].footprint == 4 * N
    assert table.totals["footprint"] == expr_of(footprint_bytes(trained()))
    assert table.totals["io"] == 4 * N


def test_stashes_live_until_they_are_popped() -> None:
    b = Builder()
    b.loops = [Loop("forward", OUTSIDE, as_expr(2)), Loop("gradients/back", OUTSIDE, as_expr(2), 0)]
    stack = b.add("StackV2", shapes=[[2]], dtype="resource", name="stack")
    x = b.add("Placeholder", shapes=[[3]], name="x")
    there = b.add("Enter", [stack], [[2]], dtype="resource", name="there")
    here = b.add("Enter", [stack], [[2]], dtype="resource", name="here")
    value = b.add("Neg", [x], [[3]], name="value", loop=0)
    push = b.add("StackPushV2", [there, value], [[3]], name="push", loop=0)
    pop = b.add("StackPopV2", [here], [[3]], name="pop", loop=1, control=[push])
    b.add("Neg", [pop], [[3]], name="used", loop=1)
    graph = graph_of_program(b.program())
    assert storage_of(graph, "pop") == storage_of(graph, "value")
    last = max(i for i, op in enumerate(graph.ops) if op.loop == 1)
    assert graph.storages[storage_of(graph, "value")].death == last + 1
    assert footprint_bytes(graph) == 12 + 2 * 12 + 2 * 12


def test_arrays_keep_what_is_written_and_copies_of_what_is_scattered() -> None:
    """A scatter copies; reads, in any loop and through any handle of the gradients, find the copy; a gather copies."""
    b = Builder()
    b.loops = [Loop("loop", OUTSIDE, as_expr(4))]
    array = b.add("TensorArrayV3", shapes=[[2], []], dtype="resource", name="array")
    x = b.add("Placeholder", shapes=[[4, 3]], name="x")
    first, second = (
        b.add("TensorArrayGradV3", [array, Ref(array, 1)], [[2], []], dtype="resource", name=name, source="gradients")
        for name in ("first", "second")
    )
    flow = b.add("TensorArrayScatterV3", [first, x, x, Ref(first, 1)], [[]], name="scatter")
    inside = b.add("Enter", [second], [[2]], dtype="resource", name="inside")
    read = b.add("TensorArrayReadV3", [inside, x, flow], [[3]], name="read", loop=0)
    made = b.add("Neg", [read], [[3]], name="made", loop=0)
    target = b.add("TensorArrayV3", shapes=[[2], []], dtype="resource", name="target")
    there = b.add("Enter", [target], [[2]], dtype="resource", name="there")
    written = b.add("TensorArrayWriteV3", [there, x, made, flow], [[]], name="write", loop=0)
    b.add("TensorArrayGatherV3", [target, x, written], [[4, 3]], name="gather")
    graph = graph_of_program(b.program())
    assert storage_of(graph, "read") not in (storage_of(graph, "x"), storage_of(graph, "scatter"))
    gather = next(i for i, op in enumerate(graph.ops) if op.label == "gather")
    assert graph.storages[storage_of(graph, "made")].death == gather + 1
    assert footprint_bytes(graph) == 48 + 48 + 4 * 12 + 48  # x, its copy, what is made, what is gathered


def test_arms_of_a_conditional_exclude_each_other() -> None:
    b = Builder()
    p = b.add("Placeholder", shapes=[[]], dtype="bool", name="p")
    x = b.add("Placeholder", shapes=[[10]], name="x")
    switch = b.add("Switch", [x, p], [[10], [10]], name="switch")
    no = b.add("Neg", [Ref(switch, 0)], [[10]], name="no")
    yes = b.add("Neg", [Ref(switch, 1)], [[10]], name="yes")
    more = b.add("Neg", [yes], [[10]], name="more")
    merge = b.add("Merge", [no, more], [[10], []], name="merge")
    b.add("Neg", [merge], [[10]], name="after")
    graph = graph_of_program(b.program())
    counted = count(graph)
    assert [total.flops for total in counted.range] == [20, 30]
    labels = {op.label: op.branch for op in graph.ops}
    assert labels["after"] == labels["merge"] == labels["switch"] == OUTSIDE
    assert labels["yes"] == labels["more"] != labels["no"]


def test_a_tensor_of_unknown_rank_has_a_symbol_that_is_listed() -> None:
    file = File()
    file.node("x", "Placeholder", dtype=FLOAT)
    file.node("y", "Neg", "x")
    program = read_program(file.data())
    graph = graph_of_program(program)
    assert program.hints == {"x:0::elements": 1, "y:0::elements": 1}
    assert expr_of(count(graph).total.flops) == symbol("y:0::elements")
    assert any("rank of 2 tensors" in note for note in graph.meta.assumptions)


def test_what_is_fetched_is_an_output() -> None:
    b = Builder()
    x = b.add("Placeholder", shapes=[[4]], name="x")
    b.add("VariableV2", shapes=[[4]], name="w")
    b.add("Neg", [x], [[4]], name="y")
    graph = graph_of_program(msgspec.structs.replace(b.program(), roots=("y:0", "w")))
    assert [entry.name for entry in graph.named if entry.role is Role.OUTPUT] == ["y:0"]
    assert graph.storages[storage_of(graph, "y")].role is Role.OUTPUT
    assert graph.storages[storage_of(graph, "y")].death is None
