"""Plans of several lanes: what is legal, and what is said of what is not."""

from __future__ import annotations

import pytest

from tensortide.errors import PlanError
from tensortide.graph import Graph, Role
from tensortide.plans import Compute, Evict, Fetch, Lane, Plan, Receive, Send
from tensortide.plans.lanes import check_lanes
from tests.graphs import Builder

Steps = tuple[Compute | Send | Receive | Evict | Fetch, ...]


def chain() -> Graph:
    """Op 0 reads the weight (storage 0) and makes storage 1; op 1 reads that; op 2 writes the weight."""
    builder = Builder()
    weight = builder.storage(8, Role.PARAMETER, name="w")
    made = builder.storage(8, birth=0, death=2)
    out = builder.storage(8, birth=1)
    builder.op([weight], [made])
    builder.op([made, weight], [out])
    builder.op([weight], [weight], mutated=(0,))
    return builder.graph()


def plan(*lanes: Steps) -> Plan:
    return Plan(chain().index.digest, tuple(Lane(f"gpu{i}", steps) for i, steps in enumerate(lanes)))


FIRST: Steps = (Send(0, 1), Compute(0), Send(1, 1), Compute(2))
SECOND: Steps = (Receive(0, 0), Receive(1, 0), Compute(1))


def test_a_legal_plan_says_where_storages_are_at_home() -> None:
    assert check_lanes(plan(FIRST, SECOND), chain()).home == {0: 0, 1: 0, 2: 1}


def test_a_copy_may_be_evicted_and_sent_again() -> None:
    first = (Send(0, 1), Compute(0), Send(1, 1), Send(1, 1), Compute(2))
    check_lanes(plan(first, (Receive(0, 0), Receive(1, 0), Evict(1), Receive(1, 0), Compute(1))), chain())


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ((FIRST[:3], SECOND), "never computes op 2"),
        (((*FIRST, Compute(2)), SECOND), r"lane 0 \(gpu0\), step 4 computes op 2 .* which ran before"),
        ((FIRST, SECOND[1:]), "storage 0 is not on the lane"),
        (((Compute(0), Send(1, 1), Compute(2), Send(0, 1)), SECOND), "storage 0 was last written by op 2"),
        (((*FIRST, Send(0, 1)), SECOND), "sends storage 0 to lane 1, which does not receive it"),
        ((FIRST[1:], SECOND), "waits for ever"),
        ((FIRST[:3], (*SECOND, Compute(2))), "which writes storage 0, at home on lane 0"),
        ((FIRST, (*SECOND, Send(9, 0))), "there are 3 storages"),
        ((FIRST, (*SECOND, Send(1, 1))), "no other lane has that number"),
        ((FIRST, (*SECOND, Evict(2), Evict(2))), "evicts storage 2, which is not on the lane"),
        ((FIRST, (*SECOND, Fetch(1))), "compute, send, receive and evict"),
        (((*FIRST, Receive(1, 1)), (*SECOND, Send(1, 0))), "receives storage 1, which is at home there"),
        ((FIRST, (*SECOND, Compute(3))), "computes op 3 of 3"),
        (((Send(2, 1), *FIRST), SECOND), "sends storage 2, which is not on the lane"),
    ],
)
def test_a_plan_that_is_not_legal_says_where(lanes: tuple[Steps, Steps], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_lanes(plan(*lanes), chain())


def test_a_plan_of_another_graph_is_refused() -> None:
    with pytest.raises(PlanError, match="another graph"):
        check_lanes(Plan("other", plan(FIRST, SECOND).lanes), chain())
