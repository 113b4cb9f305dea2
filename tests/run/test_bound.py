"""A budget bounds what PyTorch's allocator hands out, with what kernels take for themselves where that is known."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tensortide.errors import BudgetInfeasible, SlowBudget
from tensortide.plans.remat.policies import State
from tensortide.run import real_memory
from tensortide.run.block import storage_of
from tensortide.run.budget import Budget
from tensortide.run.sizes import sizes_on
from tensortide.timelines.events import Kind
from tests.marks import some_slow
from tests.run.same import UNLIMITED, counting, identical

KIB, MIB = 1 << 10, 1 << 20
SMALL = 16 * KIB
"""What a budget does not count: numbers that kernels make on their way."""
SCRATCH = 256 * KIB
"""Scratch of each thread, which no rule of workspace counts."""


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


def twice(model: nn.Module, x: torch.Tensor) -> None:
    step(model, x)
    step(model, x)


def allocated_peak(model: nn.Module, x: torch.Tensor) -> int:
    """Most bytes that PyTorch's allocator has handed out at once in a step, beyond what was there."""
    gc.collect()  # garbage that is collected during the step would be taken off
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        step(model, x)
    assert trace.profiler is not None
    now = peak = 0
    for event in trace.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


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
        measured = allocated_peak(model, x)
        usage = budget.usage
    if extra == UNLIMITED:
        assert measured > 20 * 64 * KIB
        assert usage.recomputations == 0
        assert measured == pytest.approx(usage.peak_bytes - there, abs=SMALL)
    else:
        assert measured <= extra + SMALL
        assert usage.recomputations > 20


class Perverse:
    """Evicts what was used last: the gradient that backward is at, so that all before it has to be recomputed."""

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


@pytest.mark.parametrize("compiled", [True, False])
def test_what_an_overwrite_brings_back_comes_back_the_smallest_first(compiled: bool) -> None:
    """The small number is made of a tensor of 192 KiB, for which there is no room beside the large result of 256."""
    source = torch.linspace(0, 1, 1 << 14)
    want = source.repeat(4), source.repeat(3).sin().sum()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    with Budget(there + 400 * KIB, compiled=compiled, workspace=False) as budget:
        assert budget.runtime is not None
        large = source.repeat(4)
        small = source.repeat(3).sin_().sum()
        budget.runtime.promote()
        for storage in list(budget.runtime.engine.pool):
            budget.runtime.engine.evict(storage)
        source.add_(1)
        assert budget.usage.recomputations >= 3
    assert identical(large, want[0])
    assert identical(small, want[1])


def gradient_of_towers(x: torch.Tensor) -> torch.Tensor:
    """Two chains of ops on parts of one large tensor: the way back through one leaves a gradient as large, long before
    it is used."""
    wide = x * 2
    ends = []
    for part, rows in zip(wide.split(x.shape[0] // 2), (256, 64), strict=True):
        end = part[:rows].clone()
        for _ in range(20):
            end = torch.tanh(end)
        ends.append(end.sum())
    return torch.autograd.grad(torch.stack(ends).sum(), x)[0]


@pytest.mark.parametrize("compiled", [True, False])
def test_the_backward_pass_is_not_recomputed_while_anything_else_can_go(compiled: bool) -> None:
    x = torch.randn(1024, 32, requires_grad=True)
    expected = gradient_of_towers(x)
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    backward: list[bool] = []
    with Budget(there + 400 * KIB, "size", clock=counting(), compiled=compiled) as budget:
        assert budget.runtime is not None
        live = budget.runtime.engine

        def heard(kind: int, value: int) -> None:
            call = live.calls[live.op_of[value]] if kind == Kind.RECOMPUTE else None
            if call is not None:
                backward.append(call.backward)

        live.listeners.append(heard)
        found = gradient_of_towers(x)
    assert backward
    assert not any(backward)
    assert identical(expected, found)


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


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    """Six layers, each of which keeps 2 MiB for its gradient, and takes more than as much again while it runs."""
    layers = [layer for _ in range(6) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.Tanh())]
    return nn.Sequential(*layers), torch.randn(8, 16, 64, 64)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX512", "DEFAULT"), reason="the blocked layouts are of AVX-512"
)
@pytest.mark.parametrize("extra", some_slow([13 * MIB, 11 * MIB], [13 * MIB]))
def test_the_allocator_stays_within_the_budget_while_kernels_take_workspace(extra: int) -> None:
    model, x = convolutions()
    step(model, x)
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    peaks = {}
    for workspace in (True, False):
        with Budget(there + extra, workspace=workspace, clock=counting()) as budget:
            step(model, x)
            peaks[workspace] = allocated_peak(model, x)
        assert budget.usage.peak_bytes <= there + extra
        assert budget.usage.recomputations > 0
    assert peaks[True] <= extra + SCRATCH
    assert peaks[False] > extra + MIB


class Ranked(nn.Module):
    """Ten layers that keep 256 KiB each; between them kernels without a rule, which take three times as much."""

    def __init__(self) -> None:
        super().__init__()
        self.where = torch.randint(0, 256, (256,))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = torch.tanh(x + x.kthvalue(3, 0).values)
            x = x + torch.zeros_like(x).index_put_((self.where,), x[self.where], accumulate=True).sum() * 1e-9
        return x


def test_workspace_without_a_rule_is_learnt_from_the_first_call() -> None:
    sizes_on.cache_clear()
    model, x = Ranked(), torch.randn(256, 256, requires_grad=True)
    step(model, x)
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
        step(model, x)
    extra, peaks = int((probe.usage.peak_bytes - there) * 2 / 3), {}
    for workspace in (True, False):
        with Budget(there + extra, workspace=workspace, clock=counting()) as budget:
            step(model, x)
            budget.reset()
            peaks[workspace] = allocated_peak(model, x), budget.usage.peak_bytes - there
        assert budget.usage.recomputations > 0
    assert max(peaks[True]) <= extra + SMALL
    assert peaks[True][0] <= peaks[True][1] + SMALL
    assert peaks[False][0] > extra + 2 * SMALL


def test_what_a_call_takes_is_not_learnt_while_the_program_itself_is_profiled() -> None:
    sizes_on.cache_clear()
    x = torch.randn(512, 512)
    gc.collect()
    with Budget(UNLIMITED) as budget:
        before = budget.resident_bytes
        with torch.autograd.profiler.profile() as trace:
            x.kthvalue(3, 0)
        assert "aten::kthvalue" in [event.name for event in trace.function_events or ()]
        assert budget.usage.peak_bytes < before + x.nbytes
        x.kthvalue(3, 0)
        assert budget.usage.peak_bytes > before + 3 * x.nbytes
        budget.reset()
        x.kthvalue(3, 0)
        assert budget.usage.peak_bytes > before + 3 * x.nbytes


def test_workspace_is_no_reason_to_give_up() -> None:
    model, x = convolutions()
    step(model, x)
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
    convolution, image = next(model.children()), torch.randn(8, 16, 64, 64)
    limit = there + 2 * image.nbytes + 2 * MIB  # its result fits, what its kernel takes does not
    with Budget(limit) as budget, torch.no_grad():
        held = image.sin()
        result = convolution(image)
        assert storage_of(held).nbytes() == 0  # what could go went
    assert limit < budget.usage.peak_bytes < limit + 16 * MIB
    assert torch.equal(result, convolution(image))


def test_a_budget_under_which_most_time_is_recomputation_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_memory, "NOTICED_NS", 0)
    model, x = Deep(), torch.randn(1024, 16)
    step(model, x)
    gc.collect()
    with Budget(UNLIMITED) as probe:
        there = probe.resident_bytes
        step(model, x)
    unbounded = probe.usage
    assert unbounded.plain_peak_bytes == unbounded.peak_bytes
    assert not unbounded.slow
    with pytest.warns(SlowBudget) as told, Budget(there + 512 * KIB, clock=counting()) as budget:
        twice(model, x)
    assert budget.usage.slow
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert budget.usage.plain_peak_bytes == pytest.approx(unbounded.peak_bytes, abs=4 * 64 * KIB)
    with Budget(budget.usage.plain_peak_bytes) as enough:
        step(model, x)
    assert enough.usage.recomputations == 0


def far_back(sums: list[torch.Tensor]) -> None:
    for _ in range(60):
        sums.append(sums[-1] * 1.01)
    torch.add(sums[30], sums[29])


def test_an_op_that_needs_too_many_others_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_memory, "LEAST_ENDLESS", 20)
    monkeypatch.setattr(real_memory, "ENDLESS", 0)
    sums = [torch.ones(1024)]
    with Budget(UNLIMITED) as probe:
        limit = probe.resident_bytes + 5 * sums[0].nbytes
    budget = Budget(limit, "lru")
    with pytest.raises(BudgetInfeasible, match="needs over 20 ops to be recomputed"), budget:
        far_back(sums)
    assert budget.usage.recomputations == 20
    for before, after in itertools.pairwise(sums):
        assert identical(after, before * 1.01)
