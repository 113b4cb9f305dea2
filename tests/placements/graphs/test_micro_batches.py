"""Steps of several micro-batches: what is repeated, what is shared, and what is added up."""

from __future__ import annotations

from collections import Counter

import pytest

from tensortide.errors import GraphError
from tensortide.graph import Graph, Phase, Role
from tensortide.graph.validate import validate
from tensortide.placements.graphs.micro_batches import micro_batched
from tensortide.timelines import timeline
from tests.graphs import Builder
from tests.placements.graphs.steps import captured, pipeline

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
    with pytest.raises(GraphError, match=r"op 2 \(test.update_.default\) of the optimizer runs before the end"):
        micro_batched(optimizer_first(), 2)
    with pytest.raises(GraphError, match="0 micro-batches"):
        micro_batched(pipeline(1), 0)
