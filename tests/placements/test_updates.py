"""Updates of weights by the optimizer: bytes and time counted by hand, once a step, on the device of each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensortide.errors import TensortideError
from tensortide.graph import Phase, validate
from tensortide.placements import (
    ACCURATE,
    COMPAT,
    Net,
    NetProblem,
    OpTimes,
    Settings,
    Simulation,
    graph_of,
    plan_of,
    simulate,
)
from tensortide.placements.op_times.work import OPTIMIZERS, update_work
from tensortide.plans.model import Compute
from tensortide.timing.paleo.layers import Entry
from tests.placements.cases import cluster, net
from tests.placements.test_options import DATA, PAIR

UPDATE_ALONE = replace(ACCURATE, update=False)
# Weights of all layers, as published for AlexNet and ResNet-50 (normalisation has none in these nets).
WEIGHTS = {"alex_v2": 50_303_912, "resnet50": 25_530_472}
# Tensors of a weight that an update reads and writes: w, g; w' | w, g, m; w', m' | w, g, m, v; w', m', v'.
TENSORS = {"sgd": 3, "momentum": 5, "adam": 7}
PAIR_NET = Net(
    "two",
    {
        "data": DATA,
        "a": Entry(type="InnerProduct", parents=("data",), num_outputs=2),
        "b": Entry(type="InnerProduct", parents=("a",), num_outputs=2),
    },
)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_an_update_moves_weights_gradients_and_states_once(name: str, optimizer: str) -> None:
    found, machine = net(name), cluster("malvik")
    layers = found.layers(128)
    works = [update_work(layer, optimizer) for layer in layers]
    assert sum(sum(work.tensors) for work in works) == 4 * TENSORS[optimizer] * WEIGHTS[name]
    place = [1] * len(found.order)
    settings = Settings(batch_size=128, optimizer=optimizer)
    whole, without = (simulate(found, machine, place, settings, mode=mode) for mode in (ACCURATE, UPDATE_ALONE))
    kernels = sum(1 for layer in layers if layer.params)
    by_hand = 4 * TENSORS[optimizer] * WEIGHTS[name] / 900e9 * 1e3 + kernels * 0.005  # a V100 moves 900 GB/s
    assert whole.makespan - without.makespan == pytest.approx(by_hand, rel=1e-9)
    assert whole.ops - without.ops == kernels
    assert whole.peaks == without.peaks
    assert whole.memory.nbytes[1, 0] == 4 * (2 + OPTIMIZERS[optimizer].states) * WEIGHTS[name]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_flops_and_bytes_of_an_update_are_those_of_the_fused_optimizer(optimizer: str) -> None:
    torch = pytest.importorskip("torch")
    from tests.cost.probe import counted

    layer = net("mnist").layers()[-1]
    weight = torch.nn.Parameter(torch.zeros(layer.params))
    weight.grad = torch.ones_like(weight)
    kinds = {
        "sgd": (torch.optim.SGD, {}),
        "momentum": (torch.optim.SGD, {"momentum": 0.9}),
        "adam": (torch.optim.Adam, {}),
    }
    kind, options = kinds[optimizer]
    made = kind([weight], fused=True, **options)
    made.step()  # the first step of momentum copies the gradient
    (cost,) = (total.cost for name, total in counted(made.step).by_op.items() if "_fused_" in name)
    assert cost.elementwise_flops == update_work(layer, optimizer).flops
    number_of_the_step = 4 if optimizer == "adam" else 0
    assert cost.bytes == sum(update_work(layer, optimizer).tensors) + number_of_the_step


def two(place: list[int], **options: Any) -> Simulation:
    """Every part takes a millisecond, updates 3 (a) and 5 (b)."""
    ones = np.ones((3, 2))
    times = OpTimes(ones, ones, np.array([[0, 0], [3, 3], [5, 5]], np.float64))
    return simulate(PAIR_NET, PAIR, place, Settings(**options), times=times)


@pytest.mark.parametrize(
    ("batches", "in_flight", "makespan", "updates"),
    [(1, 1, 6 + 8, 2), (3, 1, 3 * (6 + 8), 6), (3, 2, 3 * 6 + 8, 2), (3, 5, 3 * 6 + 8, 2)],
)
def test_every_batch_updates_weights_unless_several_are_in_flight(
    batches: int, in_flight: int, makespan: float, updates: int
) -> None:
    found = two([0, 0, 0], batches=batches, pipeline_batches=in_flight)
    assert found.makespan == pytest.approx(makespan)
    trace = found.trace
    assert [event.layer for event in trace if event.kind == "update"] == ["a", "b"] * (updates // 2)
    last = max(event.end for event in trace if event.backward and event.batch == batches - 1)
    assert [event.start for event in trace if event.kind == "update"][-2:] == [last, last + 3]


def test_a_device_updates_its_weights_after_its_own_last_backward_part() -> None:
    # 0: data, a | 1: b. Activations of a and their gradients, 8 bytes, take 8 ns.
    found = two([0, 0, 1])
    updates = {event.layer: event for event in found.trace if event.kind == "update"}
    ends = {event.layer: event.end for event in found.trace if event.kind == "op" and event.backward}
    assert (updates["b"].resource, updates["b"].start) == (1, ends["b"])
    assert (updates["a"].resource, updates["a"].start) == (0, ends["data"])
    assert found.makespan == updates["a"].end == pytest.approx(6 + 3, abs=1e-4)
    assert found.makespan > updates["b"].end == pytest.approx(4 + 5, abs=1e-4)


def test_updates_are_ops_of_the_graph_and_of_the_plan_of_a_step() -> None:
    for in_flight in (1, 3):
        found = two([0, 0, 1], batches=3, pipeline_batches=in_flight)
        graph, plan = graph_of(found), plan_of(found)
        validate(graph)
        updates = [(number, op.label) for number, op in enumerate(graph.ops) if op.phase is Phase.OPTIMIZER]
        assert updates == [(6, "a"), (7, "b")]
        ran = [[step.op for step in lane.steps if isinstance(step, Compute)] for lane in plan.lanes]
        assert [row[-1] for row in ran] == [6, 7]
        assert sorted(op for row in ran for op in row) == list(range(8))


def test_bounds_and_the_work_of_a_gene_have_the_update() -> None:
    ones = np.ones((3, 2))
    times = OpTimes(ones, ones, np.array([[0, 0], [3, 3], [5, 5]], np.float64))
    each, together = (
        NetProblem(PAIR_NET, PAIR, Settings(batches=3, pipeline_batches=many), times=times) for many in (1, 3)
    )
    assert each.work.tolist() == [[2, 2], [5, 5], [7, 7]]
    assert together.work == pytest.approx(np.array([[2, 2], [3, 3], [2 + 5 / 3, 2 + 5 / 3]]))
    assert each.chained.tolist() == together.chained.tolist() == [[2, 2]] * 3
    # The chain of a batch ends with the update of a, after 5 parts, or of b, after 4.
    assert each.bounds.critical_path_ms == 3 * (4 + 5)
    assert together.bounds.critical_path_ms == 4 + 5
    assert each.bounds.work_ms == pytest.approx(3 * (6 + 8) / 2)
    assert together.bounds.work_ms == pytest.approx((3 * 6 + 8) / 2)


def test_without_corrections_or_a_backward_part_nothing_is_updated() -> None:
    found, machine = net("mnist"), cluster("malvik")
    for settings in (Settings(mode=COMPAT), Settings(include_backward=False)):
        for optimizer in OPTIMIZERS:
            one = simulate(found, machine, [1] * 9, replace(settings, optimizer=optimizer))
            assert not any(event.kind == "update" for event in one.trace)
            assert one.makespan == simulate(found, machine, [1] * 9, settings).makespan
    with pytest.raises(TensortideError, match="optimizer is 'lion': one of sgd, momentum, adam"):
        Settings(optimizer="lion")


def test_given_times_have_the_shape_of_the_net() -> None:
    ones = np.ones((3, 2))
    with pytest.raises(
        TensortideError, match=r"times are \(3, 2\) and \(3, 2\) and \(3, 1\): one for each of \(3, 2\)"
    ):
        simulate(PAIR_NET, PAIR, [0, 0, 0], times=OpTimes(ones, ones, np.ones((3, 1))))
