"""The budget that is named where there is no plan."""

from __future__ import annotations

import pytest

import tensortide
from tensortide import plan
from tensortide.studies.remat.linear import linear_network
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


def test_the_budget_that_is_named_is_no_more_than_a_static_plan_takes() -> None:
    step = tensortide.open("mlp").graph
    none, found = plan(step, 2, effort=0, work_limit=1e6), plan(step, "85%", effort=0, work_limit=1e6)
    (static_bytes,) = (rival.peak_bytes for rival in found.rivals if rival.name == "checkpoint last")
    assert none.enough_bytes is not None
    assert static_bytes is not None
    assert none.enough_bytes <= static_bytes
