"""Steps whose learning rate follows a schedule: one process holds the numbers that the Graph of a step holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import tensortide
from tensortide.parallelism import Degrees
from tensortide.run.placed.divided import DividedWorkload, run_divided
from tensortide.run.placed.held_numbers import HeldNumbers
from tensortide.run.placed.placed_run import run_placed
from tensortide.run.placed.seeded import SeededWorkload
from tests.run.placed.workloads import placement

TARGET = f"{__file__}:warmed_up"


def warmed_up() -> Callable[[], torch.Tensor]:
    """A step of two layers whose learning rate grows by half a unit with every step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: (count + 1) / 2)
    x = torch.randn(4, 4)

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        result: torch.Tensor = loss.detach()
        return result

    return step


def test_a_number_stays_that_of_the_first_call_and_is_named() -> None:
    weight, rates = torch.zeros(3), iter([0.5, 0.25, 0.125])
    held = HeldNumbers(lambda: weight.add_(torch.ones(3), alpha=next(rates)))
    for _ in range(3):
        held()
    assert weight.tolist() == [1.5] * 3
    assert held.changed == {"aten.add_.Tensor": (0.5, 0.25)}


def test_sizes_and_other_ops_are_left_as_they_are() -> None:
    sizes = iter([2, 3])
    held = HeldNumbers(lambda: torch.ones(6).narrow(0, 0, next(sizes)))
    assert [len(held()), len(held())] == [2, 3]
    added = iter([False, True])
    other = HeldNumbers(lambda: torch.ones(2).add(1.0).mul(4.0) if next(added) else torch.ones(2).mul(2.0))
    other()
    assert other().tolist() == [8.0, 8.0]
    assert not held.changed
    assert not other.changed


@pytest.mark.slow
def test_a_placed_run_of_a_step_with_a_schedule_is_bit_identical() -> None:
    found = placement(tensortide.capture(TARGET), 2)
    ran = run_placed(SeededWorkload(TARGET, {}, 3), found)
    assert ran.verified
    assert [*ran.alone.held.values()] == [(-1.0, -1.5)]


@pytest.mark.slow
def test_a_divided_run_of_a_step_with_a_schedule_has_the_losses_of_one_process() -> None:
    ran = run_divided(DividedWorkload(TARGET, {}, degrees=Degrees(data=2), steps=3))
    assert ran.losses == pytest.approx(ran.alone, rel=1e-5)
    assert [*ran.held.values()] == [(-1.0, -1.5)]
