"""Estimates of placements: exact where nothing is left to estimate, and in the order of simulations elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensortide.placements import NetProblem
from tensortide.placements.arrays import Floats, Placements
from tensortide.placements.problem import Problem
from tensortide.placements.search.best import Best, Estimated, agrees
from tensortide.placements.search.groups import Grouped, grouped
from tests.placements import cases
from tests.placements.search.doubles import InOrder, random_problem


def near(problem: Problem, count: int) -> Placements:
    """A good placement with one to three runs of genes elsewhere, ``count`` times [count, genes]."""
    rng = np.random.default_rng(0)
    good = np.array(Best(planned=300).search(problem, 200).placement)
    rows = np.repeat(good[None], count, axis=0)
    for number, row in enumerate(rows):
        for _ in range(1 + number % 3):
            start = rng.integers(len(row))
            row[start : start + rng.integers(1, 6)] = rng.integers(problem.devices)
    return rows


def ranks(values: Floats) -> Floats:
    found: Floats = np.argsort(np.argsort(values, kind="stable")).astype(float)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_estimate_of_a_chain_is_what_its_recurrence_gives(seed: int) -> None:
    drawn = random_problem(seed, genes=9, room=1.2)
    chain = drawn.edges[:, 1] - drawn.edges[:, 0] == 1
    problem = replace(drawn, edges=drawn.edges[chain], transfers=drawn.transfers[chain])
    rows = np.random.default_rng(seed).integers(problem.devices, size=(50, 9))
    for estimated, simulated in zip(Estimated(problem, 1.0).evaluate(rows), problem.evaluate(rows), strict=True):
        assert estimated == pytest.approx(simulated, rel=1e-12)


def test_all_on_one_device_takes_as_long_as_simulated() -> None:
    problem = net_problem(1)
    rows = np.repeat(np.arange(problem.devices)[:, None], len(problem.names), axis=1)
    penalty = problem.penalty_ms_per_byte
    (scores, over), (estimated, roughly) = problem.evaluate(rows), Estimated(problem, 1.0).evaluate(rows)
    assert estimated - penalty * roughly == pytest.approx(scores - penalty * over, rel=1e-6)


def net_problem(batches: int) -> NetProblem:
    settings = replace(cases.PUBLISHED, batches=batches, pipeline_batches=min(batches, 2))
    return NetProblem(cases.net("resnet50"), cases.cluster("malvik"), settings)


@pytest.mark.parametrize("batches", [1, 4])
def test_placements_of_a_net_are_in_the_order_of_their_simulations(batches: int) -> None:
    problem = net_problem(batches)
    rows = near(problem, 100)
    estimated, simulated = Estimated(problem, 1.0).evaluate(rows)[0], problem.evaluate(rows)[0]
    assert np.corrcoef(ranks(estimated), ranks(simulated))[0, 1] > 0.9


def test_estimates_that_put_placements_in_another_order_do_not_agree() -> None:
    problem = net_problem(1)
    rows = near(problem, 100)
    energies, _ = problem.evaluate(rows)
    assert agrees(problem, rows, energies, 0.0)
    assert not agrees(problem, rows, -energies, 0.0)
    assert not agrees(problem, rows, np.random.default_rng(0).permutation(energies), 0.0)
    assert not agrees(problem, rows[:1], energies[:1], 0.0)


def test_groups_are_estimated_by_what_they_consist_of() -> None:
    problem = net_problem(1)
    groups = grouped(problem, "prefix:6")
    rows = np.random.default_rng(0).integers(3, size=(20, len(groups.names)))
    assert isinstance(groups, Grouped)
    expanded = groups.expanded(rows)
    assert (Estimated(groups, 1.0).evaluate(rows)[0] == Estimated(problem, 1.0).evaluate(expanded)[0]).all()


def test_memory_that_does_not_suffice_by_a_share_of_it_counts() -> None:
    problem: InOrder = random_problem(1, genes=9, room=1.2)
    rows = np.random.default_rng(1).integers(3, size=(50, 9))
    whole, half = Estimated(problem, 1.0).evaluate(rows)[1], Estimated(problem, 0.5).evaluate(rows)[1]
    halved = replace(problem, capacity=problem.capacity / 2)
    assert half == pytest.approx(halved.evaluate(rows)[1])
    assert (half >= whole).all()
