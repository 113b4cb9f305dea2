"""A search of placements that ends by its budget alone finds the same however loaded the machine is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensortide.placements.search import ALGORITHMS, Budget, algorithm
from tensortide.placements.search.best import Best
from tensortide.placements.search.seeds import seeds
from tensortide.placements.search.session import SearchResult
from tensortide.search_limit import SearchLimit
from tests.clocks import on_a_loaded_machine
from tests.marks import some_slow
from tests.placements.search.doubles import random_problem


def found(name: str, budget: Budget, threads: int = 1) -> SearchResult:
    search = algorithm(name)
    if isinstance(search, Best):
        search = replace(search, planned=300)
    return search.search(random_problem(1, genes=7), budget, 3, threads=threads)


def decided(result: SearchResult) -> list[Any]:
    return [getattr(result, field) for field in result.__dataclass_fields__ if field != "cpu_s"]


@pytest.mark.parametrize(("name", "threads"), some_slow(itertools.product(ALGORITHMS, (1, 2)), [("best", 1)]))
def test_a_search_within_a_budget_is_the_same_on_a_loaded_machine(name: str, threads: int) -> None:
    budget = Budget(proposals=80, evaluations=50)
    assert decided(on_a_loaded_machine(lambda: found(name, budget, threads))) == decided(found(name, budget, threads))


def test_a_limit_in_seconds_ends_a_search_there() -> None:
    assert on_a_loaded_machine(lambda: found("random", Budget(200, wall_s=60.0))).ended == "time"
    assert found("random", Budget(200, wall_s=60.0)).ended == "budget"


@pytest.mark.parametrize("name", ["contiguous", "m-etf", "cp", "best"])
def test_planning_of_the_first_placements_ends_when_it_is_told_to(name: str) -> None:
    asked = itertools.count()
    problem = random_problem(1, genes=60, devices=4)
    ended = algorithm(name).search(problem, 10**6, 3, stop=lambda: next(asked) > 1)
    assert (ended.ended, ended.proposals) == ("interrupted", problem.devices)


def test_at_the_end_of_a_limit_the_placements_planned_by_then_are_tried() -> None:
    problem, allowed = random_problem(1, genes=60, devices=4), np.arange(4)
    some, every = seeds(problem, allowed, limit=SearchLimit(seconds=0)), seeds(problem, allowed)
    assert 0 < len(some) < len(every)
    assert (some == every[: len(some)]).all()
