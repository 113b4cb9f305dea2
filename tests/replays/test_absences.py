"""Absences of storages in a played plan: what left, when it was back, what ended it and what it was for."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.errors import PlanError
from tensortide.plans import Compute, Evict, Fetch, Lane, Offload, Plan
from tensortide.plans.events import play
from tensortide.plans.events.primitives import homes
from tensortide.plans.instance import DEVICE
from tensortide.plans.model import Copy
from tensortide.replays import replay, replay_transfers
from tensortide.replays.absences import absences
from tests.plans.events.drawn import random_instance, random_plan
from tests.replays.test_transfers import PUBLISHED, TIMES, WORKSPACE, example, played

C = Compute


def test_a_storage_that_is_moved_is_away_until_its_fetch_ends() -> None:
    line = played(*PUBLISHED)
    (one,) = absences(line.problem, line.played)
    steps = line.played.steps
    assert (one.storage, one.from_ns, one.to_ns) == (0, 11, 27)
    assert (steps[one.copied], steps[one.released], steps[one.fetched]) == (Copy(0, "host"), Evict(0), Fetch(0, "host"))
    assert steps[one.used] == C(4)
    assert one.recomputed == []


def test_a_storage_that_is_recomputed_is_away_until_its_op_starts_again() -> None:
    graph = example()
    steps = (C(0), C(1), Evict(0), C(2), C(3), C(0), C(4))
    plan = Plan(graph.index.digest, (Lane("cpu", steps),))
    line = replay_transfers(graph, plan, durations_ns=TIMES, workspace=WORKSPACE, budget_bytes=13)
    (one,) = absences(line.problem, line.played)
    assert (one.storage, one.from_ns, one.to_ns, one.copied, one.fetched) == (0, 9, 18, -1, -1)
    assert [line.played.steps[step] for step in (*one.recomputed, one.used)] == [C(0), C(4)]


def test_a_dead_storage_is_not_absent_and_a_copy_serves_every_later_fetch() -> None:
    twice = (C(0), Offload(0, "host"), Fetch(0, "host"), C(1), Evict(0), C(2), C(3), Fetch(0, "host"), C(4))
    line = played(*twice, budget=None)
    found = absences(line.problem, line.played)
    assert [one.storage for one in found] == [0, 0]
    assert found[0].copied == found[1].copied >= 0


@given(st.integers(0, 10**6))
def test_an_absent_storage_has_no_bytes_and_every_fetch_ends_an_absence(seed: int) -> None:
    """Against the bytes that the replay counts."""
    chance = random.Random(seed)
    problem = random_instance(chance)
    steps, home = random_plan(chance, problem)
    try:
        line = play(problem, steps, home=home)
    except PlanError:
        assume(False)
    found = absences(problem, line)
    fetches = [number for number, step in enumerate(line.steps) if isinstance(step, Fetch)]
    assert sorted(one.fetched for one in found if one.fetched >= 0) == fetches
    where = homes(problem, home)
    for one in found:
        (back,) = {one.fetched, *one.recomputed[:1]} - {-1}
        begins = line.issue_ns[back]
        assert one.to_ns == (line.end_ns[back] if one.fetched >= 0 else line.start_ns[back])
        if one.from_ns < begins:
            before = problem.storages[one.storage].nbytes if where.get(one.storage) == DEVICE else 0
            # what an earlier release has not freed yet, as its copy waits, is another block
            changes = [c for c in line.changes[DEVICE] if c.storage == one.storage and c.step <= one.released]
            assert before + sum(change.nbytes for change in changes) == 0
            assert all(change.time_ns == one.from_ns for change in changes if change.step == one.released)
        if one.used >= 0:
            step = line.steps[one.used]
            assert isinstance(step, Compute)
            assert one.storage in problem.ops[step.op].touches
            assert one.used > back


def test_a_plan_that_moves_nothing_has_the_memory_and_time_of_its_replay() -> None:
    graph = example()
    plan = Plan(graph.index.digest, (Lane("cpu", (C(0), C(1), Evict(0), C(2), C(3), C(0), C(4))),))
    plain = replay(graph, plan, durations_ns=TIMES, workspace=WORKSPACE)
    line = replay_transfers(graph, plan, durations_ns=TIMES, workspace=WORKSPACE)
    assert (line.peak_bytes, line.makespan_ns) == (plain.peak_bytes, plain.makespan_ns)
    assert line.resident.tolist() == plain.resident.tolist()
    assert line.run_op.tolist() == plain.run_op.tolist()
