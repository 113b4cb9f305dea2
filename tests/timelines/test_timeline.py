"""Resident bytes over a step, against sums written out by hand and a slow definition on random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given

from tensortide.errors import GraphError, NoSuchOp
from tensortide.graph import Graph, Phase, Role, Source, validate
from tensortide.memory import CUDA_CACHING, EXACT, Rounding
from tensortide.timelines import StorageTimeline, timeline
from tests.graphs import Builder, graphs


def small() -> Graph:
    """Weight 100; forward x (10) and y (20, idle at op 2), a view of y; backward g (100); update in place."""
    b = Builder()
    layer = b.module("layer")
    weight = b.storage(100, Role.PARAMETER, name="layer.weight")
    x = b.storage(10, Role.TEMPORARY, 0, 2)
    y = b.storage(20, Role.ACTIVATION, 1, 4)
    gradient = b.storage(100, Role.GRADIENT, 3, None, name="layer.weight.grad")
    b.op([weight], [x], module=layer)
    b.op([x], [y], module=layer)
    b.op([y], [b.view(y, 5)])
    b.op([y], [gradient], phase=Phase.BACKWARD, module=layer)
    b.op([weight, gradient], [weight], mutated=[0], phase=Phase.OPTIMIZER)
    return b.graph()


def test_a_step_by_hand() -> None:
    line = timeline(small())
    assert line.resident.tolist() == [110, 130, 120, 220, 200]
    assert (line.peak_bytes, line.peak_op) == (220, 3)
    assert line.peak_by_phase == {Phase.FORWARD: 130, Phase.BACKWARD: 220, Phase.OPTIMIZER: 200}
    assert (line.persistent_bytes, line.start_bytes, line.end_bytes, line.footprint_bytes) == (100, 100, 200, 230)
    assert line.by_role[Role.ACTIVATION].tolist() == [0, 20, 20, 20, 0]
    assert set(line.by_role) == {Role.PARAMETER, Role.TEMPORARY, Role.ACTIVATION, Role.GRADIENT}
    assert line.resident.dtype == "int64"


def test_what_is_alive_at_the_peak() -> None:
    line = timeline(small())
    weight, gradient, y = line.alive()
    assert (weight.name, weight.nbytes, weight.op, weight.birth, weight.death) == (
        "layer.weight",
        100,
        None,
        None,
        None,
    )
    assert (weight.module, weight.op_name, weight.source) == ("layer", "", None)
    assert (gradient.name, gradient.op, gradient.op_name) == ("layer.weight.grad", 3, "test.op.default")
    assert (y.role, y.birth, y.death, y.module) == (Role.ACTIVATION, 1, 4, "layer")
    assert line.alive(at=0, top=1) == (weight,)
    assert [r.storage for r in line.alive(at=1)] == [0, 2, 1]


@pytest.mark.parametrize("at", [-1, 5])
def test_there_is_nothing_alive_outside_the_step(at: int) -> None:
    with pytest.raises(NoSuchOp, match=f"no op {at}"):
        timeline(small()).alive(at=at)


def test_where_a_storage_was_allocated_is_told() -> None:
    graph = small()
    op = graph.ops[0]
    here = Source("train.py", 7, "step", "x = layer(data)")
    ops = (type(op)(op.call, op.inputs, op.outputs, op.phase, op.module, 0), *graph.ops[1:])
    marked = Graph(ops, graph.calls, graph.tensors, graph.storages, graph.modules, (here,))
    assert timeline(marked).alive(at=0)[1].source == here


def test_when_a_storage_is_released_is_told() -> None:
    b = Builder()
    first, last, kept = (b.storage(8, Role.TEMPORARY, 0, death) for death in (1, 2, None))
    b.op([], [first, last, kept])
    b.op([last], [])
    assert [r.death for r in timeline(b.graph()).alive(at=0)] == [1, 2, None]
    assert [r.death for r in timeline(b.graph()).alive(at=1)] == [2, None]


def test_last_use_releases_early_and_keeps_what_others_own() -> None:
    line = timeline(small(), lifetimes="last_use")
    assert line.resident.tolist() == [110, 130, 120, 220, 200]
    assert line.end_bytes == 100, "the gradient is dropped after the optimizer read it"
    b = Builder()
    a = b.storage(8, Role.TEMPORARY, 0, None)
    c = b.storage(4, Role.ACTIVATION, 0, 3)
    b.op([], [a, c])
    b.op([b.view(a, 2)], [])
    b.op([], [])
    assert timeline(b.graph(), lifetimes="last_use").resident.tolist() == [12, 8, 8], "c is never read"


def test_gradients_that_wait_for_zero_grad_are_dropped_under_last_use() -> None:
    b = Builder()
    old = b.storage(10, Role.GRADIENT, None, 0, name="w.grad")
    new = b.storage(10, Role.GRADIENT, 0, None, name="w.grad")
    b.op([], [new])
    b.op([new], [], phase=Phase.OPTIMIZER)
    b.op([], [])
    assert timeline(b.graph(), lifetimes="last_use").resident.tolist() == [10, 10, 0]
    kept = Builder()
    old = kept.storage(10, Role.GRADIENT, None, None, name="w.grad")
    kept.op([old], [old], mutated=[0])
    kept.op([], [])
    assert timeline(kept.graph(), lifetimes="last_use").resident.tolist() == [10, 10], "accumulated into: carried over"


def test_rounding() -> None:
    assert timeline(small(), rounding=CUDA_CACHING).peak_bytes == 3 * 512
    assert [CUDA_CACHING(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]
    assert timeline(small(), rounding=EXACT).peak_bytes == 220
    assert timeline(small(), rounding=Rounding("odd", 7)).start_bytes == 105


def test_devices_are_counted_apart() -> None:
    b = Builder()
    on_cpu = b.storage(10, Role.INPUT)
    on_gpu = b.storage(30, Role.ACTIVATION, 0, 2, device="cuda:0")
    b.op([on_cpu], [on_gpu])
    b.op([on_gpu], [])
    b.op([], [])
    line = timeline(b.graph())
    assert line.device == "cuda:0", "the largest footprint"
    assert {name: one.peak_bytes for name, one in line.devices.items()} == {"cuda:0": 30, "cpu": 10}
    assert line.total_resident.tolist() == [40, 40, 10]
    assert timeline(b.graph(), device="cpu").peak_bytes == 10
    with pytest.raises(GraphError, match=r"cuda:7.*cuda:0, cpu"):
        timeline(b.graph(), device="cuda:7")


def test_unknown_lifetimes_are_refused() -> None:
    with pytest.raises(GraphError, match="eager"):
        timeline(small(), lifetimes="lazy")  # type: ignore[arg-type]


def test_a_step_without_ops() -> None:
    b = Builder()
    b.storage(10, Role.PARAMETER)
    line = timeline(b.graph())
    assert (line.peak_bytes, line.peak_op, line.peak_by_phase, line.end_bytes) == (10, -1, {}, 10)
    assert timeline(Builder().graph()).peak_bytes == 0


def slow_resident(graph: Graph, op: int) -> int:
    """The definition: bytes of the storages born at or before ``op`` that die after it."""
    alive = (s for s in graph.storages if (s.birth is None or s.birth <= op) and (s.death is None or s.death > op))
    return sum(s.nbytes for s in alive)


def assert_consistent(line: StorageTimeline) -> None:
    """What must hold of every Timeline."""
    count = len(line.graph)
    assert sum(line.by_role.values(), 0 * line.resident).tolist() == line.resident.tolist()
    assert (line.before[:count] + line.allocated + line.workspace).tolist() == line.resident.tolist()
    assert (line.before[0], line.before[count]) == (line.start_bytes, line.end_bytes)
    for op in range(count):
        assert sum(r.nbytes for r in line.alive(op)) == line.resident[op] - line.workspace[op]


@given(graphs())
def test_a_timeline_is_what_its_definition_says(graph: Graph) -> None:
    validate(graph)
    line = timeline(graph)
    assert line.resident.tolist() == [slow_resident(graph, op) for op in range(len(graph))]
    assert_consistent(line)
    assert_consistent(timeline(graph, rounding=CUDA_CACHING))


@given(graphs())
def test_last_use_is_never_longer_and_covers_every_use(graph: Graph) -> None:
    eager, short = timeline(graph), timeline(graph, lifetimes="last_use")
    assert_consistent(short)
    assert (short.resident <= eager.resident).all()
    for view in graph:
        used = {t.storage for t in (*view.inputs, *view.outputs) if graph.storages[t.storage].nbytes}
        assert used <= {r.storage for r in short.alive(view.index)}


@given(graphs(devices=("cpu", "cuda:0", "cuda:1")))
def test_devices_sum_to_the_whole(graph: Graph) -> None:
    line = timeline(graph)
    assert line.total_resident.tolist() == [slow_resident(graph, op) for op in range(len(graph))]
    assert sum(one.footprint_bytes for one in line.devices.values()) == sum(s.nbytes for s in graph.storages)
