"""A search of placements that ends by its budget alone finds the same however loaded the machine is."""

from __future__ import annotations

from typing import Any

import pytest

from tensortide.placements.search import ALGORITHMS, Budget, algorithm
from tensortide.placements.search.session import SearchResult
from tests.clocks import on_a_loaded_machine
from tests.placements.search.doubles import random_problem


def found(name: str, budget: Budget, threads: int = 1) -> SearchResult:
    return algorithm(name).search(random_problem(1, genes=7), budget, 3, threads=threads)


def decided(result: SearchResult) -> list[Any]:
    return [getattr(result, field) for field in result.__dataclass_fields__ if field != "cpu_s"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_search_within_a_budget_is_the_same_on_a_loaded_machine(name: str, threads: int) -> None:
    budget = Budget(proposals=200, evaluations=120)
    assert decided(on_a_loaded_machine(lambda: found(name, budget, threads))) == decided(found(name, budget, threads))


def test_a_limit_in_seconds_ends_a_search_there() -> None:
    assert on_a_loaded_machine(lambda: found("random", Budget(200, wall_s=60.0))).ended == "time"
    assert found("random", Budget(200, wall_s=60.0)).ended == "budget"
