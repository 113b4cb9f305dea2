"""Graphs as static graphs, and schedules of those as Plans that execute the Graph."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.graph import Graph, Phase, Role
from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans import Compute, Evict, validate
from tensortide.plans.checkpointing.optimum import optimum
from tensortide.plans.checkpointing.segments import checkpoint_last, chen_sqrt, no_recompute
from tensortide.plans.checkpointing.stages import to_plan
from tensortide.plans.checkpointing.static import static_graph
from tensortide.replays import replay
from tests.graphs import Builder, graphs
from tests.plans.dags import random_dag, released
from tests.reference import dtr_log

GRAPHS = st.one_of(graphs(max_ops=20), st.builds(random_dag, seed=st.integers(0, 10**6), ops=st.integers(1, 25)))


@given(GRAPHS, st.integers(0, 10**6))
def test_every_plan_executes_the_graph(graph: Graph, seed: int) -> None:
    chance = random.Random(seed)
    durations = [chance.randint(0, 9) for _ in range(len(graph))]
    static = static_graph(graph, durations)
    assert static.base_ns + static.fixed_ns == sum(durations)
    for made in (no_recompute(static), checkpoint_last(static), chen_sqrt(static), chen_sqrt(static, tight=True)):
        plan = to_plan(made, static, graph)
        validate(plan, graph)
        if graph.storages:
            assert replay(graph, plan, workspace=False).peak_bytes <= made.peak_bytes
        computed = [step.op for step in plan.lanes[0].steps if isinstance(step, Compute)]
        again = sum(durations[op] for op in computed if op not in static.views)
        views = sum(durations[op] for op in static.views)
        constants = static.fixed_ns - views
        assert again + views == made.cost_ns + static.fixed_ns
        assert constants >= 0


def test_a_small_result_that_is_written_in_place_is_computed_anew_with_the_others() -> None:
    builder = Builder()
    large, small = (builder.storage(nbytes, birth=0, death=4) for nbytes in (1000, 1))
    builder.op([], [large, small], name="test.pair.default")
    builder.op([small], [small], mutated=(0,), name="test.add_.default")
    builder.op([], [builder.storage(1000, birth=2)])
    builder.op([large], [])
    builder.op([], [builder.storage(1000, birth=4)])
    graph = builder.graph()
    static = static_graph(graph, [1] * len(graph))
    plan = to_plan(checkpoint_last(static), static, graph)
    assert [step.op for step in plan.lanes[0].steps if isinstance(step, Compute)] == [0, 1, 2, 0, 1, 3, 4]
    validate(plan, graph)


def training(length: int = 6, width: int = 100) -> Graph:
    """Layers with a view, a product and a write in place; gradients of both; an update of every weight in place."""
    builder = Builder()
    weights = [builder.storage(width, Role.PARAMETER) for _ in range(length)]
    kept = [builder.storage(width, Role.INPUT)]
    for weight in weights:
        product = builder.storage(width, birth=len(builder.ops))
        builder.op([kept[-1], weight], [product], name="test.product.default")
        builder.op([product], [product], mutated=(0,), name="test.relu_.default")
        flat = builder.view(product, width)
        builder.op([product], [flat], name="test.view.default")
        kept.append(flat)
    loss = builder.storage(4, birth=len(builder.ops))
    builder.op([kept[-1]], [loss], name="test.loss.default")
    gradient, updates = loss, []
    for weight, seen in zip(reversed(weights), reversed(kept[1:]), strict=True):
        at = len(builder.ops)
        outputs = [builder.storage(width, birth=at), builder.storage(width // 10, birth=at)]
        builder.op([gradient, seen, weight], outputs, name="test.backward.default", phase=Phase.BACKWARD)
        gradient = outputs[0]
        updates.append((weight, outputs[1]))
    for weight, update in updates:
        builder.op([weight, update], [weight], mutated=(0,), name="test.sgd_.default", phase=Phase.OPTIMIZER)
    return released(builder)


def test_a_training_step() -> None:
    graph = training()
    static = static_graph(graph, [10] * len(graph))
    assert len(static) == 6 + 1 + 6 + 6
    assert static.ops[:2] == ((0, 1, 2), (3, 4, 5))
    assert static.cost_ns[:2] == (20, 20)
    assert static.fixed_ns == 60
    assert static.fixed_bytes == 700 + 60
    assert static.nbytes == (100,) * 6 + (4,) + (100,) * 6 + (0,) * 6
    assert [static.until[node] for node in (0, 5, 7, 13)] == [18, 13, 7, 13]
    assert static.backward == (False,) * 7 + (True,) * 12
    assert static.parents[7] == (5, 6)


def test_a_plan_of_a_training_step_needs_less() -> None:
    graph = training(6)
    static = static_graph(graph, [10] * len(graph))
    plain = no_recompute(static)
    level = replay(graph, to_plan(plain, static, graph)).peak_bytes
    assert level <= plain.peak_bytes
    found = optimum(static, plain.peak_bytes - 300)
    assert found.status == "proved"
    assert found.plan is not None
    plan = to_plan(found.plan, static, graph)
    validate(plan, graph)
    assert replay(graph, plan).peak_bytes <= found.plan.peak_bytes <= plain.peak_bytes - 300
    computed = [step.op for step in plan.lanes[0].steps if isinstance(step, Compute)]
    assert len(computed) > len(graph)
    assert all(computed.count(op) == 1 for op in (*static.views, *range(len(graph) - 6, len(graph))))
    assert any(isinstance(step, Evict) for step in plan.lanes[0].steps)


def test_a_write_after_a_read_ends_recomputation() -> None:
    """0: x -> a;  1: a -> b;  2: a += x;  3: a, b -> c: a stays from op 0 on once op 2 ran, and b too."""
    builder = Builder()
    x = builder.storage(8, Role.INPUT)
    a, b, c = (builder.storage(8, birth=index) for index in (0, 1, 3))
    builder.op([x], [a])
    builder.op([a], [b])
    builder.op([a, x], [a], mutated=(0,))
    builder.op([a, b], [c])
    static = static_graph(released(builder), [1] * 4)
    assert static.parents == ((), (0,), (0,), (0, 1))
    assert static.until == (2, 2, 2, 3)


def test_running_statistics_are_no_obstacle() -> None:
    builder = Builder()
    x, mean = builder.storage(8, Role.INPUT), builder.storage(8, Role.BUFFER)
    y, z = builder.storage(8, birth=0), builder.storage(8, birth=1)
    builder.op([x, mean], [y], mutated=(1,), name="aten.native_batch_norm.default")
    builder.op([y], [z])
    graph = released(builder)
    call = graph.calls[0]
    arguments = (("input", call.arguments[0][1]), ("running_mean", call.arguments[1][1]), ("training", True))
    training = type(call)(call.op, arguments, 3, call.mutated, call.returns)
    kept = Graph(graph.ops, (training, *graph.calls[1:]), graph.tensors, graph.storages, graph.modules)
    assert static_graph(graph, [1, 1]).until == (0, 1)
    assert static_graph(kept, [1, 1]).until == (1, 1)


def test_constants_of_a_log_are_resident_throughout() -> None:
    builder = Builder()
    weight, y = builder.storage(8, birth=0), builder.storage(4, birth=1)
    builder.op([], [weight], name="log.constant", tags=("constant",))
    builder.op([weight], [y])
    static = static_graph(released(builder), [0, 5])
    assert (static.ops, static.fixed_bytes, static.nbytes) == (((1,),), 8, (4,))


LOGS = {
    "ResNet-32 (56)": "resnet32-56",
    "Transformer (10)": "transformer-10",
    "U-Net (6)": "unet-6",
    "Unrolled GAN": "unroll_gan-512",
}


def test_logs_have_the_constants_and_the_compute_that_were_published(reference: Path) -> None:
    """Nodes are as many where nothing is written in place: writes are ops of their own in the publication."""
    logs = {model: read_recording(dtr_log(reference, name)) for model, name in LOGS.items()}
    text = (reference / "dtr" / "inf_budget_policies.json").read_text()
    published = {row["model"]: row["checkmate"] for row in json.loads(text)}
    for model, log in logs.items():
        static, row = static_graph(log.graph, log.durations_ns), published[model]
        constants = sum(s.nbytes for s in log.graph.storages if s.birth is None)
        tagged = (op for op in log.graph.ops if "constant" in log.graph.calls[op.call].tags)
        constants += sum(log.graph.storages[log.graph.tensors[op.outputs[0]].storage].nbytes for op in tagged)
        assert (constants, static.base_ns) == (row["constant_ram"], row["compute"])
        assert len(static) <= row["ops"]
        assert constants <= static.fixed_bytes
        if LOGS[model] == "resnet32-56":
            assert len(static) == row["ops"]
            plan = to_plan(chen_sqrt(static, articulation=True, tight=True), static, log.graph)
            validate(plan, log.graph)


def test_a_duration_for_each_op() -> None:
    with pytest.raises(PlanError, match="2 durations"):
        static_graph(training(), [1, 2])
