"""Lower bounds of captured steps: no placement undercuts them, and what each adds is seen where it decides."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.placements.graphs import GraphProblem, Grouping, PlaceOptions, ready
from tensortide.placements.graphs.bounds import _one_machine, _one_slack, _shared_out
from tensortide.placements.graphs.memory_limits import Limit
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.placements.graphs.tables import step_of
from tensortide.placements.graphs.units import units_of
from tensortide.timing.clusters import joined
from tensortide.timing.links import Link
from tests.placements.graphs.steps import FREE, captured, cluster, pipeline, pipeline_ns


@given(
    st.lists(st.integers(1, 50), min_size=6, max_size=6),
    st.integers(1, 3),
    st.sampled_from([FREE, Link("wire", Fraction(10**9), 30)]),
)
def test_no_placement_undercuts_the_bounds(times: list[int], factor: int, link: Link) -> None:
    graph = pipeline(3)
    machine = joined([each.row for each in cluster(2).devices], link)
    ns = pipeline_ns(graph, 7, 11)
    ns[:6] = times
    step = step_of(units_of(graph, Grouping("closure")), machine, [ns, [factor * each for each in ns]])
    problem = GraphProblem(step)
    every = np.array([*itertools.product(range(2), repeat=len(problem.names))])
    assert problem.bounds.best_ms <= problem.evaluate(every)[0].min() * (1 + 1e-9)


@pytest.mark.parametrize("schedule", ["recorded", "gpipe", "1f1b"])
def test_random_placements_of_a_model_do_not_undercut_the_bounds(schedule: ScheduleName) -> None:
    problem = ready(captured("gpt2"), cluster(3), PlaceOptions(schedule=schedule, micro_batches=3)).problem
    rows = np.random.default_rng(0).integers(0, 3, (20, len(problem.names)))
    assert problem.bounds.best_ms <= problem.evaluate(rows)[0].min()


def test_the_ops_of_one_unit_wait_for_each_other() -> None:
    """Four micro-batches of a single unit take four times as long, though no chain of ops does."""
    options = PlaceOptions(Grouping(prefixes=("s0",)), schedule="gpipe", micro_batches=4, launch="none")
    one = ready(pipeline(1), cluster(2, FREE), options).problem
    bounds = one.bounds
    assert bounds.critical_path_ms == pytest.approx(one.evaluate(np.zeros((1, len(one.names)), np.int64))[0][0])


def test_one_machine_is_busy_from_the_first_start_and_prefers_what_has_most_behind_it() -> None:
    assert _one_machine([(0, 4, 0), (1, 2, 10)]) == 13
    assert _one_machine([(0, 4, 10), (1, 2, 0)]) == 14
    assert _one_machine([(0, 1, 0), (5, 1, 3)]) == 9
    assert _one_machine([]) == 0


def test_memory_that_forces_units_onto_a_slow_device_raises_the_bound() -> None:
    work = np.repeat([[1.0, 10.0]], 10, axis=0)
    memory = np.ones((10, 2))
    roomy = _shared_out(work, Limit(memory, np.array([10.0, 10.0])))
    tight = _shared_out(work, Limit(memory, np.array([4.0, 10.0])))
    assert roomy == pytest.approx(100 / 11, rel=0.01)  # nine and a bit on the fast one
    assert 0.9 * 60 <= tight <= 60  # six of ten are on the slow one


def test_limits_with_room_for_everything_bound_the_work_alike_and_once() -> None:
    work = np.random.default_rng(0).uniform(1, 9, (8, 2))
    roomy = [Limit(np.full((8, 2), each), np.array([8 * each, np.inf])) for each in (1.0, 5.0)]
    tight = Limit(np.ones((8, 2)), np.array([7.0, np.inf]))
    assert _shared_out(work, roomy[0]) == _shared_out(work, roomy[1])
    assert _one_slack([roomy[0], tight, roomy[1]]) == [roomy[0], tight]
    assert _one_slack([tight, tight]) == [tight, tight]
