"""A Plan followed live, and a live step told as a Plan and a Timeline."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import PlanError, PlanLeft, RunError
from tensortide.graph import save
from tensortide.memory.accumulate import partial_sums
from tensortide.plans import Compute, Evict, Lane, Plan, in_order, save_plan
from tensortide.plans.model import Step
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulator
from tensortide.run.budget import Budget
from tensortide.run.engine import LiveEngine
from tensortide.run.follow import Follower
from tensortide.run.measure import compared
from tensortide.run.traced import WATCHED
from tensortide.timelines import timeline
from tensortide.timelines.events import Kind
from tests.marks import some_slow
from tests.run.follow_steps import (
    Build,
    between,
    built,
    convolutions,
    gpt2,
    graph_of,
    loop,
    room,
    same_as_without,
    tower,
    traced,
)
from tests.run.same import UNLIMITED, counting


@pytest.mark.parametrize(
    ("build", "share"),
    [(tower, 0.6), pytest.param(gpt2, 0.5, marks=pytest.mark.slow)],
    ids=["tower", "gpt2"],
)
def test_a_step_is_run_again_as_it_was(build: Build, share: float) -> None:
    """What a policy did, told as a plan, is a plan of the step; followed, the same is done in every step."""
    step = built(build)
    graph = graph_of(build)
    limit = room(build, share)
    free = traced(step, limit, graph)
    told = free.steps[-1]
    assert told.figures.recomputations > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        budget = traced(step, limit, graph, policy=told.plan())
    assert (budget.usage.followed_steps, budget.usage.left_steps) == (3, 0)
    assert {len(budget.steps)} <= {WATCHED, 3}  # without a compiled core all are watched
    assert all(between(s.plan()) == between(told.plan()) for s in budget.steps)
    assert all(s.peak_bytes == told.peak_bytes for s in budget.steps)
    assert budget.usage.recomputations == 3 * told.figures.recomputations
    assert budget.usage.peak_bytes <= limit
    assert same_as_without(build, step, 7)


def test_what_a_plan_computes_early_is_computed_early() -> None:
    """One op sooner than anything asks for it."""
    step = built(tower)
    graph = graph_of(tower)
    told = traced(step, room(tower, 0.6), graph).steps[-1]
    plan = told.plan()
    steps = list(plan.lanes[0].steps)
    computed = [(at, s.op) for at, s in enumerate(steps) if isinstance(s, Compute)]
    first = {op: at for at, op in reversed(computed)}
    number = next(n for n, (at, op) in enumerate(computed) if first[op] != at)
    steps.insert(computed[number - 1][0], steps.pop(computed[number][0]))
    early = Plan(plan.graph, (Lane(plan.lanes[0].device, tuple(steps)),))
    assert between(early) != between(plan)
    live = traced(built(tower), UNLIMITED, told.recorded, policy=early)
    assert (live.usage.followed_steps, live.usage.left_steps) == (3, 0)
    assert between(live.steps[-1].plan()) == between(early)


def test_the_simulators_plan_is_followed(tmp_path: Path) -> None:
    elsewhere = [torch.ones(64, 64)]  # the program's, and no part of the step: the simulator knows nothing of it
    step = built(tower)
    graph = graph_of(tower)
    limit = room(tower, 0.6)
    with Budget(UNLIMITED) as probe:
        unknown = probe.resident_bytes - timeline(graph, workspace=False).start_bytes
    assert unknown >= elsewhere[0].nbytes
    simulator = Simulator(recorded(graph, [1000] * len(graph)), workspace=False)
    plan = simulator.run("dtr", limit - unknown).plan()
    save_plan(plan, tmp_path / "plan.json")
    save(graph, tmp_path / "step.tide")
    step = built(tower)
    plan_file, step_file = str(tmp_path / "plan.json"), tmp_path / "step.tide"
    with tensortide.budget(limit, policy=plan_file, graph=step_file, workspace=False) as budget:  # as the plan is made
        for _ in range(2):
            step()
            torch.ones(64, 64).sum()  # what happens between steps is no part of them
    assert budget.usage.followed_steps == 2
    assert between(budget.steps[-1].plan()) == between(plan)
    assert same_as_without(tower, step, 3)


def test_resident_bytes_are_those_of_the_plan() -> None:
    for build, limit in ((tower, UNLIMITED), (tower, room(tower, 0.6)), (loop, room(loop, 0.6))):
        told = traced(built(build), limit, graph_of(build)).steps[-1]
        played = told.replayed()
        elsewhere = told.before_bytes - timeline(told.recorded, workspace=False).start_bytes
        assert (told.resident - elsewhere).tolist() == played.resident.tolist()
        assert told.is_recompute.tolist() == [op.recompute for op in played.graph.ops]


def test_one_op_runs_after_the_other() -> None:
    step = built(tower)
    with Budget(room(tower, 0.6), graph=graph_of(tower)) as budget:
        step()
    told = budget.steps[-1]
    ends = list(zip(told.run_start_ns.tolist(), (told.run_start_ns + told.run_ns).tolist(), strict=True))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    assert told.figures.base_ns == sum(told.durations_ns) == budget.usage.base_ns
    assert 0 < told.figures.recompute_ns <= budget.usage.recompute_ns


@pytest.mark.parametrize("build", some_slow([tower, loop], [tower]))
def test_prediction_and_measurement_in_one_table(build: Build) -> None:
    step = built(build)
    graph = graph_of(build)
    limit = room(build, 0.6)
    by_policy = traced(step, limit, graph)
    plan = by_policy.steps[-1].plan()
    for budget in (by_policy, traced(step, limit, graph, policy=plan)):
        both = compared(budget, budget.steps[-2:])
        predicted, measured = both.predicted, both.measured
        assert both.status == "ok"
        assert predicted.peak_bytes == measured.peak_bytes <= limit
        assert predicted.evictions == measured.evictions
        assert predicted.recomputations == measured.recomputations > 0
        assert predicted.base_ns == measured.base_ns
        assert both.times is not None
        for figures, times in zip((predicted, measured), both.times, strict=True):
            whole, kinds = figures.base_ns + figures.recompute_ns, len(times.children)
            assert times.whole.ns == pytest.approx(whole, abs=kinds + 2)
    with pytest.raises(RunError, match="nothing can be compared"):
        compared(by_policy, [])


@pytest.mark.parametrize("share", [0.8, 0.5])
def test_workspace_is_part_of_both_columns(share: float) -> None:
    """Also where it goes over the limit, because nothing that can be evicted is left."""
    step = built(convolutions)
    limit = room(convolutions, share)
    by_policy = traced(step, limit, graph_of(convolutions))
    both = compared(by_policy, by_policy.steps[-2:])
    predicted, measured = both.predicted, both.measured
    assert both.status == "ok"
    assert predicted.peak_bytes == measured.peak_bytes == by_policy.usage.peak_bytes
    assert (measured.peak_bytes > limit) == (share < 0.7)
    assert predicted.evictions == measured.evictions
    assert predicted.recomputations == measured.recomputations > 0
    told = by_policy.steps[-1]
    assert max(told.replayed().workspace) > 0
    elsewhere = told.before_bytes - timeline(told.recorded).start_bytes
    assert (told.resident - elsewhere).tolist() == told.replayed().resident.tolist()


def test_a_sum_of_gradients_is_never_computed_again() -> None:
    limit = room(loop, 0.6)
    told = traced(built(loop), limit, graph_of(loop)).steps[-1]
    sums = partial_sums(told.recorded)
    again = told.run_op[told.is_recompute].tolist()
    assert len(sums) == 23
    assert 0 < len(again) < len(told.recorded)
    assert not sums.intersection(again)


@pytest.mark.filterwarnings("ignore::tensortide.errors.PlanLeft")
@pytest.mark.parametrize("keep", [None, lambda gradient: gradient, torch.Tensor.detach, torch.Tensor.untyped_storage])
def test_a_gradient_that_a_hook_keeps_is_not_summed_into(keep: Callable[[torch.Tensor], Any] | None) -> None:
    x, kept = torch.linspace(0, 1, 64).requires_grad_(), list[Any]()

    def step(*, hooked: bool = keep is not None) -> None:
        hidden = x.exp()
        one, two = hidden.sin(), hidden.cos()  # the gradient of the second is the first to arrive
        if hooked and keep is not None and two.grad_fn is not None:
            two.grad_fn.register_hook(lambda made, _: kept.append(keep(made[0])))
        (one + two).sum().backward()
        x.grad = None

    graph = tensortide.capture(lambda: step(hooked=False))
    assert "aten.add_.Tensor" in [graph.calls[op.call].op for op in graph.ops]
    usage = traced(step, UNLIMITED, graph, policy=in_order(graph, range(len(graph)), "cpu")).usage
    want = -x.detach().exp().sin()
    assert [*map(torch.Tensor.tolist, map(torch.empty(0).set_, kept))] == [want.tolist()] * len(kept)
    assert (usage.followed_steps, usage.left_steps, len(kept)) == ((3, 0, 0) if keep is None else (0, 3, 3))


def test_a_plan_recomputes_from_what_the_program_has_released() -> None:
    weight = torch.linspace(0, 1, 64).requires_grad_()

    def step() -> None:
        made = (weight + 1).exp().sin()  # the sum is released once its exponential is there
        for _ in range(8):
            made = made * 2
        made.sum().backward()
        weight.grad = None

    graph = tensortide.capture(step)
    names = [op.name for op in graph]
    exp, sin, cos = (names.index(f"aten.{name}.default") for name in ("exp", "sin", "cos"))
    plan = in_order(graph, range(len(graph)), "cpu")
    steps: list[Step] = [Compute(op) for op in range(len(graph))]
    steps[cos:cos] = [Compute(exp)]
    steps[sin + 1 : sin + 1] = [Evict(graph.index.allocated[exp][0])]
    usage = traced(step, UNLIMITED, graph, policy=Plan(plan.graph, (Lane("cpu", tuple(steps)),))).usage
    assert (usage.followed_steps, usage.recomputations) == (3, 3)


@pytest.mark.parametrize("share", [0.85, 0.8])
def test_gradients_of_parameters_stay_while_anything_else_can_go(share: float) -> None:
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    x = torch.randn(256, 64)
    evicted: list[Any] = []

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with Budget(1 << 60) as free:
        before = free.resident_bytes
        step()
    with Budget(before + int((free.usage.peak_bytes - before) * share), clock=counting()) as budget:
        runtime = budget.runtime
        assert runtime is not None
        engine = runtime.engine
        memories = engine.memories
        engine.listeners.append(lambda kind, index: evicted.append(memories[index]) if kind == Kind.EVICT else None)

        def gone(parameter: torch.Tensor) -> bool:
            return parameter.grad is not None and memories[runtime.storage(parameter.grad)] in evicted

        for _ in range(2):
            model(x).square().mean().backward()
            assert evicted
            assert not any(map(gone, model.parameters()))
            optimizer.step()
            optimizer.zero_grad()
            evicted.clear()


def test_another_program_is_told_once_and_keeps_its_results() -> None:
    build = tower
    step = built(build)
    graph = graph_of(build)
    limit = room(build, 0.6)
    plan = traced(step, limit, graph).steps[-1].plan()

    def other() -> Callable[[], Any]:
        ordinary = tower()
        held = dict(zip(ordinary.__code__.co_freevars, ordinary.__closure__ or (), strict=True))
        model, calls = held["model"].cell_contents, 0

        def step() -> Any:
            nonlocal calls
            calls += 1
            model[10] = nn.Sigmoid() if calls in (2, 3) else nn.Tanh()
            return ordinary()

        return step

    step = built(other)
    with pytest.warns(PlanLeft) as told:
        budget = traced(step, limit, graph, policy=plan)
    assert len(told) == 1
    assert "expects aten.tanh.default(float32[256, 64]), and aten.sigmoid.default" in str(told[0].message)
    assert "dtr-eq decides" in str(told[0].message)
    assert (budget.usage.followed_steps, budget.usage.left_steps) == (1, 2)
    assert budget.usage.peak_bytes <= limit
    assert same_as_without(other, step, 4)


def test_a_step_that_begins_otherwise_is_told_and_counted_and_evaluation_is_not() -> None:
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.randn(4, 16)

    def step(others: int = 0) -> None:
        scores = model[:2](x)
        for _ in range(others):
            scores = scores + 1
        model[2:](scores).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    graph = tensortide.capture(step)
    with Budget(UNLIMITED, in_order(graph, range(len(graph)), "cpu"), graph=graph) as budget:
        step()
        with torch.no_grad():
            for _ in range(20):
                model(x)
        step()
        assert (budget.usage.followed_steps, budget.usage.left_steps) == (2, 0)
        with pytest.warns(PlanLeft, match="at op 0 of .* a step that begins otherwise came"):
            step(others=1)
        step(others=2)
        step()
        assert (budget.usage.followed_steps, budget.usage.left_steps) == (3, 2)


def test_the_limit_holds_where_the_plan_does_not() -> None:
    build = tower
    step = built(build)
    graph = graph_of(build)
    limit = room(build, 0.6)
    with Budget(limit, in_order(graph, range(len(graph)), "cpu"), graph=graph) as budget:
        step()
    assert budget.usage.evictions > 0
    assert budget.usage.peak_bytes <= limit
    assert same_as_without(tower, step, 2)


def test_what_is_no_plan_of_the_step_is_refused(tmp_path: Path) -> None:
    build = tower
    step = built(build)
    graph = graph_of(build)
    plan = in_order(graph, range(len(graph)), "cpu")
    with pytest.raises(RunError, match="give the step too"):
        Budget("1GiB", plan)
    with pytest.raises(PlanError, match="another graph"):
        Budget("1GiB", plan, graph=tensortide.capture(built(lambda: tower(3))))
    with pytest.raises(PlanError, match="cannot read"):
        Budget("1GiB", tmp_path / "none.json", graph=graph)
    views = [i for i in range(len(graph) - 1) if not set(graph.ops[i + 1].inputs) & set(graph.ops[i].outputs)]
    order = list(range(len(graph)))
    at = next(i for i in views if graph[i].name == graph[i + 1].name == "aten.t.default" or graph[i + 1].is_view)
    order[at], order[at + 1] = order[at + 1], order[at]
    with pytest.raises(PlanError, match="keeps its order"), Budget("1GiB", in_order(graph, order, "cpu"), graph=graph):
        step()


def test_other_ops_are_no_step() -> None:
    step = built(tower)
    assert traced(lambda: torch.ones(3), UNLIMITED, graph_of(tower)).steps == ()
    assert len(traced(step, UNLIMITED, graph_of(tower)).steps) == 3


@pytest.mark.filterwarnings("ignore::tensortide.errors.RunWarning")
def test_recomputation_that_a_plan_asks_for_waits_where_memory_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done when an op needs it, after more evictions."""
    graph, step = graph_of(tower), built(tower)
    limit = room(tower, 0.7)
    plan = traced(step, limit, graph).steps[-1].plan()
    execute, failures = LiveEngine.execute, [0]

    def failing(engine: LiveEngine, op: int, wanted: int) -> None:
        if sys._getframe(1).f_code is Follower._recompute.__code__ and failures[0] < 2:
            failures[0] += 1
            raise torch.OutOfMemoryError("out of memory. Tried to allocate 1.00 KiB.")
        execute(engine, op, wanted)

    monkeypatch.setattr(LiveEngine, "execute", failing)
    traced(step, limit, graph, policy=plan)
    assert failures == [2]
    assert same_as_without(tower, step, 7)
