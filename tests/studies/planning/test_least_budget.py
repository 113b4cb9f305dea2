"""The budget that is named where there is no plan."""

from __future__ import annotations

import pytest

from tensortide import plan
from tensortide.plans.remat.schedule import recorded
from tensortide.studies.planning.least_budget import least_budget
from tensortide.studies.planning.problem import Problem
from tensortide.studies.planning.recomputation import without_links
from tensortide.studies.remat.linear import linear_network
from tests.graphs import stored
from tests.marks import some_slow


@pytest.mark.parametrize("layers", some_slow([8, 30, 60], [30, 60]))
def test_where_there_is_no_plan_the_budget_that_is_named_is_enough(layers: int) -> None:
    step = linear_network(layers)
    none = plan(step, 2, effort=0.01)
    assert none.plan is None
    assert none.enough_bytes is not None
    assert none.least.nbytes <= none.enough_bytes < none.recorded_peak_bytes
    fits = plan(step, none.enough_bytes, effort=0.01)
    assert fits.status == "fits"
    assert fits.enough_bytes is None
    below = [plan(step, nbytes, effort=0.01) for nbytes in range(none.least.nbytes, none.enough_bytes)]
    assert all(each.plan is None for each in below)


def test_the_least_budget_is_no_more_than_a_static_plan_takes() -> None:
    graph = stored("mlp")
    step = recorded(graph, [1] * len(graph))
    problem = Problem(recording=step, device="cpu", budget_bytes=0, effort=0, policies=False, partitioner=False)
    peak = problem.recorded_peak_bytes
    found = without_links(problem.under(85 * peak // 100))
    (static_bytes,) = (rival.peak_bytes for rival in found.rivals if rival.name == "checkpoint last")
    assert static_bytes is not None
    assert least_budget(problem, without_links, problem.least.nbytes - 1, peak) <= static_bytes
