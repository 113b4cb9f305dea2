"""What holds of every run by our rules: memory, time, the Plan it amounts to, and that both engines agree."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensortide.errors import GraphError, PlanError
from tensortide.graph import Graph, Role, validate
from tensortide.importers.dtrlog.read import read_recording
from tensortide.plans import load_plan, save_plan
from tensortide.plans.remat.policies import POLICIES as TABLE
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.replays.remat import Deallocation, Simulation, Simulator
from tensortide.studies.remat.linear import linear_network
from tensortide.timelines import timeline
from tests.graphs import Builder, graphs, stored
from tests.importers.dtrlog.logs import logs
from tests.replays.remat.steps import Told, recordings, training_log

EVERY = [*(name for name, row in TABLE.items() if not row.seeded), "random:3"]
POLICIES = st.sampled_from(EVERY)
FREE = st.sampled_from((0.0, 0.3, 0.6))
"""Shares of ops that take no time."""
COMPILED: tuple[Deallocation, ...] = ("eager", "none", "ignore")
DEALLOCATIONS = st.sampled_from(get_args(Deallocation))
RATIOS = st.floats(0.2, 1)


def facts(run: Simulation) -> tuple[object, ...]:
    """All that two runs that are the same have in common, event for event."""
    out = run
    figures = (out.status, out.clock_ns, out.remat_ns, out.peak_bytes, out.final_bytes, out.evaluations, out.shortage)
    return (*figures, list(map(int, out.kinds)), list(map(int, out.indexes)), run.eviction_hash)


def assert_run_adds_up(run: Simulation) -> None:
    """Whatever has to hold of ``run``, looked at from outside."""
    told = Told(run)
    assert (told.clock, told.memory, told.peak) == (run.clock_ns, run.final_bytes, run.peak_bytes)
    assert run.budget_bytes is None or run.peak_bytes <= run.budget_bytes
    assert (told.ran, told.again) == (run.counts[0], run.recomputations)
    if run.status != "ok":
        assert (run.shortage is not None) == (run.status == "oom")
        with pytest.raises(PlanError, match="is no plan"):
            run.plan()
        return
    assert run.clock_ns == run.model_ns + run.remat_ns + int(not run.rules.collect)
    line = run.timeline()
    validate(line.graph)
    assert line.peak_bytes == run.peak_bytes
    assert line.figures.evictions == run.evictions
    assert len(line.graph) == len(run.schedule.graph) + run.recomputations


def assert_engines_agree(
    recording: Recording, policy: str, deallocation: Deallocation, ratio: float, workspace: bool = True
) -> None:
    """Both engines play ``recording`` under a budget, and all that has to hold does."""
    sim = Simulator(recording, deallocation=deallocation, workspace=workspace)
    budget = int(sim.baseline_bytes * ratio)
    run = sim.run(policy, budget, overhead_limit=20, compiled=False)
    assert_run_adds_up(run)
    if deallocation != "banish":
        assert facts(sim.run(policy, budget, overhead_limit=20, compiled=True)) == facts(run)
        assert facts(sim.run(policy, budget, overhead_limit=20, exhaustive=True)) == facts(run)


def assert_unlimited_is_the_step(recording: Recording, workspace: bool = True) -> None:
    """Without a budget a run is the step as it was recorded."""
    sim = Simulator(recording, workspace=workspace)
    run = sim.run("dtr-eq")
    line = timeline(recording.graph, device=sim.schedule.device, workspace=workspace)
    assert (run.status, run.overhead, run.remat_ns) == ("ok", 1, 0)
    assert run.evaluations == run.recomputations == 0
    assert (run.peak_bytes, run.final_bytes) == (line.peak_bytes, int(line.before[-1]))
    assert sim.baseline_bytes == run.peak_bytes
    assert_run_adds_up(run)


def read(text: str, folder: Path, **how: bool) -> Recording:
    path = folder / "some.jsonl"
    path.write_text(text)
    return read_recording(path, **how)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@given(
    recording=recordings() | recordings(devices=("cpu", "meta")),
    policy=POLICIES,
    deallocation=DEALLOCATIONS,
    ratio=RATIOS,
)
def test_random_steps(recording: Recording, policy: str, deallocation: Deallocation, ratio: float) -> None:
    assert_unlimited_is_the_step(recording)
    assert_engines_agree(recording, policy, deallocation, ratio)


@given(graph=graphs(devices=("cpu", "meta")), policy=POLICIES, deallocation=DEALLOCATIONS, ratio=RATIOS)
def test_random_graphs(graph: Graph, policy: str, deallocation: Deallocation, ratio: float) -> None:
    assume(len(graph))
    recording = recorded(graph, range(len(graph)))
    assert_unlimited_is_the_step(recording)
    assert_engines_agree(recording, policy, deallocation, ratio)


@given(text=logs(), policy=POLICIES, deallocation=DEALLOCATIONS, ratio=RATIOS)
def test_random_logs(folder: Path, text: str, policy: str, deallocation: Deallocation, ratio: float) -> None:
    recording = read(text, folder)
    assert_unlimited_is_the_step(recording)
    assert_engines_agree(recording, policy, deallocation, ratio)


@given(
    chance=st.randoms(use_true_random=False),
    ops=st.integers(1, 50),
    free=FREE,
    policy=POLICIES,
    deallocation=DEALLOCATIONS,
    ratio=RATIOS,
)
def test_random_training_logs(
    folder: Path, chance: random.Random, ops: int, free: float, policy: str, deallocation: Deallocation, ratio: float
) -> None:
    recording = read(training_log(chance, ops, free=free), folder)
    assert_unlimited_is_the_step(recording)
    assert_engines_agree(recording, policy, deallocation, ratio)


@given(
    chance=st.randoms(use_true_random=False),
    ops=st.integers(1, 40),
    free=FREE,
    policy=POLICIES,
    deallocation=st.sampled_from(COMPILED),
    ratio=RATIOS,
)
def test_random_logs_by_the_rules_of_the_original(
    folder: Path, chance: random.Random, ops: int, free: float, policy: str, deallocation: Deallocation, ratio: float
) -> None:
    recording = read(training_log(chance, ops, free=free), folder, copy_on_write=True)
    sim = Simulator(recording, compat=True, deallocation=deallocation)
    try:
        budget = int(sim.baseline_bytes * ratio)
    except GraphError:  # a storage is used after its last release: the original would not end
        assume(False)
    run = sim.run(policy, budget, overhead_limit=20, compiled=False)
    assert_run_adds_up(run)
    assert facts(sim.run(policy, budget, overhead_limit=20, compiled=True)) == facts(run)


def test_a_use_after_the_last_release_is_an_error_and_no_endless_loop(folder: Path) -> None:
    chance = random.Random(1693)
    recording = read(training_log(chance, chance.randint(1, 30), free=0), folder, copy_on_write=True)
    with pytest.raises(GraphError, match="after its last release"):
        _ = Simulator(recording, compat=True).baseline_bytes


@pytest.mark.parametrize(("seed", "compat"), [(44, False), (5, True), (44, True)])
def test_both_engines_agree_by_every_policy_and_deallocation(folder: Path, seed: int, compat: bool) -> None:
    """Logs with ops that take no time, storages without bytes, tuples and mutation. In compat mode the classes of some
    come to be worth less than nothing (seeds that differed when the search stopped at the first cost of 0)."""
    chance = random.Random(seed)
    ops, in_place, free = chance.randint(5, 60), chance.choice((0, 0.2, 0.5)), chance.choice((0, 0.3, 0.6))
    recording = read(training_log(chance, ops, in_place, free=free), folder, copy_on_write=compat)
    for first, deallocation in enumerate(COMPILED):
        sim = Simulator(recording, compat=compat, deallocation=deallocation)
        for policy, ratio in zip(EVERY, itertools.islice(itertools.cycle((0.7, 0.3)), first, None), strict=False):
            budget = int(sim.baseline_bytes * ratio)
            run = facts(sim.run(policy, budget, overhead_limit=20, compiled=False))
            assert facts(sim.run(policy, budget, overhead_limit=20, compiled=True)) == run
            assert facts(sim.run(policy, budget, overhead_limit=20, exhaustive=True)) == run


@given(recording=recordings(), policy=POLICIES, deallocation=DEALLOCATIONS, spare=st.integers(0, 1000))
def test_with_room_for_everything_nothing_is_evicted_by_choice(
    recording: Recording, policy: str, deallocation: Deallocation, spare: int
) -> None:
    sim = Simulator(recording, deallocation=deallocation)
    run = sim.run(policy, sim.unlimited_bytes + spare)
    assert (run.status, run.evaluations, run.overhead) == ("ok", 0, 1)


@given(
    recording=recordings(most=30),
    chance=st.randoms(use_true_random=False),
    policy=POLICIES,
    deallocation=st.sampled_from(COMPILED),
    ratio=RATIOS,
    over=st.sampled_from((0, 0, 50, 500)),
)
def test_workspace_that_cannot_fit_goes_over_the_budget(
    recording: Recording, chance: random.Random, policy: str, deallocation: Deallocation, ratio: float, over: int
) -> None:
    peak = Simulator(recording, deallocation=deallocation).baseline_bytes
    budget = int(peak * ratio)
    sim = Simulator(recording, deallocation=deallocation)
    extra = [chance.randint(0, peak) // chance.choice((1, 8, 64)) for _ in sim.schedule.cost_ns]
    sim.schedule = dataclasses.replace(sim.schedule, extra_bytes=np.array(extra, np.int64))
    run = sim.run(policy, budget, overhead_limit=20, compiled=False, overrun_bytes=over)
    assert facts(sim.run(policy, budget, overhead_limit=20, compiled=True, overrun_bytes=over)) == facts(run)
    assert run.peak_bytes <= budget + max(over, *extra)
    if run.status == "ok" and run.peak_bytes <= budget and not over:  # then it never had to
        assert facts(sim.run(policy, budget, overhead_limit=20)) == facts(run)


@given(recording=recordings(most=30))
def test_a_plan_is_read_back_as_it_was_saved(recording: Recording, folder: Path) -> None:
    sim = Simulator(recording)
    run = sim.run("dtr-eq", int(sim.baseline_bytes * 0.9))
    if run.status == "ok":
        assert load_plan(save_plan(run.plan(), folder / "plan.json")) == run.plan()


@pytest.fixture(scope="module", params=["mlp", "conv", "hf_gpt2"])
def captured(request: pytest.FixtureRequest) -> Recording:
    graph = stored(request.param)
    return recorded(graph, [1000 + i % 7 * 500 for i in range(len(graph))])


def test_captured_steps_without_a_budget(captured: Recording) -> None:
    assert_unlimited_is_the_step(captured)
    assert any(call.mutated for call in captured.graph.calls)


@pytest.mark.parametrize("deallocation", get_args(Deallocation))
def test_captured_steps_under_a_budget(captured: Recording, deallocation: Deallocation) -> None:
    sim = Simulator(captured, deallocation=deallocation)
    for policy in ("dtr-eq", "msps"):
        for ratio in (0.9, 0.7):
            run = sim.run(policy, int(sim.baseline_bytes * ratio), overhead_limit=3)
            assert_run_adds_up(run)
            if deallocation != "banish":
                again = sim.run(policy, int(sim.baseline_bytes * ratio), overhead_limit=3, compiled=False)
                assert facts(again) == facts(run)


def test_threads_share_nothing_that_they_write(captured: Recording) -> None:
    sim = Simulator(captured)
    cells = [(policy, int(sim.baseline_bytes * ratio / 20)) for policy in ("dtr-eq", "e") for ratio in range(12, 20)]
    alone = [facts(sim.run(*cell, overhead_limit=3)) for cell in cells]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda cell: facts(sim.run(*cell, overhead_limit=3)), cells * 4))
    assert together == alone * 4


def two_outputs() -> Builder:
    """0: x -> a, b;  1: b += 1;  2: a -> c;  3: -> big;  4: big -> d;  5: a, b, c -> e."""
    builder = Builder()
    x = builder.storage(1, Role.INPUT)
    a, b = builder.storage(10, birth=0, death=6), builder.storage(10, birth=0, death=6)
    c, big = builder.storage(1, birth=2, death=6), builder.storage(25, birth=3, death=5)
    d, e = builder.storage(1, birth=4, death=6), builder.storage(1, birth=5)
    builder.op([x], [a, b])
    builder.op([b], mutated=(0,))
    builder.op([a], [c])
    builder.op([], [big])
    builder.op([big], [d])
    builder.op([a, b, c, d], [e])
    return builder


@pytest.mark.parametrize("compiled", [False, True])
def test_a_second_copy_of_what_was_overwritten_is_dropped(compiled: bool) -> None:
    recording = recorded(two_outputs().graph(), [1, 1000, 1, 1, 1, 1])
    run = Simulator(recording).run("local", 40, compiled=compiled)
    assert (run.status, run.recomputations) == ("ok", 1)
    assert_run_adds_up(run)


def test_what_is_used_after_its_release_is_held_until_then(folder: Path) -> None:
    lines = """
        {"INSTRUCTION": "CONSTANT", "NAME": "x"}
        {"INSTRUCTION": "MEMORY", "NAME": "x", "MEMORY": 1}
        {"INSTRUCTION": "CALL", "NAME": "f", "ARGS": ["x"], "RESULT": ["a"], "TIME": 1}
        {"INSTRUCTION": "MEMORY", "NAME": "a", "MEMORY": 4}
        {"INSTRUCTION": "ALIAS", "NAME": "a", "ALIAS": -1}
        {"INSTRUCTION": "RELEASE", "NAME": "a"}
        {"INSTRUCTION": "CALL", "NAME": "f", "ARGS": ["a"], "RESULT": ["b"], "TIME": 1}
        {"INSTRUCTION": "MEMORY", "NAME": "b", "MEMORY": 4}
        {"INSTRUCTION": "ALIAS", "NAME": "b", "ALIAS": -1}
    """
    recording = read("\n".join(line.strip() for line in lines.strip().splitlines()), folder)
    assert_unlimited_is_the_step(recording)
    assert_engines_agree(recording, "lru", "eager", 1)


def normalised(birth: int | None, death: int | None, readers: bool) -> Graph:
    """Two normalisations with the same statistics, which come or go within the step; an op reads them in between."""
    from tensortide.graph import TENSOR, Call, Op, Phase

    builder = Builder()
    x = builder.storage(10, Role.INPUT)
    mean = builder.storage(3, Role.BUFFER, birth, death)
    if birth is not None:
        builder.op([], [mean])
    slots = (("input", TENSOR), ("running_mean", TENSOR), ("training", True))
    call = Call("aten.native_batch_norm.default", slots, 3, (1,), (TENSOR,), ())
    number = builder.calls.setdefault(call, len(builder.calls))
    made = []
    for _ in range(2):
        at = len(builder.ops)
        made.append(builder.storage(20, Role.ACTIVATION, at, 8))
        builder.ops.append(Op(number, (x, mean), (made[-1],), Phase.FORWARD, -1))
        read = builder.storage(20, Role.ACTIVATION, at + 1, 8)
        builder.op([mean] if readers else [x], [read])
        made.append(read)
    while len(builder.ops) < 7:
        builder.op([], [builder.storage(30, Role.TEMPORARY, len(builder.ops), len(builder.ops) + 1)])
    builder.op(made, [builder.storage(1, birth=7)])
    return builder.graph()


@pytest.mark.parametrize("readers", [False, True])
@pytest.mark.parametrize(("birth", "death"), [(None, None), (None, 5), (0, 5), (0, None)])
def test_statistics_that_come_and_go(birth: int | None, death: int | None, readers: bool) -> None:
    recording = recorded(normalised(birth, death, readers), [1] * 8)
    assert_unlimited_is_the_step(recording)
    for ratio in (0.8, 0.9, 0.95, 1):
        assert_engines_agree(recording, "lru", "eager", ratio)


def test_the_counts_of_a_long_trace_take_no_time() -> None:
    """Each comparison of a NumPy scalar with a member of an enumeration takes microseconds, and swallows Ctrl-C."""
    run = Simulator(linear_network(30)).run("lru", 20)
    times = 100_000 // len(run.kinds)
    long = dataclasses.replace(run, kinds=np.tile(np.asarray(run.kinds), times))
    began = time.process_time()
    assert long.counts == tuple(times * count for count in run.counts)
    assert time.process_time() - began < 0.2
