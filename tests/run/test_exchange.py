"""Storages that exchange their bytes, by PyTorch's function and by ours for versions without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("tensortide.run.evicted")

from tensortide.run import evicted
from tensortide.run.evicted import evict, exchange, unreadable


@pytest.fixture(params=["PyTorch's", "ours"])
def swap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    if request.param == "PyTorch's":
        return exchange
    monkeypatch.setattr(evicted, "_PARTS", evicted._exchanged())
    return evicted._exchange


def test_bytes_and_sizes_change_places(swap: Callable[..., None]) -> None:
    x = torch.arange(10.0)
    before, empty = x.untyped_storage().data_ptr(), torch.UntypedStorage(0)
    swap(x.untyped_storage(), empty)
    assert (x.untyped_storage().nbytes(), empty.nbytes(), empty.data_ptr()) == (0, 40, before)
    swap(x.untyped_storage(), empty)
    assert torch.equal(x, torch.arange(10.0))


def test_each_owner_frees_what_it_has_in_the_end(swap: Callable[..., None]) -> None:
    for _ in range(200):
        x, y = torch.ones(100_000), torch.zeros(100_000)
        swap(x.untyped_storage(), y.untyped_storage())
        del x
        assert bool((y == 1).all())


def test_an_evicted_storage_becomes_an_ordinary_one(swap: Callable[..., None]) -> None:
    x = torch.ones(6)
    evict(x.untyped_storage())
    with pytest.raises(RuntimeError) as error:
        x.untyped_storage().data_ptr()
    assert unreadable(error.value)
    swap(x.untyped_storage(), torch.full((6,), 3.0).untyped_storage())
    assert x.tolist() == [3.0] * 6
