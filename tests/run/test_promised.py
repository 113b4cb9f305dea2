"""What a plan promises of a step, kept by the live run that follows it."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import PlanLeft
from tensortide.memory.accumulate import sums_in_place
from tensortide.plans import Compute, Plan, in_order
from tensortide.replays.plan_actions import PlanActions, followed_peak_bytes
from tensortide.run.budget import Budget
from tensortide.run.traced import LiveStep
from tensortide.timelines import timeline
from tensortide.units import format_bytes
from tests.marks import some_slow
from tests.run.follow_steps import Build, built, example, loop, same_as_without, traced
from tests.run.kinds import KINDS, checkpointed, recurrent, two_players
from tests.run.layers import LAYERS, WIDTH
from tests.run.same import UNLIMITED
from tests.run.training import CLASSES, OPTIMIZERS

PLAIN = (
    *("attention", "batch-norm", "convolution", "custom", "dropout", "functional", "group-norm", "gru", "hooked"),
    *("layer-norm", "lstm", "many-results", "residual", "views"),
)
"""Layers that do the same in every step."""
EXAMPLES = (
    *("bert", "char_lm", "densenet", "diffusion", "gpt2", "hf_gpt2", "inception_v3", "llama", "lstm", "mixtral"),
    *("resnet", "resnet18_cifar", "similarity_treelstm", "transformer", "treelstm", "unet", "unrolled_gan"),
    *("unrolled_rnn", "vit", "word_lm"),
)


def drawn(seed: int) -> Build:
    """A classifier of layers that ``seed`` draws, with branches whose gradients are summed."""
    dice = random.Random(seed)
    names = dice.sample(PLAIN, dice.randint(4, 8))
    kind = dice.choice(["sgd", "adam", "adam-foreach", "adamw-fused", "adagrad", "rmsprop"])  # every step does the same
    branches = [dice.random() < 0.5 for _ in names]
    batch = dice.choice([16, 64])

    def build() -> Callable[[], Any]:
        layers, head = nn.ModuleList([LAYERS[name]() for name in names]), nn.Linear(WIDTH, CLASSES)
        optimizer = OPTIMIZERS[kind]([*layers.parameters(), *head.parameters()])
        x, labels = torch.randn(batch, WIDTH), torch.randint(0, CLASSES, (batch,))

        def step() -> Any:
            state = x
            for layer, branch in zip(layers, branches, strict=True):
                state = state + layer(state) if branch else layer(state)
            scores = head(state)
            loss = nn.functional.cross_entropy(scores, labels)
            loss.backward()
            del state, scores
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    return build


def recomputed(plan: Plan) -> list[Counter[int]]:
    """The ops that ``plan`` runs again, before the first run of each op and after the last."""
    found, seen = [Counter[int]()], set()
    for step in plan.lanes[0].steps:
        if not isinstance(step, Compute):
            continue
        if step.op in seen:
            found[-1][step.op] += 1
        else:
            seen.add(step.op)
            found.append(Counter())
    return found


def held_bytes(live: LiveStep) -> int:
    """The most that is resident while an op runs for the first time, but for the workspace of its kernel."""
    first = (nbytes for nbytes, again in zip(live.resident, live.is_recompute, strict=True) if not again)
    return max(int(nbytes) - workspace for nbytes, workspace in zip(first, live.workspace, strict=True))


def assert_kept(build: Build, share: float, *, exactly: bool = True) -> int:
    """Plan a step for ``share`` of its peak and follow the plan, in the memory of an ordinary step and in what it took
    there: it recomputes what the plan says, but for what cannot be recomputed live, or not ``exactly``: nothing else;
    and it takes what is promised then. Returns how many ops the plan recomputes, -1 if there is none."""
    with Budget(UNLIMITED, workspace=False) as free:
        left = free.resident_bytes  # what earlier tests keep is no part of the step
    graph = tensortide.capture(built(build), real=True)
    least_bytes = int(timeline(graph).peak_bytes * share)
    planned = tensortide.plan(graph, least_bytes, durations_ns=[1000] * len(graph), effort=0.05, time_limit_s=5)
    if planned.plan is None:
        return -1
    step = built(build)
    ordinary = traced(step, UNLIMITED, graph).steps[-1]
    limit = ordinary.peak_bytes
    followed = recomputed(PlanActions(graph, planned.plan).plan)
    for _ in range(2):
        budget = traced(step, limit, graph, policy=planned.plan)
        assert (budget.usage.followed_steps, budget.usage.left_steps) == (3, 0)
        for live in budget.steps:
            pairs = zip(recomputed(live.plan()), followed, strict=True)
            assert all(did == said if exactly else did <= said for did, said in pairs)
        taken = max(live.peak_bytes for live in budget.steps)
        assert taken <= limit
        # what kernels take only while they run depends on the machine
        assert max(map(held_bytes, budget.steps)) - left <= 1.05 * followed_peak_bytes(graph, planned.plan)
        limit = taken
    assert same_as_without(build, step, 10)
    return sum(map(Counter.total, recomputed(planned.plan)))


def test_a_step_that_sums_gradients_recomputes_what_was_planned() -> None:
    assert assert_kept(functools.partial(loop, 8), 0.85) > 0


def waiting() -> Callable[[], Any]:
    """A step whose gradients wait through the next forward pass, in which nothing can recompute them."""
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.Tanh())))
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(64, 32)

    def step() -> Any:
        loss = model(x).square().mean()
        update.zero_grad()
        loss.backward()
        update.step()
        return loss.detach()

    return step


def overwriting() -> Callable[[], Any]:
    """A step whose states are read, and then overwritten: what was read cannot be recomputed in a run."""
    weight = nn.Parameter(torch.randn(8, 64))
    x = torch.randn(64, 64)

    def step() -> Any:
        weight.grad = None
        total = (x * weight[0]).sum()
        state = x * weight[1]
        for row in weight[2:]:
            read = state.clone()
            state.mul_(0.5).add_(1)
            total = total + (read * row).sigmoid().sum()
        total.backward()
        return total.detach()

    return step


@pytest.mark.parametrize(("build", "share"), some_slow([(waiting, 0.85), (overwriting, 0.8)], [(waiting, 0.85)]))
def test_a_run_that_follows_a_plan_fits_the_budget_with_what_the_program_cannot_evict(
    build: Build, share: float
) -> None:
    graph = tensortide.capture(built(build), real=True)
    limit = int(timeline(graph).peak_bytes * share)
    ask = functools.partial(tensortide.plan, graph, limit, durations_ns=[1000] * len(graph), effort=0.05)
    found, fastest = ask(), ask(followed=False)
    assert found.plan is not None
    assert fastest.plan is not None
    assert followed_peak_bytes(graph, fastest.plan) > limit >= followed_peak_bytes(graph, found.plan)
    assert found.unfollowed_ns == fastest.step_ns
    assert found.run_bytes == followed_peak_bytes(graph, found.plan)
    budget = traced(built(build), limit, graph, policy=found.plan)
    assert (budget.usage.followed_steps, budget.usage.left_steps) == (3, 0)
    assert max(live.peak_bytes for live in budget.steps) <= limit
    recomputations = [sum(live.is_recompute) for live in budget.steps]
    assert set(recomputations) == {sum(map(Counter.total, recomputed(found.plan)))}


def test_a_step_without_room_for_its_plan_says_why_and_is_followed_within_the_bytes_that_it_names() -> None:
    with Budget(UNLIMITED, workspace=False) as free:
        left = free.resident_bytes  # of earlier tests
    graph = tensortide.capture(built(waiting), real=True)
    peak = timeline(graph).peak_bytes
    ask = functools.partial(tensortide.plan, graph, int(peak * 0.85), durations_ns=[1000] * len(graph), effort=0.05)
    found, step = ask(followed=False), built(waiting)
    assert found.plan is not None
    assert found.run_bytes is not None
    assert found.run_bytes > found.budget_bytes
    usage = traced(step, found.budget_bytes, graph, policy=found.plan).usage
    assert (usage.followed_steps, usage.left_steps) == (0, 3)
    assert usage.run_bytes is not None
    for nbytes in (usage.run_bytes, found.budget_bytes):
        assert format_bytes(nbytes) in usage.unfollowed
    kernels = max(traced(step, UNLIMITED, graph).steps[-1].workspace)  # as measured: no rule has it
    assert found.run_bytes <= usage.run_bytes <= found.run_bytes + kernels + left
    enough = traced(step, usage.run_bytes, graph, policy=found.plan)
    assert (enough.usage.followed_steps, enough.usage.unfollowed, enough.usage.run_bytes) == (3, "", None)
    assert max(live.peak_bytes for live in enough.steps) <= usage.run_bytes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_drawn_steps_recompute_nothing_but_what_was_planned(seed: int) -> None:
    """Some of them overwrite what a gradient was made of: that is not recomputed live, whatever the plan says."""
    assert_kept(drawn(seed), random.Random(seed).choice((0.95, 0.85, 0.75)), exactly=False)


@pytest.mark.slow
@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__)
def test_steps_of_all_kinds_recompute_what_was_planned(build: Build) -> None:
    assert assert_kept(build, 0.9 if build in (recurrent, checkpointed) else 0.75) > 0


def test_gradients_that_wait_for_the_next_step_stay_if_their_sources_are_overwritten_before() -> None:
    """Gradients of the generator are made from the discriminator, which the next step updates before it drops them."""
    graph = tensortide.capture(built(two_players))
    plan = in_order(graph, range(len(graph)), "cpu")
    step = built(two_players)
    ordinary = traced(step, UNLIMITED, graph).steps[-1]
    budget = traced(step, UNLIMITED, graph, policy=plan)
    assert (budget.usage.followed_steps, budget.usage.recomputations) == (3, 0)
    unused = timeline(graph).peak_bytes - followed_peak_bytes(graph, plan)
    assert unused >= 0
    assert max(live.peak_bytes for live in budget.steps) == ordinary.peak_bytes - unused


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_recompute_what_was_planned(name: str) -> None:
    assert assert_kept(example(name), 0.85) > 0


def test_a_gradient_that_the_program_keeps_is_not_summed_into() -> None:
    """Nothing tells that a step keeps it but the references to it: what the step does is the same."""
    kept: list[torch.Tensor] = []
    keeping = False

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            found = gradient * 2
            if keeping:
                kept.append(found)
            return found

    weight = nn.Parameter(torch.randn(16, 16))

    def step() -> None:
        weight.grad = None
        middle = weight.exp().tanh().sin().cos().tanh().exp().sin()
        (middle.square().mean() + Doubled.apply(middle).mean()).backward()

    graph = tensortide.capture(step)
    assert sums_in_place(graph)
    with Budget(UNLIMITED, in_order(graph, range(len(graph)), "cpu"), graph=graph) as budget:
        step()
        keeping = True
        with pytest.warns(PlanLeft, match=r"expects aten\.add_\.Tensor"):
            step()
        keeping = False
        step()
    assert (budget.usage.followed_steps, budget.usage.left_steps) == (2, 1)
    (gradient,) = kept
    assert torch.equal(gradient, torch.full((16, 16), 2 / 256))
