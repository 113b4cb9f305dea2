"""Plans of captured steps: what the event rules say of them is what validation and replay say."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tensortide.graph import Role
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Evict
from tensortide.plans.events import play
from tensortide.plans.instance import instance
from tensortide.replays import replay
from tensortide.replays.remat import Simulator
from tests.graphs import Builder
from tests.replays.remat.steps import random_recording


def test_only_views_are_ordered_apart_from_states() -> None:
    """0: x -> view;  1: view -> a;  2: x += a. The last follows the others by what it finds and has to find."""
    builder = Builder()
    x = builder.storage(8, Role.PARAMETER)
    builder.op([x], [view := builder.view(x, 8)])
    a = builder.storage(8, birth=1)
    builder.op([view], [a])
    builder.op([x, a], mutated=(0,))
    stated = instance(builder.graph(), "cpu", [1, 1, 1])
    assert [op.after for op in stated.ops] == [(), (0,), ()]


@given(st.integers(0, 10**6), st.sampled_from((0.7, 0.9)))
def test_a_plan_of_recomputation_has_the_peak_and_time_of_its_replay(seed: int, ratio: float) -> None:
    recording = random_recording(random.Random(seed), 30)
    simulator = Simulator(recording)
    free = simulator.run("dtr-eq", compiled=False)
    found = simulator.run("dtr-eq", int(free.peak_bytes * ratio), compiled=False)
    assume(found.status == "ok")
    plan = found.plan()
    never = {i for i, residence in enumerate(residences(recording.graph)) if residence is Residence.NEVER}
    assume(not any(isinstance(step, Evict) and step.storage in never for step in plan.lanes[0].steps))
    line = replay(recording.graph, plan, durations_ns=recording.durations_ns)
    stated = instance(recording.graph, plan.lanes[0].device, recording.durations_ns)
    storages = tuple(replace(storage, pinned=False) for storage in stated.storages)  # planners keep what policies evict
    played = play(replace(stated, storages=storages), plan.lanes[0].steps)
    assert (played.makespan_ns, played.stall_ns) == (line.makespan_ns, 0)
    assert played.peak_bytes == line.peak_bytes
