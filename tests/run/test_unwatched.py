"""Ops of a followed step that the compiled core runs unwatched, and what the plan does between them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import PlanLeft
from tensortide.graph import Role
from tensortide.plans import Evict, Plan
from tensortide.replays.plan_actions import PlanActions
from tensortide.run.budget import Budget
from tensortide.run.core.build import library
from tensortide.run.step_match import StepMatch
from tests.run.follow_steps import built, graph_of, same_as_without, tower
from tests.run.same import UNLIMITED
from tests.run.test_plan_mishaps import parts
from tests.run.test_promised import recomputed


@functools.cache
def recomputing() -> Plan:
    """A plan of the tower for three quarters of its peak."""
    graph = graph_of(tower)
    plan = tensortide.plan(graph, "75%", durations_ns=[1000] * len(graph), effort=0.05).plan
    assert plan is not None
    return plan


def test_a_plan_leaves_most_ops_to_the_compiled_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third step on, with the evictions, recomputations and peak of the steps before."""
    watched = [0]
    around = StepMatch.around

    def counting(*args: Any) -> Any:
        watched[0] += 1
        return around(*args)

    monkeypatch.setattr(StepMatch, "around", counting)
    step, graph, plan = built(tower), graph_of(tower), recomputing()
    found = []
    with Budget(UNLIMITED, plan, graph=graph) as budget:
        for _ in range(5):
            budget.reset()
            watched[0] = 0
            step()
            usage = budget.usage
            found.append((usage.recomputations, usage.peak_bytes, watched[0]))
    assert (budget.usage.followed_steps, budget.usage.left_steps) == (5, 0)
    assert same_as_without(tower, step, 6)
    (again, peak, every), *_, last = found[1:]
    assert last[0] == again > 0
    assert last[1] == peak
    assert last[2] < every / 2 or library() is None


def test_the_step_after_one_that_was_given_up_is_followed() -> None:
    """The program's error comes where the compiled core runs alone, and so do the first ops of the next step."""

    def given_up(gradient: torch.Tensor) -> torch.Tensor:
        raise KeyError("none")

    step, graph, plan = built(tower), graph_of(tower), recomputing()
    with Budget(UNLIMITED, plan, graph=graph) as budget:
        for _ in range(3):
            step()
        model, _ = parts(step)
        hook = next(model.parameters()).register_hook(given_up)
        with pytest.raises(KeyError, match="none"):
            step()
        hook.remove()
        model.zero_grad()
        with pytest.warns(PlanLeft, match="the next one is followed again"):
            step()
        budget.reset()
        step()
    assert (budget.usage.followed_steps, budget.usage.left_steps) == (5, 1)


def heavy() -> Callable[[], Any]:
    """A step whose weights take more than what it computes."""
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())))
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(16, 64)

    def step() -> Any:
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def test_gradients_that_came_unwatched_are_evicted_and_made_again_from_what_is_kept() -> None:
    """Their sources were made from weights that are overwritten before: the plan keeps them."""
    step, graph = built(heavy), graph_of(heavy)
    plan = tensortide.plan(graph, "90%", durations_ns=[1000] * len(graph), effort=0.02).plan
    assert plan is not None
    gradients = {i for i, storage in enumerate(graph.storages) if storage.role is Role.GRADIENT}
    planned = PlanActions(graph, plan).plan
    again = recomputed(planned)
    assert any(isinstance(each, Evict) and each.storage in gradients for each in planned.lanes[0].steps)
    found = []
    with Budget(UNLIMITED, plan, graph=graph) as budget:
        for _ in range(4):
            budget.reset()
            step()
            found.append((budget.usage.recomputations, budget.usage.peak_bytes))
    assert found == [found[0]] * 4
    assert found[0][0] == sum(map(Counter.total, again)) > 0
    assert same_as_without(heavy, step, 5)
