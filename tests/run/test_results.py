"""Results of budgeted steps beside those of ordinary ones: equal, different, or not to be compared, and why."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.run.budget import Budget, current
from tensortide.run.measure import WARM, measured
from tensortide.run.program import Program
from tensortide.run.results import Agreement, Generators, results_of

BUDGET = 2_000_000


def deep() -> Callable[[], Any]:
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Dropout(0.1), nn.Tanh())])
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(512, 64)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x * random.random()).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def agreement(workload: Callable[..., Any], budget: int = BUDGET, steps: int = 1) -> Agreement:
    found = measured(Program("w", workload, {}), Budget(budget), steps).agreement
    assert found is not None
    return found


def test_evictions_change_no_result() -> None:
    found = measured(Program("w", deep, {}), Budget(BUDGET), 2)
    assert found.step.recomputations > 0
    assert found.agreement is not None
    assert (found.agreement.equal, found.agreement.first_difference, found.agreement.reason) == (True, "", "")
    assert found.agreement.compared_steps == WARM + 2
    # the loss, the input, and of each of 16 parameters itself, its gradient, both averages and the count of steps
    assert found.agreement.compared.compared_tensors == 2 + 16 * 5


def test_without_ordinary_steps_nothing_is_compared() -> None:
    assert measured(Program("w", deep, {}), Budget(BUDGET), 1, plain=False).agreement is None


def test_the_comparison_takes_no_memory_of_the_budget() -> None:
    before = [measured(Program("w", deep, {}), Budget(BUDGET), 1, plain=plain).before_bytes for plain in (True, False)]
    assert before[0] == before[1]


def strays() -> Callable[[], Any]:
    x = torch.ones(8)

    def step() -> float:
        try:
            current()
        except Exception:  # noqa: BLE001 there is no budget
            x.mul_(3)
        else:
            x.mul_(2)
        return 1.0

    return step


def test_a_difference_is_named() -> None:
    found = agreement(strays)
    assert (found.equal, found.first_difference, found.reason) == (False, "x", "")


def other_returned() -> Callable[[], Any]:
    x = torch.ones(8)

    def step() -> dict[str, Any]:
        try:
            current()
        except Exception:  # noqa: BLE001 there is no budget
            return {"loss": x.sum(), "accuracy": 0.5}
        return {"loss": x.sum(), "accuracy": 0.25}

    return step


def test_what_a_step_returns_is_compared() -> None:
    assert agreement(other_returned).first_difference == "the returned value.accuracy"


KEPT = nn.Linear(4, 4)


def kept_outside() -> Callable[[], Any]:
    def step() -> None:
        KEPT(torch.ones(2, 4)).sum().backward()
        with torch.no_grad():
            KEPT.weight.add_(1)

    return step


COUNT = [0]


def counts() -> Callable[[], Any]:
    x = torch.zeros(3)

    def step() -> torch.Tensor:
        COUNT[0] += 1
        return x + COUNT[0]

    return step


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (kept_outside, "built a second time, it starts with another value of KEPT.weight"),
        (counts, "ordinary steps do not repeat either; the first difference is the returned value"),
    ],
)
def test_what_does_not_start_over_is_not_compared(workload: Callable[..., Any], reason: str) -> None:
    found = agreement(workload)
    assert (found.equal, found.reason) == (None, reason)


def test_results_see_every_bit_and_kind() -> None:
    x = torch.tensor([1.0, float("nan")])
    state: dict[str, Any] = {"x": x, "list": [x.clone(), (x.clone(),)], "same": x}

    def step() -> None:
        state.clear()

    before = results_of(step)
    assert before.compared_tensors == 3
    assert before.difference(results_of(step)) == ""
    state["list"][1][0][0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert before.difference(results_of(step)) == "state.list[1][0]"
    state["list"][1][0][0] = 1.0
    state["x"] = x.view(torch.int32)
    assert before.difference(results_of(step)) == "state.x"


def test_generators_are_part_of_the_results() -> None:
    was, before = Generators.now(), results_of(len)
    torch.rand(1)
    assert before.difference(results_of(len)) == "the random generators"
    was.rewind()
    assert before.difference(results_of(len)) == ""
    random.random()
    assert before.difference(results_of(len)) == "the random generators"
    was.rewind()


def test_a_sparse_tensor_is_left_out_and_counted() -> None:
    sparse = torch.eye(3).to_sparse()
    found = results_of(lambda: sparse)
    assert (found.compared_tensors, found.left_out) == (0, 1)
