"""A budget bounds what PyTorch's allocator hands out."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tensortide.plan.remat.policies import State
from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED, counting

KIB = 1 << 10
SMALL = 16 * KIB
"""What a budget does not count: numbers that kernels make on their way."""


def allocated_peak(events: Any) -> int:
    """Most bytes allocated at once since the profile began."""
    now = peak = 0
    for event in events:
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


class Deep(nn.Module):
    """Twenty layers, each of which keeps 64 KiB for its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def step(model: nn.Module, x: torch.Tensor) -> None:
    model(x).mean().backward()
    model.zero_grad()


@pytest.mark.parametrize("policy", ["dtr-eq", "lru"])
@pytest.mark.parametrize("extra", [UNLIMITED, 1 << 20, 800 * KIB])
def test_the_allocator_stays_within_the_budget(extra: int, policy: str) -> None:
    model, x = Deep(), torch.randn(1024, 16)
    step(model, x)
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    with Budget(min(UNLIMITED, there + extra), policy, clock=counting()) as budget:
        step(model, x)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            step(model, x)
        usage = budget.usage
    assert trace.profiler is not None
    measured = allocated_peak(trace.profiler.kineto_results.events())
    if extra == UNLIMITED:
        assert measured > 20 * 64 * KIB
        assert usage.recomputations == 0
        assert measured == pytest.approx(usage.peak_bytes - there, abs=SMALL)
    else:
        assert measured <= extra + SMALL
        assert usage.recomputations > 20


class Perverse:
    """Evicts what was used last: the gradient that backward is at, so that all before it has to be made again."""

    name = "perverse"

    def begin(self) -> None:
        pass

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        return max(pool, key=lambda storage: (state.last_access_ns[storage], storage)), len(pool)


def test_what_waits_for_others_lets_go_of_its_inputs() -> None:
    model, x = Deep(), torch.randn(1024, 16)
    step(model, x)
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    with Budget(there + 640 * KIB, Perverse(), clock=counting()) as budget:
        for _ in range(2):
            step(model, x)
    assert budget.usage.recomputations > 80


def test_a_tensor_that_comes_from_elsewhere_makes_others_go() -> None:
    model, x = Deep(), torch.randn(1024, 16)
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    with Budget(there + (1 << 20)) as budget:
        held = [x.sin() for _ in range(12)]
        array = torch.frombuffer(bytearray(512 * KIB), dtype=torch.float32)
        before = budget.resident_bytes
        array.sum()
        assert before <= there + 12 * 64 * KIB
        assert budget.resident_bytes <= there + (1 << 20)
        assert budget.usage.evictions > 0
    assert len(held) == 12
    assert model is not None


def test_results_as_large_as_the_data_has_it_fit() -> None:
    x = torch.randn(256, 64)
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    limit = there + 512 * KIB
    with Budget(limit) as budget:
        kept = []
        for threshold in (-3.0, -1.0, 0.0, 1.0):
            kept.append(x[x > threshold].sin())
            kept.append(torch.masked_select(x.cos(), x > threshold))
            kept.append(x[x[:, 0] > threshold])
        assert budget.usage.peak_bytes <= limit
        assert budget.usage.evictions > 0
    assert torch.equal(kept[0], x[x > -3.0].sin())
