"""``plan`` with links: never slower than without, or on a smaller machine whose plan is known; infeasible if so."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.under_budget.planned import Planned
from tensortide.studies.planning import plan
from tensortide.timing.machine import Link
from tests.plans.dags import random_dag

SLOW, FAST = (Link(name, Fraction(rate), 10) for name, rate in (("host", 10**9), ("ssd", 10**10)))


def asked(seed: int, share: float, links: tuple[Link, ...], before: Planned | None = None) -> Planned:
    """A random step, by little effort, with a ``share`` of the way from what an op needs up to the peak."""
    graph = random_dag(seed, 12)
    chance = random.Random(seed)
    durations = [chance.randint(1, 500) for _ in range(len(graph))]
    least = plan(graph, 0, durations_ns=durations, links=(SLOW,))
    budget = least.least.nbytes + int(share * (least.recorded_peak_bytes - least.least.nbytes))
    known = {} if before is None or before.plan is None else {"before": before.plan}
    found = plan(graph, budget, durations_ns=durations, links=links, known=known, effort=2)
    if found.plan is not None:
        steps = found.plan.lanes[0].steps
        played = play(
            instance(graph, found.device, durations, links=links),
            steps,
            home=found.plan.home,
            budget_bytes=found.budget_bytes,
        )
        assert (played.makespan_ns, played.peak_bytes) == (found.time_ns, found.peak_bytes)
        assert found.time_ns is not None
        assert found.time_ns >= found.bound_ns
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_time_does_not_rise_with_links(seed: int) -> None:
    share = 0.3 + 0.1 * seed
    times = []
    before = None
    for links in ((), (SLOW,), (SLOW, FAST)):
        before = asked(seed, share, links, before)
        times.append(float("inf") if before.time_ns is None else before.time_ns)
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_an_op_that_exceeds_the_budget_makes_the_plan_infeasible_whatever_moves() -> None:
    found = asked(0, -0.1, (FAST,))
    assert found.status == "infeasible"
    assert found.least.nbytes > found.budget_bytes
