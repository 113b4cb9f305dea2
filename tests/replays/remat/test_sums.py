"""Gradients and their sums are spared: what a step says of them, and that both engines do the same."""

from __future__ import annotations

import itertools
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.graph import Graph, Phase, Role
from tensortide.memory.accumulate import accumulate_apart, partial_sums, sums_in_place
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.replays.remat import Simulator
from tensortide.timelines.events import Kind
from tests.graphs import Builder
from tests.replays.remat.steps import recordings
from tests.replays.remat.test_runs import POLICIES, RATIOS, assert_run_adds_up, facts

USES = 40


@given(
    recording=recordings(most=30),
    policy=POLICIES,
    ratio=RATIOS,
    share=st.sampled_from((0.2, 1.0)),
    chance=st.randoms(use_true_random=False),
)
def test_both_engines_spare_the_same(
    recording: Recording, policy: str, ratio: float, share: float, chance: random.Random
) -> None:
    sim = Simulator(recording)
    made = sim.schedule
    read, written = (np.diff(ends) for ends in (made.input_ends, made.output_ends))
    made.sums[:] = [a > 0 and b > 0 and chance.random() < share for a, b in zip(read, written, strict=True)]
    budget = int(sim.baseline_bytes * ratio)
    run = sim.run(policy, budget, overhead_limit=20, compiled=False)
    assert_run_adds_up(run)
    assert facts(sim.run(policy, budget, overhead_limit=20, compiled=True)) == facts(run)


def shared(in_place: bool) -> Graph:
    """A chain of ops that all use one weight, and its way back, which sums the weight's gradients up."""
    builder = Builder()
    weight = builder.storage(8, Role.PARAMETER)
    states = [builder.storage(8, Role.INPUT)]
    for index in range(USES):
        states.append(builder.storage(8, Role.ACTIVATION, index))
        builder.op([states[-2], weight], [states[-1]])
    total = gradient = states[-1]
    for use in range(USES):
        state = states[USES - 1 - use]
        now = len(builder.ops)
        gradient, before = builder.storage(8, Role.TEMPORARY, now), gradient
        builder.op([before, state, weight], [gradient], phase=Phase.BACKWARD)
        part = builder.storage(80, Role.TEMPORARY, now + 1)
        builder.op([gradient, state], [part], phase=Phase.BACKWARD)
        if use:
            builder.op([total, part], [total], mutated=[0], name="aten.add_.Tensor", phase=Phase.BACKWARD)
        else:
            total = part
    graph = dying(builder.graph(), builder.graph().tensors[total].storage)
    return graph if in_place else accumulate_apart(graph, sums_in_place(graph))


def dying(graph: Graph, kept: int) -> Graph:
    """Each storage that the step makes dies after its last use, but for ``kept``."""
    last: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        last.update((graph.tensors[tensor].storage, index + 1) for tensor in (*op.inputs, *op.outputs))
    storages = tuple(
        record if record.birth is None or index == kept else msgspec.structs.replace(record, death=last[index])
        for index, record in enumerate(graph.storages)
    )
    return msgspec.structs.replace(graph, storages=storages)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_sum_of_gradients_is_never_made_again(in_place: bool) -> None:
    graph = shared(in_place)
    sums = partial_sums(graph)
    assert len(sums) == USES - 1
    sim = Simulator(recorded(graph, [10] * len(graph)))
    tight = sim.baseline_bytes * 9 // 10
    spared = sim.run("size", tight, overhead_limit=20)
    made = spared.schedule
    op_of = [op for op, (a, b) in enumerate(itertools.pairwise(made.output_ends.tolist())) for _ in range(a, b)]
    trace = spared.trace()
    again = {int(made.origin[op_of[index]]) for kind, index in trace if kind == Kind.RECOMPUTE}
    assert spared.status == "ok"
    assert again
    assert not again & sums
    forgetful = Simulator(sim.recording)
    forgetful.schedule.sums[:] = forgetful.schedule.gradient[:] = 0
    assert forgetful.run("size", tight, overhead_limit=20).status == "thrash"


def towers() -> Graph:
    """Two chains of ops on one input. The way back through one leaves a large gradient, used after the way back
    through the other."""
    builder = Builder()
    weight = builder.storage(8, Role.PARAMETER)
    given = builder.storage(8, Role.INPUT)
    wide = builder.storage(800, Role.ACTIVATION, 0)
    builder.op([given, weight], [wide])
    chains: list[list[int]] = []
    for _ in range(2):
        chains.append([wide])
        for _ in range(USES):
            state = builder.storage(80, Role.ACTIVATION, len(builder.ops))
            builder.op([chains[-1][-1]], [state])
            chains[-1].append(state)
    large: list[int] = []
    for chain in chains:
        gradient = chain[-1]
        for state in reversed(chain[1:]):
            before, gradient = gradient, builder.storage(80, Role.TEMPORARY, len(builder.ops))
            builder.op([before, state], [gradient], phase=Phase.BACKWARD)
        large.append(builder.storage(1600, Role.TEMPORARY, len(builder.ops)))
        builder.op([gradient], [large[-1]], phase=Phase.BACKWARD)
    kept = builder.storage(8, Role.GRADIENT, len(builder.ops))
    builder.op(large, [kept], phase=Phase.BACKWARD)
    graph = builder.graph()
    return dying(graph, graph.tensors[kept].storage)


@pytest.mark.parametrize("policy", ["dtr-eq", "size"])
def test_the_backward_pass_is_not_recomputed_while_anything_else_can_go(policy: str) -> None:
    graph = towers()
    sim = Simulator(recorded(graph, [10] * len(graph)))

    def backward_again(simulator: Simulator) -> int:
        run = simulator.run(policy, sim.baseline_bytes * 6 // 10)
        assert run.status == "ok"
        assert run.recomputations
        op_of, origin = run.schedule.op_of.tolist(), run.schedule.origin.tolist()
        ops = [graph.ops[origin[op_of[index]]] for kind, index in run.trace() if kind == Kind.RECOMPUTE]
        return sum(op.phase is Phase.BACKWARD for op in ops)

    assert backward_again(sim) == 0
    forgetful = Simulator(sim.recording)
    forgetful.schedule.gradient[:] = 0
    assert backward_again(forgetful) > USES


def test_a_sum_whose_first_term_is_held_is_no_partial_sum() -> None:
    graph = shared(in_place=False)
    first = min(partial_sums(graph))
    before = graph.tensors[graph.ops[first].inputs[0]].storage
    storages = list(graph.storages)
    storages[before] = msgspec.structs.replace(storages[before], death=first + 2)
    assert partial_sums(graph) - partial_sums(msgspec.structs.replace(graph, storages=tuple(storages))) == {first}
