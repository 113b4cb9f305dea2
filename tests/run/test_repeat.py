"""Steps that repeat: the decisions of the best one are followed, as long as the program does the same."""

from __future__ import annotations

import gc
import itertools
import os
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import BudgetInfeasible
from tensortide.examples import find
from tensortide.run import repeat
from tensortide.run.budget import Budget
from tensortide.run.engine import LiveEngine
from tensortide.run.usage import Usage
from tests.examples.tiny import TINY
from tests.marks import some_slow
from tests.run.programs import Program
from tests.run.same import UNLIMITED, counting, identical, squeezed, state

ROWS = 256


class Loop:
    """A training loop whose steps have names: ``train``; ``half``, on fewer rows; ``twice``, which sums the gradients
    of two batches; ``evaluate``; and ``other K``, which has another function behind layer K."""

    def __init__(self, depth: int = 6) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(64, 64), nn.Dropout(0.25), nn.Tanh())]
        self.model = nn.Sequential(*layers, nn.Linear(64, 1))
        self.update = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.rows = torch.randn(ROWS, 64)

    def __call__(self, name: str = "train") -> None:
        if name == "evaluate":
            self.model.eval()
            with torch.no_grad():
                self.model(self.rows)
            self.model.train()
            return
        kind, _, place = name.partition(" ")
        if kind == "other":
            self.model[3 * int(place) + 2] = nn.Sigmoid()
        for rows in {"half": [self.rows[: ROWS // 2]], "twice": list(self.rows.chunk(2))}.get(kind, [self.rows]):
            self.model(rows).square().mean().backward()
        self.update.step()
        self.update.zero_grad()
        if kind == "other":
            self.model[3 * int(place) + 2] = nn.Tanh()


@pytest.fixture(scope="module")
def need() -> int:
    """Bytes that a step of a Loop takes beyond what is there at its start."""
    loop = Loop()
    loop()
    with Budget(UNLIMITED) as free:
        before = free.resident_bytes
        loop()
    return free.usage.peak_bytes - before


def played(names: list[str], nbytes: int, policy: str = "dtr-eq", **options: Any) -> tuple[Loop, Usage, list[int]]:
    """The steps ``names`` of a Loop, under a budget of ``nbytes`` more than is there at first; and how many ops each
    step recomputed."""
    gc.collect()
    loop = Loop()
    loop()
    with Budget(UNLIMITED) as probe:
        limit = probe.resident_bytes + nbytes
    reached = [0]
    with Budget(limit, policy, clock=counting(), **options) as budget:
        for name in names:
            loop(name)
            reached.append(budget.usage.recomputations)
    assert budget.usage.peak_bytes <= limit
    return loop, budget.usage, [after - before for before, after in itertools.pairwise(reached)]


def assert_as_without(loop: Loop, names: list[str]) -> None:
    generator = torch.get_rng_state()
    plain = Loop()
    plain()
    for name in names:
        plain(name)
    assert all(map(identical, state(loop), state(plain)))
    assert torch.equal(generator, torch.get_rng_state())


@pytest.mark.parametrize("compiled", [True, False])
def test_the_best_step_is_followed(need: int, compiled: bool) -> None:
    """Where a policy draws lots, steps differ."""
    names = ["train"] * 9
    loop, usage, recomputed = played(names, int(need * 0.7), "random", compiled=compiled)
    tried = recomputed[1 : 1 + repeat.TRIES]  # before the first one there was no step
    assert len(set(tried)) > 1
    assert recomputed[1 + repeat.TRIES : 8] == [min(tried)] * (7 - repeat.TRIES)
    assert usage.followed_steps == 7 - repeat.TRIES  # those that are known to be over
    assert usage.left_steps == 0
    assert_as_without(loop, names)


def test_a_policy_that_is_bad_is_asked_again(need: int) -> None:
    _, usage, recomputed = played(["train"] * 14, int(need * 0.7), "random")
    first = 1 + repeat.TRIES + repeat.AGAIN[0]
    assert len({*recomputed[1 + repeat.TRIES : first]}) == 1
    assert min(recomputed[first + 1 :]) == max(recomputed[first + 1 :]) <= min(recomputed[1 : first + 1])
    assert usage.followed_steps == 14 - 1 - 1 - repeat.TRIES - 1


@pytest.mark.parametrize("cycle", [["train", "evaluate"], ["twice"], ["half", "train"]], ids=" ".join)
def test_kinds_of_steps_take_turns(need: int, cycle: list[str]) -> None:
    """Each kind follows its own best step, whichever comes before."""
    names = cycle * 7
    loop, usage, recomputed = played(names, int(need * 0.6))
    cycles = [recomputed[at : at + len(cycle)] for at in range(len(cycle), len(recomputed), len(cycle))]
    assert cycles[-2] == cycles[-1]
    assert sum(cycles[-1]) <= min(map(sum, cycles))
    assert usage.followed_steps > 0
    assert usage.left_steps == 0
    assert_as_without(loop, names)


@pytest.mark.parametrize("place", some_slow([0, 2, 5], [2]))
def test_a_step_that_changes_is_left_where_it_changes(need: int, place: int) -> None:
    names = ["train"] * 6 + [f"other {place}", "train", "train"]
    loop, usage, recomputed = played(names, int(need * 0.6))
    assert usage.followed_steps + usage.left_steps >= 2
    assert recomputed[-1] <= max(recomputed[1:6])
    assert_as_without(loop, names)


def test_an_op_that_is_not_that_of_the_record_ends_it(need: int) -> None:
    """The first layers are the same, so the step begins alike."""
    names = ["train"] * 6 + ["other 3"] * 2
    assert played(names, int(need * 0.6))[1].left_steps == 1


@pytest.mark.slow
def test_a_lowered_budget_holds(need: int) -> None:
    gc.collect()
    loop = Loop()
    loop()
    with Budget(UNLIMITED) as probe:
        before = probe.resident_bytes
    with Budget(before + int(need * 0.8), clock=counting()) as budget:
        for _ in range(6):
            loop()
        for share in (0.6, 0.7):
            tensortide.live.set_memory_budget(before + int(need * share))
            budget.reset()
            followed = budget.usage.followed_steps
            for _ in range(6):
                loop()
            assert budget.usage.peak_bytes <= before + int(need * share)
            assert budget.usage.followed_steps > followed
    assert_as_without(loop, ["train"] * 18)


def test_a_budget_that_is_lowered_within_a_step(need: int) -> None:
    gc.collect()
    loop = Loop()
    loop()
    with Budget(UNLIMITED) as probe:
        before = probe.resident_bytes
    names = ["train"] * 8
    with Budget(before + int(need * 0.8), clock=counting()) as budget:
        for step in range(8):
            hook = None
            if step == 6:

                def lower(*_: Any) -> None:
                    tensortide.live.set_memory_budget(before + int(need * 0.6))
                    budget.reset()

                hook = loop.model[12].register_forward_hook(lower)
            loop()
            if hook is not None:
                hook.remove()
        assert budget.usage.peak_bytes <= before + int(need * 0.6)
    assert_as_without(loop, names)


def test_what_is_remembered_is_bounded(need: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = repeat.Repeats._end

    def end(repeats: repeat.Repeats) -> None:
        original(repeats)
        sizes.append(sum(len(best.decisions) for best in repeats.best.values()))

    monkeypatch.setattr(repeat.Repeats, "_end", end)
    monkeypatch.setattr(repeat, "MOST", 80)
    names = [f"other {place}" for place in range(4)] + ["train", "half", "twice"]
    played(names, int(need * 0.6))
    assert 0 < max(sizes) <= 80
    monkeypatch.setattr(repeat, "MOST", 8)
    sizes.clear()
    played(names, int(need * 0.6))
    assert max(sizes) <= 8


def test_a_step_that_does_not_fit_is_not_followed(need: int) -> None:
    loop = Loop()
    loop()
    with Budget(UNLIMITED) as probe:
        limit = probe.resident_bytes + int(need * 0.6)
    with Budget(limit, clock=counting()) as budget:
        for step in range(9):
            if step == 6:
                with pytest.raises(BudgetInfeasible):
                    torch.ones(limit)
            loop()
        assert budget.usage.peak_bytes <= limit
    assert_as_without(loop, ["train"] * 9)


@pytest.mark.slow
def test_the_core_follows_as_python_does() -> None:
    workload = find("gpt2").load()

    def run(limit: int, compiled: bool) -> tuple[list[tuple[int, int]], int, int, list[torch.Tensor]]:
        gc.collect()
        gc.disable()
        torch.manual_seed(0)
        step = workload(**TINY["gpt2"])
        step()
        gc.collect()
        with Budget(UNLIMITED) as probe:
            limit += probe.resident_bytes if limit < UNLIMITED else 0
        with Budget(limit, clock=counting(), compiled=compiled) as budget:
            before, counts = budget.resident_bytes, []
            for _ in range(7):
                step()
                counts.append((budget.usage.evictions, budget.usage.recomputations))
        gc.enable()
        return counts, budget.usage.peak_bytes - before, budget.usage.followed_steps, list(state(step))

    limit = run(UNLIMITED, compiled=False)[1] * 3 // 4
    one, other = run(limit, compiled=False), run(limit, compiled=True)
    assert one[:3] == other[:3]
    assert one[2] > 0
    assert all(map(identical, one[3], other[3]))


class Varied:
    """A random Program whose calls differ now and then: some end earlier, and go on otherwise."""

    def __init__(self, seed: int) -> None:
        self.program, self.calls, self.seed = Program(seed), 0, seed

    def __call__(self) -> torch.Tensor:
        self.program.length = 40 - (self.calls * (self.seed + 3) % 5 == 2) * (5 + self.seed % 20)
        self.calls += 1
        return self.program.step()


SEEDS = range(200 if os.environ.get("TENSORTIDE_LIVE") else 3)


@pytest.mark.parametrize("seed", some_slow(SEEDS, {2}))
def test_random_programs_repeat(seed: int) -> None:
    try:
        varied = Varied(seed)
        for _ in range(5):
            varied()
    except RuntimeError:
        pytest.skip("no program without a budget either")
    squeezed(lambda: Varied(seed), "dtr-eq", (0.8, 0.9, 0.95), steps=5)


@pytest.mark.parametrize("compiled", [True, False])
def test_calls_of_one_kind_cost_the_least_time_that_one_took(compiled: bool) -> None:
    """So the cost of none is that of its first touch of pages, or of another program's turn."""
    x = torch.rand(64, 64)
    with Budget(UNLIMITED, compiled=compiled) as budget:
        assert budget.runtime is not None
        held = [x.sin() for _ in range(50)]
        budget.runtime.promote()
        engine: LiveEngine = budget.runtime.engine
        calls = sorted((call for call in engine.calls if call is not None), key=lambda call: call.number)
        costs = [call.cost_ns for call in calls]
        assert len(costs) == len(held)
        assert costs == sorted(costs, reverse=True)
        assert sum(costs) <= budget.usage.base_ns


def test_losses_that_are_kept_do_not_keep_the_scores_they_are_made_of() -> None:
    """Scores that wait for the next ones outlive the parameters they are made of; each loss could be recomputed from
    its own for good, in more memory with every step."""
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU())])
    update, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(ROWS, 64)
    losses: list[torch.Tensor] = []
    latest: dict[str, torch.Tensor] = {}

    def step() -> None:
        latest["scores"] = scores = model(x)
        loss = scores.square().mean()
        loss.backward()
        update.step()
        update.zero_grad()
        latest["scores"] = scores.detach()
        losses.append(loss.detach())

    gc.collect()
    with Budget(UNLIMITED) as free:
        step()
    counts: list[int] = []
    with Budget(free.usage.peak_bytes * 3 // 4) as budget:
        for _ in range(24):
            step()
            counts.append(budget.usage.recomputations)
    taken = [after - before for before, after in itertools.pairwise(counts)]
    assert max(taken[-12:]) <= max(taken[2:8])
    assert len(losses) == 25
