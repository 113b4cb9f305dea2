"""``plan`` with links: never slower than without, or on a smaller machine whose plan is known; infeasible if so."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.plans.planned import Planned
from tensortide.studies.planning import plan
from tensortide.timing.links import Link
from tests.plans.dags import random_dag

SLOW, FAST = (Link(name, Fraction(rate), 10) for name, rate in (("host", 10**9), ("ssd", 10**10)))


def asked(
    seed: int, share: float, links: tuple[Link, ...], before: Planned | None = None, effort: float = 2
) -> Planned:
    """A random step, by little effort, with a ``share`` of the way from what an op needs up to the peak."""
    graph = random_dag(seed, 12)
    chance = random.Random(seed)
    durations = [chance.randint(1, 500) for _ in range(len(graph))]
    least = plan(graph, 0, durations_ns=durations, links=(SLOW,))
    budget = least.least.nbytes + int(share * (least.recorded_peak_bytes - least.least.nbytes))
    known = {} if before is None or before.plan is None else {"before": before.plan}
    found = plan(graph, budget, durations_ns=durations, links=links, known=known, effort=effort)
    if found.plan is not None:
        steps = found.plan.lanes[0].steps
        played = play(
            instance(graph, found.device, durations, links=links),
            steps,
            home=found.plan.home,
            budget_bytes=found.budget_bytes,
        )
        assert (played.makespan_ns, played.peak_bytes) == (found.step_ns, found.peak_bytes)
        assert found.step_ns is not None
        assert found.step_ns >= found.bound_ns
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_time_does_not_rise_with_links(seed: int) -> None:
    share = 0.3 + 0.1 * seed
    times = []
    before = None
    for links in ((), (SLOW,), (SLOW, FAST)):
        before = asked(seed, share, links, before)
        times.append(float("inf") if before.step_ns is None else before.step_ns)
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def _machines(sweep: str, point: int) -> tuple[float, tuple[Link, ...]]:
    """Machine number ``point`` of eight, each with more of something than the one before; and the share of budget."""
    rate = Fraction(10**9 * (1 + point)) if sweep == "rate" else Fraction(2 * 10**9)
    capacity = 40 * (1 + point) if sweep == "memory" else None
    share = 0.1 * point if sweep == "budget" else 0.3
    return share, (Link("host", rate, 10, capacity_bytes=capacity),)


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["budget", "rate", "memory"])
def test_time_does_not_rise_with_what_grows_if_the_smaller_plan_is_known(sweep: str) -> None:
    times = []
    before = None
    for point in range(8):
        share, links = _machines(sweep, point)
        before = asked(1, share, links, before, effort=0.05)
        times.append(float("inf") if before.step_ns is None else before.step_ns)
    assert times == sorted(times, reverse=True)


def test_a_watch_ends_the_search_with_links_and_keeps_the_best_plan() -> None:
    graph = random_dag(1, 12)
    durations = [1 + op for op in range(len(graph))]
    whole = plan(graph, 0, durations_ns=durations, links=(SLOW,))
    budget = (whole.least.nbytes + whole.recorded_peak_bytes) // 2
    seen: list[int | None] = []

    def watch(best: int | None, _: int) -> bool:
        seen.append(best)
        return best is None

    found = plan(graph, budget, durations_ns=durations, links=(SLOW,), watch=watch)
    assert found.status == "fits"
    assert not found.complete
    assert seen[-1] is not None
    assert found.step_ns == seen[-1]


def test_an_op_that_exceeds_the_budget_makes_the_plan_infeasible_whatever_moves() -> None:
    found = asked(0, -0.1, (FAST,))
    assert found.status == "infeasible"
    assert found.least.nbytes > found.budget_bytes
