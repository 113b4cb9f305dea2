"""Plans under a budget, from a step to a Plan: never slower than what is known, as replayed, and monotone."""

from __future__ import annotations

import random
import sys

import pytest

from tensortide import frontier, plan
from tensortide.errors import PlanError
from tensortide.plans import Compute, in_order
from tensortide.plans.instance import instance
from tensortide.plans.planned import Planned
from tensortide.plans.proofs import verify
from tensortide.replays import replay
from tensortide.studies.planning.known import MAKERS
from tensortide.studies.planning.planning import fastest
from tensortide.studies.planning.problem import Problem
from tensortide.studies.remat.linear import linear_network
from tests.replays.remat.steps import random_recording

EFFORT = 0.02


@pytest.mark.parametrize("seed", range(2))
def test_a_plan_is_what_its_replay_says_and_no_slower_than_any_rival(seed: int) -> None:
    recording = random_recording(random.Random(seed), 30)
    peak = plan(recording, 1 << 40).recorded_peak_bytes
    for part in (0.9, 0.6):
        budget = int(peak * part)
        found = plan(recording, budget, effort=EFFORT)
        if found.plan is None:
            assert all(rival.reason for rival in found.rivals)
            assert found.step_ns is found.gap_share is found.extra_share is None
            continue
        line = replay(recording.graph, found.plan)
        steps = found.plan.lanes[0].steps
        assert line.peak_bytes == found.peak_bytes
        assert line.peak_bytes <= budget
        assert sum(recording.durations_ns[step.op] for step in steps if isinstance(step, Compute)) == found.step_ns
        assert found.step_ns is not None
        assert found.bound_ns <= found.step_ns
        for rival in found.rivals:
            assert rival.reason or rival.step_ns is None or found.step_ns <= rival.step_ns
        problem = instance(recording.graph, found.device, recording.durations_ns)
        assert verify(problem, found.proof) == found.bound_ns


def test_a_step_that_fits_is_its_own_plan() -> None:
    recording = linear_network(6)
    found = plan(recording, 1 << 40)
    assert found.plan == in_order(recording.graph, range(len(recording.graph)), found.device)
    assert (found.step_ns, found.gap_share, found.proved) == (found.base_ns, 0.0, True)


def test_chains_are_planned_to_the_optimum() -> None:
    """A network of four layers: each budget of a whole number of outputs has a known least time."""
    recording = linear_network(4)
    peak = plan(recording, 1 << 40).recorded_peak_bytes
    times = []
    for budget in range(peak, 0, -1):
        found = plan(recording, budget, effort=2)
        if found.plan is None:
            assert found.status == "infeasible"
            assert found.least.nbytes <= peak
            break
        assert found.proved
        times.append(found.step_ns)
    assert times == sorted(times, key=lambda ns: ns or 0)
    assert len(times) > 1


def test_less_than_any_plan_needs_is_told_with_the_op() -> None:
    recording = linear_network(6)
    found = plan(recording, 1)
    assert (found.status, found.plan, found.proved) == ("infeasible", None, True)
    assert found.least.nbytes > 1
    assert 0 <= found.least.op < len(recording.graph)
    assert found.least.residents


def test_a_known_plan_is_never_undone() -> None:
    recording = random_recording(random.Random(1), 40)
    peak = plan(recording, 1 << 40).recorded_peak_bytes
    tight = plan(recording, int(peak * 0.8), effort=EFFORT)
    assert tight.plan is not None
    assert tight.step_ns is not None
    loose = plan(recording, int(peak * 0.85), effort=0, known={"tight": tight.plan})
    assert loose.step_ns is not None
    assert loose.step_ns <= tight.step_ns
    assert any(rival.name == "tight" for rival in loose.rivals)


def test_free_order_is_never_slower() -> None:
    for seed in range(2):
        recording = random_recording(random.Random(seed), 24)
        budget = plan(recording, 1 << 40).recorded_peak_bytes * 8 // 10
        times = [plan(recording, budget, order=order, effort=EFFORT).step_ns for order in ("recorded", "free")]
        assert times[0] is None or (times[1] is not None and times[1] <= times[0])


def test_time_never_rises_along_a_frontier() -> None:
    found = frontier(random_recording(random.Random(2), 40), points=6, effort=EFFORT)
    times = [point.step_ns for point in found.points]
    assert len(times) >= 3
    assert times == sorted(times, key=lambda ns: -(ns or 0))
    assert times[-1] == found.points[-1].base_ns
    assert 0 <= found.knee < len(times)


def test_the_search_ends_when_it_is_told_to() -> None:
    recording = random_recording(random.Random(3), 60)
    budget = plan(recording, 1 << 40).recorded_peak_bytes * 7 // 10
    seen: list[tuple[int | None, int]] = []

    def watch(best: int | None, bound: int) -> bool:
        seen.append((best, bound))
        return best is None

    found = plan(recording, budget, watch=watch)
    assert not found.complete
    assert found.step_ns == seen[-1][0]
    assert found.plan is not None


def test_no_search_of_a_frontier_begins_once_it_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is the step as recorded, which needs none."""
    recording = random_recording(random.Random(3), 60)
    ends, asked, begun = 1 << 40, 0, []

    def watch(best: int | None, bound: int) -> bool:
        nonlocal asked
        asked += 1
        return asked < ends

    def counted(problem: Problem) -> Planned:
        begun.append((problem.budget_bytes, asked >= ends))
        return fastest(problem)

    monkeypatch.setattr(sys.modules["tensortide.studies.planning.frontier"], "fastest", counted)
    assert len(frontier(recording, points=4, effort=EFFORT, watch=watch).points) == 4
    assert len(begun) >= 4  # the least budget takes some
    for end in (1, asked // 4, asked // 2):
        ends, asked, begun = end, 0, []
        found = frontier(recording, points=4, effort=EFFORT, watch=watch)
        assert [budget for budget, late in begun if late] == [found.points[-1].recorded_peak_bytes]
        assert found.points[-1].step_ns == found.points[-1].base_ns


def test_wrong_use_is_told() -> None:
    recording = linear_network(4)
    with pytest.raises(PlanError, match="is no budget"):
        plan(recording, -1)
    with pytest.raises(PlanError, match="'recorded' or 'free'"):
        plan(recording, 1, order="any")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="2 or more"):
        frontier(recording, points=1)


def test_every_maker_of_plans_has_a_name_and_says_what_it_yields() -> None:
    for name, maker in MAKERS.items():
        assert name
        assert maker.__doc__ is not None
