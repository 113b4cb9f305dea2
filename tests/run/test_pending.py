"""Ops are remembered without the engine until something has to go: nothing differs but what that costs."""

from __future__ import annotations

import gc
import os
import random
import weakref

import pytest
import torch
from torch import nn

from tensortide.run.block import Recomputable
from tensortide.run.budget import Budget, current
from tensortide.run.storages import SELDOM
from tests.marks import some_slow
from tests.run import programs
from tests.run.programs import Move, Program
from tests.run.same import UNLIMITED, identical, run

FEW = range(3)
MORE = range(3, 400 if os.environ.get("TENSORTIDE_LIVE") else 40)
KIB = 1 << 10
GIVEN = torch.ones(2, 2), torch.ones(3, 3)


def throwing(move: Move, chance: random.Random, counts: list[int]) -> Move:
    """``move``, after which half of what can be evicted may go."""

    def moved(program: Program, dice: random.Random, held: list[torch.Tensor]) -> list[torch.Tensor]:
        made = move(program, dice, held)
        runtime = current().runtime
        assert runtime is not None
        if chance.random() < 0.3:
            runtime.promote()
            for storage in list(runtime.engine.pool):
                if chance.random() < 0.5:
                    runtime.engine.evict(storage)
        counts[0] = runtime.engine.recomputations
        return made

    return moved


@pytest.mark.parametrize("seeds", some_slow([FEW, MORE], [MORE]))
def test_whatever_goes_at_any_time_comes_back_the_same(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    moves, again = programs.MOVES, 0
    for seed in seeds:
        try:
            plain = run(lambda: Program(seed).step, None, warm=0)  # noqa: B023
        except RuntimeError:  # what autograd needs was overwritten: no program for any budget
            continue
        chance, counts = random.Random(seed), [0]
        with monkeypatch.context() as patch:
            patch.setattr(programs, "MOVES", [throwing(move, chance, counts) for move in moves])
            assert plain.same(run(lambda: Program(seed).step, UNLIMITED, warm=0)), seed  # noqa: B023
        again += counts[0]
    assert again > 10 * len(seeds)


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_was_made_of_overwritten_memory_stays(repeatable: bool) -> None:
    """Also if that was made of something else that the program has dropped by then."""
    given = torch.randn(1024)
    want = given.sin().cos() * 2
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        first = given.sin()
        second = first.cos()
        if repeatable:
            first.add_(1)
        else:
            nn.functional.batch_norm(torch.randn(4, 1024), first, torch.ones(1024), training=True)
        third = second * 2
        del second
        runtime.promote()
        number = runtime.storage(third)
        assert runtime.engine.fixed[number]
        assert runtime.engine.pinned[number]
        assert identical(third, want)
        assert bool(runtime.engine.fixed[runtime.storage(first)]) is not repeatable


def trained(model: nn.Module, update: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()
    update.step()
    update.zero_grad()


def test_the_engine_hears_of_nothing_while_there_is_room() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    update = torch.optim.Adam(model.parameters())
    with Budget(UNLIMITED) as budget:
        for _ in range(20):
            trained(model, update, torch.randn(8, 16))
        assert budget.runtime is not None
        assert not budget.runtime.engine.cost_ns
        assert budget.usage.ops > SELDOM
        assert budget.usage.evictions == 0


def test_histories_that_nothing_ends_are_cut() -> None:
    gc.collect()
    with Budget(UNLIMITED) as budget:
        x, most = torch.ones(16), 0
        for count in range(6 * SELDOM):
            x = x * 0.5
            if not count % SELDOM:
                most = max(most, sum(isinstance(thing, Recomputable) for thing in gc.get_objects()))
        assert budget.usage.peak_bytes < budget.resident_bytes + 4 * KIB
    assert SELDOM < most < 5 * SELDOM
    del x
    gc.collect()
    assert not any(isinstance(thing, Recomputable) for thing in gc.get_objects())


def test_a_kept_error_keeps_no_history() -> None:
    """Its traceback refers to the budget, and to what was given to the op that failed."""
    gc.collect()
    kept_error = None
    with Budget(UNLIMITED, compiled=False):
        blank, number = torch.empty(1024), torch.full((1024,), 2.0)
        made = number.sin()
        try:
            torch.mm(*GIVEN)
        except RuntimeError as error:
            kept_error = error
    assert kept_error is not None
    storages = [weakref.ref(tensor.untyped_storage()) for tensor in (blank, number, made)]
    del blank, number, made
    gc.collect()
    assert not any(storage() for storage in storages)
    kept = [thing.func for thing in gc.get_objects() if isinstance(thing, Recomputable)]
    assert kept in ([], [torch.ops.aten.mm.default])


def test_batches_of_earlier_steps_go() -> None:
    """Momentum begins as a copy of the first gradient, which was made of the first batch."""
    model = nn.Linear(64, 64)
    update = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    batches = []
    with Budget(UNLIMITED) as budget:
        assert budget.runtime is not None
        while budget.runtime.engine.ops <= 3 * SELDOM:
            batch = torch.randn(256, 64)
            batches.append(weakref.ref(batch.untyped_storage()))
            trained(model, update, batch)
    assert sum(batch() is not None for batch in batches[: len(batches) // 3]) == 0


def test_what_others_were_made_of_may_go_before_the_engine_hears_of_them() -> None:
    given = torch.randn(1024)
    want = ((given.sin() * 2).cos() + 1).exp()
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        first = given.sin()
        runtime.promote()
        second = first * 2  # of which the engine has not heard when the program drops the first
        del first
        third = second.cos()
        del second
        last = third + 1
        del third
        runtime.promote()
        storage = runtime.storage(last)
        runtime.engine.evict(storage)
        assert identical(last.exp(), want)
        assert budget.usage.recomputations >= 3
