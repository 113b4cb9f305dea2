"""More freedom never gives a worse plan: each search of links, recomputation and order includes those of less."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from fractions import Fraction
from operator import attrgetter
from typing import NamedTuple

import pytest

from tensortide.plans.instance import instance
from tensortide.plans.planned import FirstRuns
from tensortide.plans.under_budget.idle import least_with_transfers
from tensortide.studies.planning import plan
from tensortide.timing.links import Link
from tests.studies.planning.test_monotone import peak, step

RECORDED: tuple[FirstRuns, ...] = ("recorded",)
ANY: tuple[FirstRuns, ...] = ("recorded", "free")


class Freedom(NamedTuple):
    """What plans may do."""

    order: FirstRuns
    links: frozenset[Link]
    recompute: bool

    def includes(self, other: Freedom) -> bool:
        is_free = self.order == "free" or other.order == "recorded"
        return is_free and self.links >= other.links and self.recompute >= other.recompute


def freedoms(links: Iterable[Link], orders: Iterable[FirstRuns]) -> Iterator[Freedom]:
    """Every order, set of links, and recomputation or none."""
    sets: list[frozenset[Link]] = [frozenset()]
    for link in links:
        sets += [known | {link} for known in sets]
    return itertools.starmap(Freedom, itertools.product(orders, sets, (False, True)))


def assert_more_is_no_slower(seed: int, ops: int, orders: Iterable[FirstRuns], effort: float, links: int = 2) -> None:
    """Plans each freedom on its own: none is given the plan of another."""
    graph, durations = step(seed, ops)
    chance = random.Random(seed)
    least = least_with_transfers(instance(graph, graph.index.main_device, durations), recorded=True).nbytes
    budget = least + int((peak(graph, durations) - least) * chance.uniform(0.2, 0.8))
    host = Link("host", Fraction(10 ** chance.choice((8, 9))), 20)
    ssd = Link("ssd", Fraction(10 ** chance.choice((7, 8))), 50, capacity_bytes=budget // 3)
    times = {}
    for freedom in freedoms((host, ssd)[:links], orders):
        found = plan(
            graph,
            budget,
            durations_ns=durations,
            links=sorted(freedom.links, key=attrgetter("name")),
            recompute=freedom.recompute,
            order=freedom.order,
            effort=effort,
            time_limit_s=float("inf"),
        )
        times[freedom] = float("inf") if found.step_ns is None else found.step_ns
    assert min(times.values()) < float("inf")
    for more, less in itertools.permutations(times, 2):
        assert not more.includes(less) or times[more] <= times[less]


@pytest.mark.slow  # those above are of few
def test_of_a_step_of_many_ops() -> None:
    assert_more_is_no_slower(6, 30, RECORDED, 0.01, links=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_of_more_steps_of_many_ops(seed: int) -> None:
    assert_more_is_no_slower(seed, 70, RECORDED, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_in_any_order_of_steps_that_are_solved(seed: int) -> None:
    assert_more_is_no_slower(seed, 24, ANY, 0.05)


@pytest.mark.slow
def test_in_any_order_of_a_step_of_many_ops() -> None:
    assert_more_is_no_slower(0, 64, ANY, 0.05, links=1)
