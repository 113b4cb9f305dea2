"""Locks of ops inside others: each op locks what it uses until it is over, whatever happens to those inside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.budget import Budget
from tensortide.run.engine import LiveEngine
from tensortide.run.runtime import Runtime
from tests.run.collective_races import evict_all
from tests.run.same import UNLIMITED, identical


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Budget(UNLIMITED, device="cpu") as budget:
        assert budget.runtime is not None
        yield budget.runtime


def held(engine: LiveEngine) -> dict[int, int]:
    """Locks beyond pins, by storage."""
    return {
        at: locks - pinned
        for at, (locks, pinned) in enumerate(zip(engine.locks, engine.pinned, strict=True))
        if locks != pinned
    }


def test_an_op_that_does_not_fit_leaves_the_locks_of_those_around_it(runtime: Runtime) -> None:
    engine, x = runtime.engine, torch.rand(1024).sin()
    storage = runtime.storage(x)
    outer = engine.prepare([engine.newest(storage)], (), 0)
    with pytest.raises(OutOfMemory):
        engine.prepare([engine.newest(storage)], (), UNLIMITED)
    assert held(engine) == {storage: 1}
    inner = engine.prepare([engine.newest(storage)], (), 0)
    engine.begin_use(storage)
    engine.abandon(inner)
    engine.abandon(outer)
    assert held(engine) == {storage: 1}
    assert storage not in engine.pool
    engine.end_use(storage)
    assert held(engine) == {}
    assert storage in engine.pool


def test_what_ops_inside_overwrite_is_unlocked_all_the_same(runtime: Runtime) -> None:
    engine, x = runtime.engine, torch.rand(1024).sin()
    storage = runtime.storage(x)
    outer = engine.prepare([engine.newest(storage)], (), 0)
    x.mul_(2)
    runtime.promote()
    engine.fix(storage)  # which drops the value that the outer op reads: its number is free for another one
    y = x.cos()
    other = runtime.storage(y)
    engine.abandon(outer)
    assert held(engine) == {}
    assert other in engine.pool


@pytest.mark.parametrize("compiled", [True, False])
def test_an_input_gives_way_to_the_recomputation_of_another(compiled: bool) -> None:
    """``b`` takes three tensors to recompute, and none is left for ``a`` until it is there."""
    x = torch.rand(4096)
    expected = x.sin() + (x.cos() + x.exp())
    with Budget(UNLIMITED, device="cpu") as probe:
        there = probe.resident_bytes
    with Budget(there + 3 * x.nbytes, compiled=compiled) as memory:
        assert memory.runtime is not None
        a, b = x.sin(), x.cos() + x.exp()
        evict_all(memory)
        found = a + b
        assert held(memory.runtime.engine) == {}
    assert identical(found, expected)
    assert memory.usage.peak_bytes <= memory.budget_bytes
