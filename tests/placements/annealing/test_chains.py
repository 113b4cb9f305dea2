"""Chains of annealing: the same compiled or not, in threads or not, and never worse with a larger budget."""

from __future__ import annotations

import itertools
from copy import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortide.placements import NetProblem
from tensortide.placements.arrays import Floats, Placements
from tensortide.placements.graphs import PlaceOptions, ready
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.placements.problem import Derived, Problem
from tensortide.placements.search import Budget, SearchResult
from tensortide.placements.search.best import Best
from tensortide.placements.search.groups import Grouped, grouped
from tests.placements import cases
from tests.placements.graphs.steps import captured, cluster
from tests.placements.search.doubles import random_problem

FEW = 300
"""Proposals that are estimated before those that are simulated."""


class Evaluated(Derived):
    """A problem without steps of its own."""

    def evaluate(self, placements: Placements) -> tuple[Floats, Floats]:
        return self.base.evaluate(placements)


def timeless(found: SearchResult) -> SearchResult:
    return replace(found, cpu_s=0.0)


def net_problem() -> NetProblem:
    settings = replace(cases.PUBLISHED, batches=3, pipeline_batches=2)
    machine = cases.cluster("malvik-4gpu-reduced-alexnet")
    return NetProblem(cases.net("alex_v2"), machine, settings)


def test_steps_of_the_kernel_of_nets_are_those_of_their_evaluation() -> None:
    fast = net_problem()
    one = Best(chains=2, planned=FEW).search(fast, 160, 3)
    assert timeless(one) == timeless(Best(chains=2, planned=FEW).search(Evaluated(fast), 160, 3))
    assert one.proposals == 160  # most of them by annealing
    assert NetProblem.anneal is not Problem.anneal


def test_steps_of_groups_are_those_of_evaluated_groups() -> None:
    whole = grouped(net_problem(), "prefix:4")
    assert isinstance(whole, Grouped)
    evaluated = copy(whole)
    evaluated.base = Evaluated(whole.base)
    assert timeless(Best(planned=FEW).search(whole, 300)) == timeless(Best(planned=FEW).search(evaluated, 300))


@pytest.mark.parametrize("schedule", ["recorded", "gpipe", "1f1b", "interleaved"])
def test_steps_of_the_kernel_of_captured_steps_are_those_of_their_evaluation(schedule: ScheduleName) -> None:
    count = 1 if schedule == "recorded" else 2
    whole = cluster(2, capacity_bytes=None if schedule == "gpipe" else 3 * 10**6)
    options = PlaceOptions(schedule=schedule, micro_batches=count)
    problem = ready(captured("gpt2"), cluster(2) if schedule == "interleaved" else whole, options).problem
    one = Best(chains=2, planned=FEW).search(problem, 50, 1)
    assert timeless(one) == timeless(Best(chains=2, planned=FEW).search(Evaluated(problem), 50, 1))


def test_a_net_is_searched_in_threads_as_in_one() -> None:
    one, four = (Best(chains=4, planned=FEW).search(net_problem(), 1500, 2, threads=threads) for threads in (1, 4))
    assert timeless(one) == timeless(four)


@settings(max_examples=8)
@given(st.integers(0, 1000), st.integers(4, 8), st.lists(st.integers(1, 60), min_size=2, max_size=2))
def test_a_larger_budget_is_never_worse_and_goes_the_same_way(seed: int, genes: int, budgets: list[int]) -> None:
    problem = random_problem(seed, genes=genes, room=1.5)
    found = [Best(chains=1 + seed % 3, planned=FEW).search(problem, budget, seed) for budget in sorted(budgets)]
    for less, more in itertools.pairwise(found):
        assert more.score_ms <= less.score_ms
        if not more.proved:
            assert more.history[: len(less.history)] == less.history


def test_evaluations_end_a_search_of_several_chains_exactly() -> None:
    problem = random_problem(1, genes=14)
    found = Best(chains=3, planned=FEW).search(problem, Budget(5000, evaluations=777), threads=2)
    assert (found.evaluations, problem.simulated, found.ended) == (777, 777, "budget")
