"""Repetitions without a budget: the workload is built anew, and PyTorch's own ways really act on it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tensortide.recorder.changes import NotApplicable
from tensortide.run.budget import Budget
from tensortide.run.program import Program
from tensortide.run.repetitions import by_block, by_partitioner, ordinary, repetition, seed_all

STEPS = 2


class Block(nn.Module):
    """Two activations to save, and a count of the forward passes of all blocks."""

    forwards = 0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        Block.forwards += 1
        made: Tensor = self.second(torch.sigmoid(torch.tanh(self.first(x))))
        return x + made


built: list[nn.Module] = []


def blocks(count: int = 6, rows: int = 512, width: int = 16) -> Callable[[], Any]:
    model = nn.Sequential(*(Block(width) for _ in range(count)))
    built.append(model)
    optimizer, x = torch.optim.SGD(model.parameters(), 0.1), torch.randn(rows, width)

    def step() -> Tensor:
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


PROGRAM = Program("blocks", blocks, {})


def weights(way: Any, **keys: Any) -> tuple[Tensor, int, int]:
    """The weights after a repetition, its peak, and the forward passes of blocks."""
    built.clear()
    seed_all(3)
    Block.forwards = 0
    found = repetition(PROGRAM, "cpu", STEPS, way, **keys)
    assert len(found.times_ns) == STEPS
    assert len(built) == 1
    assert all(module.__dict__.get("forward") is None for module in built[0].modules())
    return torch.cat([p.detach().flatten() for p in built[0].parameters()]), found.peak_bytes, Block.forwards


def test_blocks_are_recomputed_with_less_memory_and_the_same_result() -> None:
    plain, peak, forwards = weights(ordinary)
    again, less, more = weights(by_block)
    assert torch.equal(plain, again)
    assert forwards == 6 * (2 + STEPS + 1)
    assert more == 2 * forwards
    assert less < 0.8 * peak


def test_the_peak_is_that_under_a_budget_that_is_never_reached() -> None:
    _, peak, _ = weights(ordinary)
    step = PROGRAM.build()
    for _ in range(2):
        step()
    built.clear()
    gc.collect()
    with Budget(1 << 40) as budget:
        step()
    assert budget.usage.peak_bytes == pytest.approx(peak, rel=0.02)


def test_a_step_without_repeated_modules_has_no_blocks() -> None:
    def single() -> Callable[[], Any]:
        model = nn.Linear(2, 2)
        return lambda: model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(NotApplicable, match="no module of the step is repeated"):
        repetition(Program("single", single, {}), "cpu", 1, by_block)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_partitioner_saves_less_with_a_smaller_setting() -> None:
    settings = torch._functorch.config.activation_memory_budget
    plain, peak, _ = weights(ordinary)
    every, most, _ = weights(by_partitioner(1.0), compiled=True)
    some, least, _ = weights(by_partitioner(0.5), compiled=True)
    assert torch.allclose(plain, every, atol=1e-5)
    assert torch.allclose(plain, some, atol=1e-5)
    assert least < 0.8 * most
    assert most < 1.3 * peak
    assert torch._functorch.config.activation_memory_budget == settings


def test_generators_are_seeded() -> None:
    seed_all(5)
    one = torch.rand(3)
    seed_all(5)
    assert torch.equal(one, torch.rand(3))
