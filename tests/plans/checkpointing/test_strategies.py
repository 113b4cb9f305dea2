"""Every strategy on any graph: its schedules execute, cost what they say, and waste nothing when asked not to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.plans import Compute, Evict
from tensortide.plans.checkpointing.segments import (
    candidates,
    checkpoint_all,
    checkpoint_last,
    checkpointed,
    chen_greedy,
    chen_greedy_sweep,
    chen_sqrt,
    no_recompute,
    revolve,
)
from tensortide.plans.checkpointing.stages import StaticPlan, StaticStep, measured, nothing_kept, planned
from tensortide.plans.checkpointing.static import StaticGraph, chain
from tests.plans.checkpointing.oracles import interpreted, static_graphs


def plans(static: StaticGraph, tight: bool) -> Iterator[StaticPlan]:
    yield checkpoint_last(static, tight=tight)
    for articulation in (False, True):
        yield checkpoint_all(static, articulation=articulation, tight=tight)
        yield chen_sqrt(static, articulation=articulation, tight=tight)
        yield chen_greedy(static, sum(static.nbytes) / 3, articulation=articulation, tight=tight)


@given(static_graphs(most=14))
def test_schedules_execute_and_cost_what_they_say(static: StaticGraph) -> None:
    for loose, tight in zip(plans(static, False), plans(static, True), strict=True):
        for plan in (loose, tight):
            assert interpreted(static, plan) == (plan.cost_ns, plan.activation_bytes)
            assert plan.peak_bytes == plan.activation_bytes + static.fixed_bytes
            assert plan.cost_ns >= static.base_ns
        assert tight.cost_ns <= loose.cost_ns
        assert tight.peak_bytes <= loose.peak_bytes
    assert no_recompute(static).cost_ns == static.base_ns


@given(static_graphs(most=10), st.data())
def test_any_retention_can_be_completed(static: StaticGraph, data: st.DataObject) -> None:
    keep = nothing_kept(static)
    for stage, node in data.draw(st.sets(st.tuples(*[st.integers(0, len(static) - 1)] * 2))):
        keep[stage, node] = True
    loose, tight = (planned(static, keep, "any", tight=tight) for tight in (False, True))
    found = found_resident(static, loose)
    for stage in range(len(static)):
        assert all(node in found[stage] for node in range(stage) if keep[stage, node])
    assert interpreted(static, loose) == (loose.cost_ns, loose.activation_bytes)
    assert interpreted(static, tight) == (tight.cost_ns, tight.activation_bytes)
    assert tight.cost_ns <= loose.cost_ns
    assert tight.peak_bytes <= loose.peak_bytes


def found_resident(static: StaticGraph, plan: StaticPlan) -> list[set[int]]:
    """What each stage finds resident when its first computation, or the one before it, begins."""
    found, resident = [set[int]()], set[int]()
    for step in plan.steps:
        if isinstance(step, Evict):
            resident.remove(step.storage)
            continue
        resident.add(step.op)
        if step.op == len(found) - 1:
            found.append(set(resident))
    return found


def test_checkpoints_of_a_branching_forward_pass() -> None:
    """0 -> 1 -> 2 -> 4 (loss), 1 -> 3 -> 4: what bypasses a node is no way around it before it is made."""
    static = StaticGraph(
        cost_ns=(1,) * 6,
        nbytes=(1,) * 6,
        parents=((), (0,), (1,), (1,), (2, 3), (4,)),
        backward=(False,) * 5 + (True,),
    )
    assert candidates(static) == [0, 1, 2, 3]
    assert candidates(static, articulation=True) == [0, 1]


def computed(plan: StaticPlan) -> list[int]:
    return [step.op for step in plan.steps if isinstance(step, Compute)]


def test_what_is_computed_once_stays() -> None:
    """Node 0 may not be computed again once node 2 ran: a plan that would do so keeps it instead."""
    free = StaticGraph(cost_ns=(1,) * 5, nbytes=(1,) * 5, parents=((), (0,), (1,), (2,), (0, 3)), backward=(False,) * 5)
    static = dataclasses.replace(free, until=(2, 4, 4, 4, 4))
    assert computed(checkpoint_last(free)) == [0, 1, 2, 3, 0, 4]
    assert computed(checkpoint_last(static)) == [0, 1, 2, 3, 4]
    assert interpreted(static, checkpoint_last(static)) == (5, 3)
    with pytest.raises(PlanError, match="recomputes node 0 after node 2"):
        measured(static, [*map(Compute, range(3)), Evict(0), Compute(0)], "")


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([Compute(0), Compute(2)], "node 2, whose turn it is not"),
        ([Compute(0), Compute(0)], "node 0, whose turn it is not"),
        ([Compute(0), Evict(0), Compute(1)], "reads node 0; it is not resident"),
        ([Compute(0), Evict(1)], "frees node 1, which is not resident"),
        ([Compute(0), Compute(1)], "does not compute every node"),
    ],
)
def test_what_does_not_execute_is_refused(steps: list[StaticStep], what: str) -> None:
    with pytest.raises(PlanError, match=what):
        measured(chain(1), steps, "")


def test_static_graphs_are_checked() -> None:
    with pytest.raises(PlanError, match="node 1 reads"):
        StaticGraph(cost_ns=(1, 1), nbytes=(1, 1), parents=((), (1,)), backward=(False, False))
    with pytest.raises(PlanError, match="different lengths"):
        StaticGraph(cost_ns=(1, 1), nbytes=(1,), parents=((), (0,)), backward=(False, False))


@given(st.integers(1, 40), st.integers(0, 8))
def test_revolve_needs_the_binomial_number_of_evaluations(length: int, slots: int) -> None:
    """The closed form of Griewank & Walther: with r sweeps, (r, slots) chains of C(slots + r + 1, r) - 1 nodes."""
    sweeps = next(r for r in range(length + 1) if math.comb(slots + 1 + r, r) > length)
    expected = sweeps * (length + 1) - math.comb(slots + 1 + sweeps, slots + 2)
    static = chain(length)
    plan = revolve(static, slots)
    assert plan.cost_ns == expected + length + 1
    assert interpreted(static, plan) == (plan.cost_ns, plan.activation_bytes)
    assert plan.activation_bytes <= min(slots, length) + 3


def test_revolve_wants_a_chain() -> None:
    assert revolve(chain(0), 3).cost_ns == 1
    with pytest.raises(PlanError, match="reverses chains"):
        revolve(
            StaticGraph(cost_ns=(1,), nbytes=(1,), parents=((),), backward=(False,), until=(0,), kept=frozenset({0})), 1
        )
    with pytest.raises(PlanError, match="too few"):
        revolve(chain(4), -1)


def test_a_greedy_sweep_goes_from_all_to_none() -> None:
    found = list(chen_greedy_sweep(chain(16)))
    assert found[0].steps == checkpoint_all(chain(16)).steps
    assert len({plan.steps for plan in found}) > 10
    assert found[-1].overhead == 1.0
    assert checkpointed(chain(16), range(16)).steps == checkpoint_all(chain(16)).steps
