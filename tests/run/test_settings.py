"""A recomputed op runs under the settings of the process that held when it first ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tensortide.errors import RunError
from tensortide.run.budget import Budget
from tensortide.run.settings import applied, snapshot
from tests.run.same import identical

KIB = 1 << 10


@contextmanager
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SET_THREADS, SET_FLUSHING = torch.set_num_threads, torch.set_flush_denormal
"""As a program has them that imports the functions themselves."""


@contextmanager
def unseen(change: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


@contextmanager
def flushed() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def ratios(count: Tensor) -> Tensor:
    return count / (count + 3)  # of integers: their dtype is the default one


def tiny(x: Tensor) -> Tensor:
    return x * 1e-37


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Tensor], Tensor], Callable[[], Tensor]]] = {
    "default dtype": (double, ratios, lambda: torch.arange(4096).reshape(64, 64)),
    "denormal numbers": (flushed, tiny, lambda: torch.full((64, 64), 1e-3)),
    "denormal numbers, unseen": (lambda: unseen(SET_FLUSHING, True, False), tiny, lambda: torch.full((64, 64), 1e-3)),
    "threads, unseen": (
        lambda: unseen(SET_THREADS, 3, torch.get_num_threads()),
        lambda x: torch.stack([(x * k).square().sum() for k in range(1, 9)]),
        lambda: torch.linspace(0, 9, 1 << 18).cos(),
    ),
    "convolutions": (
        lambda: torch.backends.mkldnn.flags(enabled=False),
        lambda x: nn.functional.conv2d(x, torch.linspace(-1, 1, 9216).sin().reshape(32, 32, 3, 3), padding=1),
        lambda: torch.linspace(0, 9, 16384).cos().reshape(2, 32, 16, 16),
    ),
}


@pytest.mark.filterwarnings("ignore:.*TF32")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_value_is_recomputed_under_the_settings_of_its_op(name: str, inside: bool, compiled: bool) -> None:
    setting, compute, given = SETTINGS[name]

    def made(x: Tensor) -> Tensor:
        if not inside:
            return compute(x)
        with setting():
            return compute(x)

    x = given()
    expected = made(x)
    with Budget(1 << 60, compiled=compiled) as budget:
        runtime = budget.runtime
        assert runtime is not None
        for _ in range(2):  # the compiled core leaves what is new to Python
            made(x)
        found = made(x)
        runtime.engine.evict(runtime.storage(found))
        with torch.no_grad():
            if inside:
                assert identical(found.clone(), expected)
            else:
                with setting():
                    assert identical(found.clone(), expected)
        assert budget.usage.recomputations
        before = snapshot()
    assert snapshot() == before


def test_a_custom_op_may_read_its_arguments_by_address_when_it_runs_again() -> None:
    with torch.library._scoped_library("tensortide_settings", "FRAGMENT"):
        op = torch.library.custom_op(
            "tensortide_settings::looked",
            lambda x, y: torch.from_numpy(x.numpy() + y.numpy()),
            mutates_args=(),
            schema="(Tensor x, Tensor y) -> Tensor",
        )
        op.register_fake(lambda x, y: torch.empty_like(x))
        x = torch.ones(KIB)
        with Budget(1 << 60) as budget:
            runtime = budget.runtime
            assert runtime is not None
            values = [x.sin()]
            for _ in range(6):
                values.append(op(values[-1], x.cos()) * 0.5)
            for value in values:
                storage = runtime.storage(value)
                if storage in runtime.engine.pool:
                    runtime.engine.evict(storage)
            found = [value.clone() for value in values]
        value = x.sin()
        for each in found:
            assert identical(each, value)
            value = (value + x.cos()) * 0.5


def test_a_setting_that_is_put_back_is_as_it_was() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        before = snapshot()
        torch.use_deterministic_algorithms(False)
        with applied(before):
            assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        with double(), applied(before):
            assert snapshot() == before
        assert snapshot() == before
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_result_of_another_size_is_an_error_that_spoils_nothing(compiled: bool) -> None:
    size = [64]
    with torch.library._scoped_library("tensortide_settings", "FRAGMENT"):
        op = torch.library.custom_op(
            "tensortide_settings::sized",
            lambda x: torch.ones(size[0]) * x.sum(),
            mutates_args=(),
            schema="(Tensor x) -> Tensor",
        )
        op.register_fake(lambda x: x.new_empty(64))
        x = torch.ones(64)
        with Budget(1 << 60, compiled=compiled) as budget:
            runtime = budget.runtime
            assert runtime is not None
            value = op(x) * 1
            made = op(x)
            runtime.engine.evict(runtime.storage(made))
            size[0] = 128
            with pytest.raises(RunError, match="512 bytes when it was recomputed and 256 at first"):
                made.sum()
            size[0] = 64
            assert float(made.sum()) == float(value.sum()) == 64 * 64
