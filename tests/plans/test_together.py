"""Steps with loops: written out, or each loop in one stretch; bounds over the orders that are told."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide import footprint, timeline
from tensortide.errors import PlanError
from tensortide.graph import Graph, unrolled
from tensortide.importers.tensorflow.building.convert import graph_of_program
from tensortide.plans.order import problem as together
from tensortide.plans.order.orders import by_rank
from tensortide.plans.order.problem import Problem, Stated, problem, stated
from tensortide.plans.order.proof import verify
from tensortide.replays import replay
from tests.graph.test_unroll import stashing
from tests.graphs import graphs
from tests.importers.tf1.costs.programs import accumulating
from tests.plans.dags import random_dag


def contracted(graph: Graph, cuts: Sequence[int]) -> Stated:
    """The problem of ``graph`` with its ops in stretches that end at ``cuts``."""
    every = problem(graph, "cpu")
    ends = sorted({cut for cut in cuts if 0 < cut < len(graph)} | {0, len(graph)})
    units = tuple(itertools.starmap(range, itertools.pairwise(ends)))
    return Stated(graph, every, together._contracted(every, units), units)


GRAPHS = graphs(max_ops=9) | st.builds(random_dag, st.integers(0, 10**6), st.integers(1, 9))


@given(GRAPHS, st.lists(st.integers(1, 8)))
def test_levels_of_units_are_not_above_those_of_their_ops(graph: Graph, cuts: list[int]) -> None:
    asked = contracted(graph, cuts)
    for order in itertools.islice(itertools.permutations(range(len(asked.problem))), 200):
        if runs(asked.problem, order):
            assert asked.problem.peak(order) <= asked.ops.peak(asked.spelled(order))


def runs(asked: Problem, order: Sequence[int]) -> bool:
    at = {unit: position for position, unit in enumerate(order)}
    return all(at[earlier] < at[unit] for unit, needed in enumerate(asked.before) for earlier in needed)


@given(GRAPHS, st.lists(st.integers(1, 8)))
def test_they_agree_where_nothing_runs_beside_a_stretch(graph: Graph, cuts: list[int]) -> None:
    asked = contracted(graph, cuts)
    count = len(asked.problem)
    if all(len(asked.problem.ancestors(i)) + len(asked.problem.descendants(i)) == count - 1 for i in range(count)):
        assert asked.problem.peak(range(count)) == asked.ops.peak(range(len(graph)))


@pytest.mark.parametrize("free", [0, 10**6])
def test_loops_of_both_kinds(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """The bounds hold, the proof is checked, and the plan replays on the loops written out."""
    monkeypatch.setattr(together, "FREE", free)
    for program in (accumulating(), stashing(5, 250)):
        graph = graph_of_program(program)
        found = footprint(graph)
        assert found.loops == ("written out" if free else "together")
        assert found.captured_peak_bytes == timeline(unrolled(graph), lifetimes="last_use").peak_bytes
        assert found.proved
        assert verify(graph, found.proof, device=found.device) == found.lower_bytes
        assert replay(graph, found.plan).peak_bytes == found.upper_bytes
        assert sorted(found.order) == list(range(len(unrolled(graph))))


def test_stashes_are_freed_as_they_are_taken_back() -> None:
    """n values of the forward loop, and the state beside them: the rule of a family with +1 and -1 per iteration."""
    trips, size = 5, 250
    found = footprint(graph_of_program(stashing(trips, size)))
    assert (found.loops, found.upper_bytes) == ("written out", (trips + 1) * 4 * size)


def test_a_loop_kept_together_is_a_stretch_of_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "FREE", 0)
    graph = graph_of_program(stashing(4, 10))
    asked = stated(graph, "cpu")
    loops = [unit for unit in asked.units if len(unit) > 1]
    assert [len(unit) for unit in loops] == [4 * 6, 4 * 2]
    order = footprint(graph).order
    for unit in loops:
        start = order.index(unit.start)
        assert order[start : start + len(unit)] == tuple(unit)


@given(GRAPHS)
def test_a_graph_without_loops_is_its_own_problem(graph: Graph) -> None:
    asked = stated(graph, "cpu")
    assert not asked.is_contracted
    assert footprint(graph, work_limit=0).loops == "none"
    order = by_rank(asked.problem, range(len(graph)), 0)
    assert asked.spelled(order) == order


def test_the_problem_of_a_body_alone_is_refused() -> None:
    with pytest.raises(PlanError, match="have no order: write out"):
        problem(graph_of_program(accumulating()), "cpu")
