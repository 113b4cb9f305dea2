"""A program may free and enlarge storages itself, in ways that no op shows: the books follow, and results are right."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tensortide.errors import BudgetInfeasible
from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED, identical

KIB = 1 << 10


def room(extra: int) -> int:
    """A budget of ``extra`` bytes more than is there."""
    gc.collect()
    with Budget(UNLIMITED) as probe:
        return probe.resident_bytes + extra


def chain(x: Tensor, length: int) -> list[Tensor]:
    """Tensors of 4 KiB, each made of the one before."""
    made = [x.sin()]
    for _ in range(length - 1):
        made.append(made[-1].cos())
    return made


def typed(tensor: Tensor, nbytes: int) -> None:
    tensor._typed_storage()._resize_(nbytes // tensor.itemsize)


def untyped(tensor: Tensor, nbytes: int) -> None:
    tensor.untyped_storage().resize_(nbytes)


def op(tensor: Tensor, nbytes: int) -> None:
    tensor.resize_(nbytes // tensor.itemsize)


def by_set(tensor: Tensor, nbytes: int) -> None:
    tensor.set_(tensor.untyped_storage(), 0, (nbytes // tensor.itemsize,), (1,))


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("resize", [typed, untyped])
def test_what_the_program_frees_is_free_and_what_was_made_of_it_stays_right(
    resize: Callable[[Tensor, int], None], tight: bool
) -> None:
    x = torch.randn(1024)
    want = chain(x, 12)
    with Budget(room((24 if tight else 400) * KIB)) as budget:
        made = chain(x, 3)
        before = budget.resident_bytes
        resize(made[0], 0)
        assert budget.resident_bytes == before - 4 * KIB
        assert made[0].untyped_storage().nbytes() == 0
        made += chain(x, 12)  # which makes the results of what was freed go, if room is tight
        resize(made[0], 4 * KIB)
        made[0].copy_(x.sin())
        assert identical(made[1], want[1])
        resize(made[3], 0)
        assert (budget.usage.evictions > 0) is tight
    assert made[3].untyped_storage().nbytes() == 0  # the program freed it: nothing brings it back
    assert all(map(identical, made[:3], want))
    assert all(map(identical, made[4:], want[1:]))


@pytest.mark.parametrize("resize", [typed, untyped, op, by_set])
def test_room_is_made_for_what_the_program_enlarges(resize: Callable[[Tensor, int], None]) -> None:
    x = torch.randn(1024)
    want = chain(x, 12)
    limit = room(52 * KIB)
    with Budget(limit) as budget:
        made = chain(x, 11)
        before = budget.resident_bytes
        resize(made[3], 16 * KIB)
        assert budget.usage.evictions > 0
        assert budget.usage.peak_bytes <= limit
        assert identical(made[3].flatten()[:1024], want[3])
        assert identical(made[4], want[4])
        resize(made[3], 32 * KIB)
        assert budget.usage.peak_bytes <= limit
        assert budget.resident_bytes >= before + 28 * KIB - 11 * 4 * KIB
        with pytest.raises(BudgetInfeasible):
            resize(made[3], 512 * KIB)
        assert made[3].untyped_storage().nbytes() == 32 * KIB
    assert all(map(identical, made[4:], want[4:]))


def test_another_thread_may_resize() -> None:
    with Budget(room(64 * KIB)) as budget:
        x = torch.randn(1024)
        y = x.sin()
        before = budget.resident_bytes
        thread = threading.Thread(target=y.untyped_storage().resize_, args=(0,))
        thread.start()
        thread.join()
        assert budget.resident_bytes == before - 4 * KIB
    assert y.untyped_storage().nbytes() == 0
