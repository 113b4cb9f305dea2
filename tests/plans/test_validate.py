"""Plans that compute again: which are right, and that every slip makes them wrong."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.graph import TENSOR, Call, Graph, Op, Phase, Role
from tensortide.plans import Compute, Evict, Lane, Plan, validate
from tensortide.plans.model import Step
from tensortide.replays import executed, replay
from tensortide.replays.remat import Simulator
from tests.graphs import Builder
from tests.replays.remat.steps import random_recording


def lane(graph: Graph, *steps: Step) -> Plan:
    return Plan(graph.index.digest, (Lane("cpu", steps),))


C, E = Compute, Evict


def shared() -> Graph:
    """0: x -> a, b;  1: b += a;  2: a -> c;  3: b, c -> d.  Storages: x a b c d."""
    builder = Builder()
    x = builder.storage(8, Role.INPUT)
    a, b, c = (builder.storage(8, birth=birth, death=4) for birth in (0, 0, 2))
    builder.op([x], [a, b])
    builder.op([b, a], mutated=(0,))
    builder.op([a], [c])
    builder.op([b, c], [builder.storage(8, birth=3)])
    return builder.graph()


@pytest.mark.parametrize(
    "steps",
    [
        (C(0), C(1), C(2), C(3)),
        (C(0), C(1), E(1), C(0), C(2), C(3)),
        (C(0), C(1), C(2), E(1), E(3), C(0), C(2), C(3)),
        (C(0), C(1), C(2), E(1), E(2), C(0), C(1), C(3)),
        (C(0), C(1), C(2), C(3), E(4), C(3)),
        (C(0), C(0), C(1), C(2), C(3)),
        (C(0), C(1), C(2), C(2), C(3)),
    ],
)
def test_an_output_that_is_still_there_keeps_its_contents(steps: tuple[Step, ...]) -> None:
    graph = shared()
    plan = lane(graph, *steps)
    validate(plan, graph)
    played = executed(graph, plan)
    assert len(played) == sum(isinstance(step, Compute) for step in steps)
    assert sum(op.recompute for op in played.ops) == len(played) - 4


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ((C(0), C(1), E(2), C(0), C(2), C(3)), "step 5 .* storage 2 as written by op 1 .* last written by op 0"),
        ((C(0), C(1), E(1), C(2), C(3)), "step 3 .* storage 1; it is not resident"),
        ((C(0), C(1), C(1), C(2), C(3)), "step 2 .* storage 2 as written by op 0 .* last written by op 1"),
        ((C(0), C(1), C(2), E(0), E(1), C(0), C(3)), "step 5 .* storage 0; it is not resident"),
        ((C(0), C(1), C(2), E(3), C(3)), "step 4 .* storage 3; it is not resident"),
        ((C(0), C(1), C(2), E(3), E(3), C(2), C(3)), "step 4 evicts storage 3, which is not resident"),
    ],
)
def test_what_was_lost_has_to_be_made_again(steps: tuple[Step, ...], what: str) -> None:
    with pytest.raises(PlanError, match=what):
        validate(lane(shared(), *steps), shared())


def normalised(training: bool) -> Graph:
    """0: x, mean -> y, and the mean is updated;  1: y -> z;  2: y, z -> out."""
    builder = Builder()
    x, mean = builder.storage(8, Role.INPUT), builder.storage(4, Role.BUFFER)
    slots = (("input", TENSOR), ("running_mean", TENSOR), ("training", training))
    builder.calls[Call("aten.native_batch_norm.default", slots, 3, (1,), (TENSOR,), ())] = 0
    y = builder.storage(8, birth=0, death=3)
    builder.ops.append(Op(0, (x, mean), (y,), Phase.FORWARD, -1))
    z = builder.storage(8, birth=1, death=3)
    builder.op([y], [z])
    builder.op([y, z], [builder.storage(8, birth=2)])
    return builder.graph()


def test_a_normalisation_runs_again_without_its_update() -> None:
    steps = (C(0), C(1), E(2), C(0), C(2))
    graph = normalised(training=True)
    validate(lane(graph, *steps), graph)
    assert replay(graph, lane(graph, *steps)).resident.tolist() == [20, 28, 28, 36]
    other = normalised(training=False)
    with pytest.raises(PlanError, match="storage 1 as written before the step; it was last written by op 0"):
        validate(lane(other, *steps), other)


def remade(seed: int) -> tuple[Graph, Plan]:
    """The plan of a run that computes something again."""
    recording = random_recording(random.Random(seed), 30, in_place=0.2, kept=0.05)
    sim = Simulator(recording)
    for ratio in (0.6, 0.7, 0.8, 0.9):
        run = sim.run("lru", int(sim.baseline_bytes * ratio), overhead_limit=10, compiled=False)
        if run.status == "ok" and run.recomputations:
            return recording.graph, run.plan()
    assume(False)
    raise AssertionError


def wrong(graph: Graph, steps: list[Step]) -> bool:
    try:
        validate(lane(graph, *steps), graph)
    except PlanError:
        return True
    return False


@given(seed=st.integers(0, 300), chance=st.randoms(use_true_random=False))
def test_a_plan_without_one_of_its_steps(seed: int, chance: random.Random) -> None:
    graph, plan = remade(seed)
    steps = list(plan.lanes[0].steps)
    ran: dict[int, int] = {}
    for step in steps:
        if isinstance(step, Compute):
            ran[step.op] = ran.get(step.op, 0) + 1
    once = [at for at, step in enumerate(steps) if isinstance(step, Compute) and ran[step.op] == 1]
    for at in chance.sample(once, min(2, len(once))):
        assert wrong(graph, steps[:at] + steps[at + 1 :])
    evicted = [at for at, step in enumerate(steps) if isinstance(step, Evict)]
    for at in chance.sample(evicted, min(2, len(evicted))):
        assert wrong(graph, steps[: at + 1] + steps[at:])
    for at in chance.sample(evicted, min(5, len(evicted))):
        without = steps[:at] + steps[at + 1 :]
        if not wrong(graph, without):  # then it only stays for longer, or goes by itself
            assert len(executed(graph, lane(graph, *without))) == len(executed(graph, plan))


@given(seed=st.integers(0, 300), chance=st.randoms(use_true_random=False))
def test_a_plan_with_a_use_moved_before_what_it_uses(seed: int, chance: random.Random) -> None:
    graph, plan = remade(seed)
    steps = list(plan.lanes[0].steps)
    owner = [tensor.storage for tensor in graph.tensors]
    again = [
        at
        for at, (first, second) in enumerate(itertools.pairwise(steps))
        if isinstance(first, Compute)
        and isinstance(second, Compute)
        and any(graph.storages[owner[t]].birth == first.op for t in graph.ops[second.op].inputs)
        and not any(isinstance(step, Compute) and step.op == first.op for step in steps[:at])
    ]
    assume(again)
    at = chance.choice(again)
    assert wrong(graph, [*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]])
