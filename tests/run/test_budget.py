"""What a budget promises around the steps themselves."""

from __future__ import annotations

import copy
import gc
import io
import re
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

import tensortide
from tensortide.errors import BudgetInfeasible, RunError
from tensortide.plans.remat.policies import policy
from tensortide.run.block import Block
from tensortide.run.budget import Budget
from tensortide.run.engine import LiveEngine
from tests.run.same import UNLIMITED, identical

KIB = 1 << 10


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    gc.collect()
    yield
    assert threading.Thread.run.__module__ == "threading"
    assert "numpy" in vars(torch._C.TensorBase)
    assert "numpy" not in vars(torch.Tensor)


def room(extra: int) -> int:
    """A budget of ``extra`` bytes more than is there."""
    gc.collect()
    with Budget(UNLIMITED) as probe:
        return probe.resident_bytes + extra


def chain(x: torch.Tensor, length: int) -> list[torch.Tensor]:
    """Tensors of 4 KiB, each made of the one before."""
    made = [x.sin()]
    for _ in range(length - 1):
        made.append(made[-1].cos())
    return made


def test_what_is_held_comes_back_at_the_end() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    with Budget(room(24 * KIB)) as budget:
        made = chain(x, 20)
        assert budget.usage.evictions >= 14
    assert all(map(identical, made, want))
    assert all(t.untyped_storage().nbytes() == 4 * KIB for t in made)


def test_every_way_to_read_a_tensor_sees_its_contents() -> None:
    x = torch.randn(1024)
    want = chain(x, 12)
    with Budget(room(28 * KIB)) as budget:
        made = chain(x, 12)
        for got, known in zip(made, want, strict=True):
            assert got.tolist() == known.tolist()
            assert repr(got) == repr(known)
            assert got[3].item() == known[3].item()
        assert identical(copy.deepcopy(made[0]), want[0])
        assert (made[1].numpy() == want[1].numpy()).all()
        file = io.BytesIO()
        torch.save(made[2], file)
        file.seek(0)
        assert identical(torch.load(file), want[2])
        assert identical(from_dlpack(made[3]), want[3])
        assert budget.usage.recomputations > 0


def test_an_array_over_a_tensor_stays_right() -> None:
    x = torch.randn(1024)
    want = chain(x, 12)
    with Budget(room(24 * KIB)):
        made = chain(x, 12)
        array = made[0].numpy()
        chain(x, 12)
        assert (array == want[0].numpy()).all()
        assert made[0].data_ptr() == array.ctypes.data


def test_a_budget_that_cannot_do_says_what_would() -> None:
    x = torch.randn(1024)
    with pytest.raises(BudgetInfeasible) as raised, Budget(1):
        x.sin()
    parts = ("aten.sin.default asks for", "existed before the budget was opened", "This op alone needs", "--least")
    for part in parts:
        assert part in str(raised.value)


def test_an_op_that_does_not_fit_names_the_budget_that_evicts_nothing() -> None:
    """Four tensors of 1 MiB, and a result of two."""

    def program(limit: int) -> Budget:
        with Budget(limit) as budget:
            held = [torch.ones(1 << 18)]
            while len(held) < 4:
                held.append(held[-1].sin())
            torch.cat([held[-1], held[-1]])
        return budget

    there = room(0)
    message = ""
    try:
        program(there + (5 << 19))
    except BudgetInfeasible as error:
        message = str(error)
    found = re.search(r"Without evictions about ([\d.]+) MiB", message)
    assert found is not None
    named = int(float(found[1]) * (1 << 20))
    assert abs(named - there - (6 << 20)) < 1 << 17
    assert program(named + (1 << 17)).usage.evictions == 0
    assert program(named - (1 << 18)).usage.evictions > 0


def test_after_an_error_everything_is_as_it_was() -> None:
    x = torch.randn(1024)
    want = chain(x, 12)
    with Budget(room(24 * KIB)):
        made = chain(x, 12)
        with pytest.raises(RuntimeError, match=r"mat1|size"):
            made[0].view(32, 32) @ made[1].view(16, 64)
        with pytest.raises(BudgetInfeasible):
            torch.cat([*made, *made])
        assert all(map(identical, chain(x, 12), want))
    assert all(map(identical, made, want))


def test_an_error_of_the_program_leaves_tensors_valid() -> None:
    x = torch.randn(1024)
    made: list[torch.Tensor] = []
    budget = Budget(room(24 * KIB))

    def fail() -> None:
        with budget:
            made.extend(chain(x, 12))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(map(identical, made, chain(x, 12)))


def test_one_budget_at_a_time_and_again_afterwards() -> None:
    budget = Budget("1GiB")
    with pytest.raises(RunError, match="never opened"):
        _ = budget.usage
    for _ in range(2):
        with budget:
            with pytest.raises(RunError, match="open already"), budget:
                pass
            with pytest.raises(RunError, match="open already"), tensortide.budget("1GiB"):
                pass
            torch.ones(3).sum()
        assert budget.usage.ops == 2


@pytest.mark.parametrize("limit", [0, -1, True, "50%", "much", ""])
def test_what_is_no_limit_is_refused(limit: int | str) -> None:
    with pytest.raises(RunError):
        Budget(limit)


def test_limits_are_sizes_shares_of_the_peak_of_a_step_or_what_is_free() -> None:
    assert Budget("8GiB").budget_bytes == 8 << 30
    assert Budget("auto", device="cpu").budget_bytes > 0
    graph = tensortide.capture(lambda: torch.ones(1000).sum())
    assert Budget("50%", graph=graph, device="cpu").budget_bytes == 4004 // 2
    assert Budget("150%", graph=graph, device="cpu").budget_bytes == 4004 * 3 // 2
    assert Budget(0.5, graph=graph, device="cpu").budget_bytes == 4004 // 2
    assert Budget("50%act", graph=graph, device="cpu").budget_bytes == 4 + 4000 // 2  # the sum is none
    with pytest.raises(RunError, match="'50%' is of the peak of a step, and none is given"):
        Budget("50%")
    with pytest.raises(RunError, match="more than '0%'; or 'auto'"):
        Budget("0%", graph=graph)


@pytest.mark.slow
def test_a_thousand_steps_leave_nothing_behind() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    update = torch.optim.AdamW(model.parameters())
    counter, total = torch.zeros(()), torch.zeros(())

    def step() -> None:
        nonlocal total
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        update.step()
        update.zero_grad()
        counter.add_(1)
        total = (total + torch.rand(())).detach()

    with Budget(room(16 * KIB)) as budget:
        assert budget.runtime is not None
        engine = budget.runtime.engine
        counter, total = torch.zeros(()), torch.zeros(())
        sizes = []
        for count in range(1000):
            step()
            if count in (300, 999):
                live = len(engine.storage_bytes), len(engine.storage), len(engine.cost_ns), len(budget.runtime.known)
                sizes.append((*live, len(budget.runtime.sizes._known), len(engine.waiting)))
    early, late = sizes
    assert all(after <= 1.5 * before + 64 for before, after in zip(early[3:], late[3:], strict=True)), sizes
    assert max(late) < 10_000, sizes
    assert counter.item() == 1000


def test_late_news_of_a_storage_does_not_hit_the_next_one_of_its_number() -> None:
    x, y = (Block.of(torch.empty(0).untyped_storage(), 10, lambda block: None) for _ in range(2))
    engine = LiveEngine(policy("lru"), 1000)
    engine.add_constant(x)
    engine.freed.append(x)
    engine.collect()
    engine.add_constant(y)
    assert y.storage == x.storage
    engine.freed.append(x)
    engine.collect()
    assert engine.references[y.storage] == 1


def test_copies_by_composite_ops_count_in_inference_mode() -> None:
    x = torch.randn(1024)
    with Budget(UNLIMITED) as budget, torch.inference_mode():
        before = budget.resident_bytes
        double = x.to(torch.float64)
        assert budget.resident_bytes - before == double.nbytes
        flat = torch.ones(32, 32).t().reshape(-1)
        assert budget.resident_bytes - before >= double.nbytes + flat.nbytes
