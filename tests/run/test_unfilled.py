"""What native code writes into memory that an op has just allocated is never recomputed by that op."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tensortide
from tensortide.run.budget import Budget
from tensortide.run.runtime import Runtime
from tests.run.native import address_of, floats, put
from tests.run.same import UNLIMITED, identical

SIDE = 32
ALLOCATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": lambda x: torch.empty(SIDE, SIDE),
    "empty_like": torch.empty_like,
    "new_empty": lambda x: x.new_empty(SIDE, SIDE),
    "empty_strided": lambda x: torch.empty_strided((SIDE, SIDE), (1, SIDE)),
    "zeros": lambda x: torch.zeros(SIDE, SIDE),
    "zeros_like": torch.zeros_like,
    "new_full": lambda x: x.new_full((SIDE, SIDE), 0.5),
    "ones": lambda x: torch.ones(SIDE, SIDE, dtype=torch.float64).view(torch.float32)[:, :SIDE],
    "zeroed": lambda x: torch.empty_like(x).zero_(),
    "filled": lambda x: torch.empty_like(x).fill_(3),
    "resized": lambda x: torch.empty(0).resize_(SIDE, SIDE),
}


def state(runtime: Runtime, tensor: Tensor) -> tuple[bool, bool]:
    """Whether ``tensor`` can be evicted, and whether it can never be recomputed."""
    storage = runtime.storage(tensor)
    return storage in runtime.engine.pool, bool(runtime.engine.fixed[storage])


class Doubled(torch.autograd.Function):
    """Twice a tensor, by native code, into memory of some op."""

    allocate: Callable[[Tensor], Tensor]

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        made = Doubled.allocate(x)
        put(made, [2 * number for number in floats(x)])
        return made

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        made = torch.empty_like(gradient)
        put(made, [2 * number for number in floats(gradient)])
        return made


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_results_of_native_code_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doubled, "allocate", staticmethod(ALLOCATIONS[name]), raising=False)

    def gradient() -> list[Tensor]:
        x = torch.linspace(-1, 1, SIDE * SIDE).view(SIDE, SIDE).requires_grad_()
        y: Tensor = x
        for _ in range(4):
            y = Doubled.apply(y.sin()).cos().tanh()
        y.square().sum().backward()
        assert x.grad is not None
        return [y.detach().clone(), x.grad.clone()]

    expected = gradient()
    with Budget(UNLIMITED) as free:
        before = free.resident_bytes
        assert all(map(identical, gradient(), expected))
    assert free.usage.recomputations == 0
    with Budget(int(before + (free.usage.peak_bytes - before) * 0.85), workspace=False) as tight:
        found = gradient()
    assert all(map(identical, found, expected))
    assert tight.usage.recomputations > 0


@pytest.mark.parametrize(("name", "reported"), [*zip(ALLOCATIONS, itertools.cycle([False, True]), strict=False)])
def test_whoever_uses_it_first_decides(name: str, reported: bool) -> None:
    x = torch.randn(SIDE, SIDE)
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        made, written = ALLOCATIONS[name](x), ALLOCATIONS[name](x)
        if reported:
            assert not state(runtime, made)[0]
            assert not state(runtime, written)[0]
        put(written, [7.0])
        sums = [made + 1, written + 1]
        constant = "empty" not in name and name != "resized"
        assert state(runtime, made) == (constant, not constant)
        assert state(runtime, written) == (False, True)
        assert state(runtime, sums[1])[0]
    assert address_of(made)


FILLED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "copy": lambda made, x: made.copy_(x),
    "transposed": lambda made, x: made.t().copy_(x),
    "random": lambda made, x: made.normal_(),
    "dropped out": lambda made, x: made.bernoulli_(0.5),
    "out": lambda made, x: torch.mul(x, 2, out=made),
    "product": lambda made, x: torch.mm(x, x, out=made),
    "two parts": lambda made, x: (made[:, 8:].copy_(x[:, 8:]), made[:, :8].zero_()),
    "every other": lambda made, x: (made[1::2].copy_(x[1::2]), made[::2].normal_()),
    "boxes": lambda made, x: (made[:5].copy_(x[:5]), made[5:, :9].copy_(x[5:, :9]), made[5:].t()[9:].fill_(2)),
    "part, whole": lambda made, x: (made[1:].copy_(x[1:]), made.copy_(x)),
}
PARTS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "added": lambda made, x: made.add_(x),
    "row": lambda made, x: made[1:].copy_(x[1:]),
    "all but one": lambda made, x: (made[1:].copy_(x[1:]), made[0, 1:].zero_()),
    "as many": lambda made, x: (made[:20].copy_(x[:20]), made[20:, 1:].zero_(), made[:12, :1].zero_()),
    "of its part": lambda made, x: (made[16:].copy_(x[16:]), made[:16].copy_(made[16:])),
    "before the last part": lambda made, x: (made[16:].copy_(x[16:]), made.sum(), made[:16].copy_(x[:16])),
    "repeated": lambda made, x: made.as_strided((SIDE * SIDE,), (0,)).fill_(1),
    "of itself": lambda made, x: made.copy_(made),
    "out of itself": lambda made, x: torch.mul(x, made, out=made),
    "scattered": lambda made, x: made.index_copy_(0, torch.tensor([1]), x[:1]),
}


@pytest.mark.parametrize(("name", "reported"), [*zip([*FILLED, *PARTS], itertools.cycle([False, True]), strict=False)])
def test_only_what_is_overwritten_as_a_whole_is_recomputed(name: str, reported: bool) -> None:
    x = torch.randn(SIDE, SIDE)
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        made = torch.empty(SIDE, SIDE)
        if reported:
            assert state(runtime, made) == (False, False)
        torch.manual_seed(0)
        {**FILLED, **PARTS}[name](made, x)
        assert not state(runtime, made)[0] or name in FILLED
        made.sum()
        assert state(runtime, made) == (name in FILLED, name in PARTS)
        expected = made.clone()
        if name in FILLED:
            runtime.engine.evict(runtime.storage(made))
            assert not runtime.engine.resident[runtime.storage(made)]
    assert identical(made, expected)


def test_zeros_that_native_code_changed_are_kept_when_an_op_writes_a_part() -> None:
    with Budget(UNLIMITED) as budget:
        assert budget.runtime is not None
        made = torch.zeros(SIDE, SIDE)
        put(made, [7.0])
        made[1:].fill_(1)
        assert state(budget.runtime, made) == (False, True)
    assert made[0, 0] == 7


@pytest.mark.parametrize("ways", [FILLED, PARTS], ids=["filled", "parts"])
def test_the_simulator_keeps_the_same(ways: dict[str, Callable[[Tensor, Tensor], object]]) -> None:
    x = torch.randn(SIDE, SIDE)

    def step() -> None:
        for write in ways.values():
            write(torch.empty(SIDE, SIDE), x)

    assert len(tensortide.capture(step, real=True).index.unfilled) == (len(PARTS) if ways is PARTS else 0)
