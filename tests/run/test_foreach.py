"""Ops over lists of tensors are taken apart: each tensor is evicted and computed again by itself."""

from __future__ import annotations

import gc
import itertools

import torch

from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED, identical

KIB = 1 << 10


def room(extra: int) -> int:
    gc.collect()
    with Budget(UNLIMITED) as probe:
        return probe.resident_bytes + extra


def results(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Eight tensors of 4 KiB, three times over."""
    doubled = torch._foreach_mul(given, [float(i) for i in range(1, 9)])
    torch._foreach_sin_(doubled)
    return list(torch._foreach_addcmul(doubled, given, given, 0.5))


def test_each_tensor_goes_and_comes_alone() -> None:
    given = [torch.randn(1024) for _ in range(8)]
    want = results(given)
    clock = itertools.count(step=1000)
    with Budget(room(80 * KIB), clock=lambda: next(clock)) as budget:
        made = results(given)
        filler = [torch.ones(1024) for _ in range(15)]
        runtime = budget.runtime
        assert runtime is not None
        away = next(i for i, t in enumerate(made) if not runtime.engine.resident[runtime.storage(t)])
        before = budget.usage.recomputations
        assert identical(made[away].clone(), want[away])
        assert 1 <= budget.usage.recomputations - before <= 3  # one product, one sine, one sum
    assert all(map(identical, made, want))
    assert len(filler) == 15


def test_norms_of_many_are_made_of_their_own() -> None:
    given = [torch.randn(64) for _ in range(40)]
    with Budget(UNLIMITED) as budget:
        norms = torch._foreach_norm(given)
        runtime = budget.runtime
        assert runtime is not None
        assert all(len(runtime.engine.parents[runtime.storage(norm)]) == 1 for norm in norms)
    assert all(map(identical, norms, [torch.linalg.vector_norm(t) for t in given]))
