"""An order played: the same Graph, executed, and the bytes resident at each step told by the Timeline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.graph import Graph, validate
from tensortide.plans import in_order
from tensortide.plans.order.orders import by_rank
from tensortide.plans.order.problem import problem
from tensortide.replays import executed, replay
from tests.graphs import graphs
from tests.plans.dags import random_dag


@given(graphs(max_ops=20, devices=("cpu", "meta")), st.randoms(use_true_random=False), st.sampled_from(["cpu", "meta"]))
def test_replay_agrees_with_the_levels_of_the_planner(graph: Graph, chance: object, device: str) -> None:
    if device not in {storage.device for storage in graph.storages}:
        return
    stated = problem(graph, device)
    rank = list(range(len(graph)))
    chance.shuffle(rank)  # type: ignore[attr-defined]
    order = by_rank(stated, rank, 0)
    played = replay(graph, in_order(graph, order, device))
    assert played.resident.tolist() == stated.levels(order)
    for position in range(len(graph)):
        alive = sorted(item.storage for item in played.alive(position))
        assert alive == stated.resident_at(order, position)
    validate(played.graph)
    assert played.graph.ops == tuple(graph.ops[op] for op in order)


def test_what_does_not_execute_the_graph_is_not_played() -> None:
    graph = random_dag(1, 5)
    with pytest.raises(PlanError, match="never computed"):
        executed(graph, in_order(graph, range(4), "cpu"))
    with pytest.raises(PlanError, match="another graph"):
        executed(random_dag(2, 5), in_order(graph, range(5), "cpu"))
