"""Steps of several micro-batches: what is repeated, what is shared, and what is added up."""

from __future__ import annotations

from collections import Counter

import pytest

import tensortide
from tensortide.errors import GraphError
from tensortide.graph import Graph, Phase, Role
from tensortide.graph.validate import validate
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, placed, ready
from tensortide.placements.graphs.micro_batches import micro_batched
from tensortide.timelines import timeline
from tests.graphs import Builder
from tests.placements.graphs.steps import captured, cluster, pipeline
from tests.run.placed import divided_workloads as workloads

MODELS = ["gpt2", "resnet18_cifar"]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_passes_are_repeated_and_the_optimizer_runs_once(name: str, count: int) -> None:
    graph = captured(name)
    made = micro_batched(graph, count)
    validate(made.graph)
    before, after = (Counter((op.phase, op.name) for op in one) for one in (graph, made.graph))
    gradients = len({held.name for held in graph.storages if held.role is Role.GRADIENT})
    after[Phase.BACKWARD, "aten.add_.Tensor"] -= gradients * (count - 1)
    for (phase, kind), number in before.items():
        if phase in (Phase.FORWARD, Phase.BACKWARD):
            assert after[phase, kind] == number * count
        elif phase is Phase.OPTIMIZER:
            assert after[phase, kind] == number
    assert len(made.graph) == len(made.origin) == len(made.micro)


@pytest.mark.parametrize("name", MODELS)
def test_state_is_shared_and_inputs_are_not(name: str) -> None:
    graph = captured(name)
    made = micro_batched(graph, 3).graph
    before, after = (Counter(held.role for held in one.storages if held.birth is None) for one in (graph, made))
    assert after.pop(Role.INPUT) == 3 * before.pop(Role.INPUT)
    assert after == before
    assert timeline(made).persistent_bytes >= timeline(graph).persistent_bytes


def test_gradients_are_added_to_those_of_the_first() -> None:
    made = micro_batched(pipeline(2), 3).graph
    sums = [op for op in made if op.name == "aten.add_.Tensor"]
    totals = {op.inputs[0].storage for op in sums}
    assert len(sums) == 4
    assert len(totals) == 2
    assert all(made.storages[op.inputs[1].storage].death == op.index + 1 for op in sums)
    assert all(op.index >= sums[-1].index for op in made if op.phase is Phase.OPTIMIZER)
    used = {op.inputs[1].storage for op in made if op.phase is Phase.OPTIMIZER}
    assert used == totals


def test_micro_batches_wait_for_nothing_of_each_other_but_sums() -> None:
    made = micro_batched(pipeline(3), 2)
    second = [op for op, turn in enumerate(made.micro) if turn == 1 and made.graph[op].name != "aten.add_.Tensor"]
    for op in second:
        assert all(made.micro[earlier] == 1 for earlier in made.graph.index.dependencies[op])


def optimizer_first() -> Graph:
    builder = Builder()
    weight = builder.storage(8, Role.PARAMETER)
    builder.op([weight], [weight], mutated=(0,), phase=Phase.OPTIMIZER, name="test.update_.default")
    builder.op([weight], [builder.storage(8, birth=1)], phase=Phase.FORWARD)
    builder.op([weight], [weight], mutated=(0,), phase=Phase.OPTIMIZER, name="test.update_.default")
    builder.op([weight], [builder.storage(8, birth=3)], phase=Phase.BACKWARD)
    return builder.graph()


def test_steps_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(
        GraphError, match=r"op 2 \(test.update_.default\) of the optimizer runs before the end.* choose an optimizer"
    ):
        micro_batched(optimizer_first(), 2)
    with pytest.raises(GraphError, match="0 micro-batches"):
        micro_batched(pipeline(1), 0)


TABLE, MESSAGE = workloads.VOCAB * workloads.WIDTH * 8, workloads.BATCH * workloads.WIDTH * 8


def two_stages(micro_batches: int, devices: int = 2) -> PlacedStep:
    """The model with a tied table: the table on the first device, its second half with the head on the last."""
    graph = tensortide.capture(workloads.tied, real=True)
    options = PlaceOptions(Grouping(), schedule="1f1b", micro_batches=micro_batches)
    prepared = ready(graph, cluster(devices), options)
    late = ("blocks.1", "norm", "head", "(root)", "(outside)")
    return placed(prepared, [(devices - 1) * name.startswith(late) for name in prepared.problem.names])


@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_a_tied_gradient_crosses_once_a_step_whatever_the_micro_batches(micro_batches: int) -> None:
    found = two_stages(micro_batches)
    values, run = found.simulated.step.values.values, found.simulated
    sent = [(values[value].nbytes, lane) for value, lane in zip(run.sent.tolist(), run.send_lane.tolist(), strict=True)]
    names = [lane.name for lane in run.step.cluster.wires]
    counts = Counter((nbytes, names[lane]) for nbytes, lane in sent)
    assert counts[TABLE, "gpu1 > gpu0"] == 1  # the gradient of the head
    assert counts[TABLE, "gpu0 > gpu1"] == 1  # the table
    assert counts[MESSAGE, "gpu1 > gpu0"] == micro_batches
    assert tuple(each.level.max() for each in found.timeline.levels) == found.simulated.peak_bytes


def test_each_unit_keeps_what_it_adds_to_a_tied_gradient_until_the_last_micro_batch() -> None:
    several = two_stages(4).ready.several
    graph = several.graph
    validate(graph)
    first = max(op for op, turn in enumerate(several.micro) if turn == 0)
    last = max(op for op, turn in enumerate(several.micro) if turn == 3)
    kept = [s for s in graph.storages if s.nbytes == TABLE and s.birth is not None and s.birth <= first and s.death]
    assert len([s for s in kept if s.death is not None and s.death > last]) == 2  # of the embedding, and of the head
    sums = [op for op in graph if op.name == "aten.add.Tensor" and op.inputs[0].region_bytes == TABLE]
    assert [(several.micro[op.index], op.index > last) for op in sums] == [(-1, True)]


def test_on_one_device_tied_gradients_are_added_up_in_every_micro_batch() -> None:
    """As autograd does in one process, with the memory of one gradient."""
    several = two_stages(4, devices=1).ready.several
    sums = [op for op in several.graph if op.name == "aten.add.Tensor" and op.inputs[0].region_bytes == TABLE]
    assert [several.micro[op.index] for op in sums] == [0, 1, 2, 3]
