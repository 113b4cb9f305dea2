"""``budget(check=True)`` finds what a budget cannot see, names it, and finds nothing in ordinary programs."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tensortide
from tensortide.errors import BudgetInfeasible, RunError
from tensortide.examples import find
from tensortide.run.budget import current
from tests.examples.tiny import TINY
from tests.marks import some_slow
from tests.run.layers import QUICK
from tests.run.native import address_of, put
from tests.run.programs import Program
from tests.run.same import UNLIMITED
from tests.run.training import Training


def define(name: str, function: Callable[[Tensor], Tensor]) -> Any:
    return torch.library.custom_op(
        f"tensortide_checks::{name}", function, mutates_args=(), schema="(Tensor x) -> Tensor"
    )


def write(address: int) -> None:
    ctypes.memset(address, 0, 16)


def old_address(given: Tensor) -> list[Tensor]:
    made = given.sin()
    write(OLD[0])
    return [made, given + 1]


def old_array(given: Tensor) -> list[Tensor]:
    made = given.cos()
    OLD[1][:2] = 3
    return [made]


def result(given: Tensor) -> list[Tensor]:
    x = given.tanh()
    made = x.exp()
    put(x, [5.0])
    return [made, x.sin()]


def evicted(given: Tensor) -> list[Tensor]:
    x = given.tanh()
    put(x, [5.0])
    tensortide.live.set_memory_budget(current().resident_bytes - 4)
    return [x]


def lying(given: Tensor) -> list[Tensor]:
    return [LIES(given.tanh())]


def unrepeatable(given: Tensor) -> list[Tensor]:
    return [NUMPY(given)]


OLD: list[Any] = [0, np.zeros(0)]
LIES = define("lies", lambda x: x.mul_(2).clone())
NUMPY = define("numpy", lambda x: x + float(np.random.default_rng().random()))
UNSEEN: dict[Callable[[Tensor], list[Tensor]], str] = {
    old_address: r"float32\[64\], from outside .* unseen between aten.sin.default at .*check.py:\d+ .* and aten.add",
    old_array: r"float32\[64\], from outside .* unseen between aten.cos.default at .* and the end of the budget",
    result: r"the result of aten.tanh.default at .* unseen between aten.exp.default at .* and aten.sin.default",
    evicted: r"the result of aten.tanh.default at .* unseen between .* and its eviction",
    lying: r"unseen between the start and the end of tensortide_checks.lies.default at .*test_check.py",
    unrepeatable: r"does not repeat: float32\[64\], the result of tensortide_checks.numpy.default at .*test_check.py",
}


@pytest.mark.parametrize("program", UNSEEN)
def test_it_finds_what_is_not_seen(program: Callable[[Tensor], list[Tensor]]) -> None:
    gc.collect()
    given = torch.linspace(0, 1, 64)
    OLD[:] = [address_of(given), given.numpy()]
    with pytest.raises(RunError, match=UNSEEN[program]) as caught, tensortide.budget(UNLIMITED, check=True):
        made = program(given)  # noqa: F841  # whatever it made is still there at the end
    assert "\n" not in str(caught.value)
    assert torch.equal(given.sin().cos(), given.clone().sin().cos())  # no budget is open any more


def test_native_code_that_is_followed_is_no_finding() -> None:
    given, losses = torch.linspace(0, 1, 64), []
    array, kept = given.numpy(), given
    with tensortide.budget(UNLIMITED, check=True) as memory:
        for turn in range(3):
            array[:] = turn  # of which nothing is left
            losses.append(float(given.exp().sum()))
            before = given.sin().numpy()
            kept = torch.from_numpy(before).cos()
            before[:] = turn
            made, zeros = torch.empty(64), torch.zeros(64)
            put(made, [1.0] * 64)
            put(zeros, [2.0] * 64)
            total = (made + zeros).relu_()
            ctypes.memset(total.data_ptr(), 0, 16)
            made = total * 2
            del total
    assert memory.usage.ops > 0
    assert torch.equal(kept, given.sin().cos())
    assert losses[0] != losses[1]


def assert_nothing_found(build: Callable[[], Callable[[], Any]], every: int, steps: int = 2) -> None:
    """``build`` makes a step of which nothing is found under a tight budget, or without a limit where none suffices."""
    torch.manual_seed(0)
    step = build()
    with tensortide.budget(UNLIMITED) as free:
        before = free.resident_bytes
        step()
    for limit in (int(before + (free.usage.peak_bytes - before) * 0.8), UNLIMITED):
        torch.manual_seed(0)
        step = build()
        try:
            with tensortide.budget(limit, check=every):
                for _ in range(steps):
                    step()
        except BudgetInfeasible:
            assert limit < UNLIMITED
        else:
            return


@pytest.mark.parametrize("seed", [0, 4])
def test_nothing_is_found_in_random_programs(seed: int) -> None:
    assert_nothing_found(lambda: Program(seed).step, 1 + seed % 3)


@pytest.mark.filterwarnings("ignore:(.torch.jit.script. is deprecated|None of the inputs have requires_grad)")
@pytest.mark.parametrize(
    "names",
    [*(QUICK[start::9] for start in range(9)), pytest.param(["forward-mode", "rnn"], marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_nothing_is_found_in_training_loops(names: list[str]) -> None:
    assert_nothing_found(lambda: Training(1, names), 1, steps=1)


@pytest.mark.parametrize("name", some_slow(["gpt2", "resnet18_cifar"], ["resnet18_cifar"]))
def test_nothing_is_found_in_examples(name: str) -> None:
    assert_nothing_found(lambda: find(name).load()(**TINY[name]), 1)


def test_what_is_no_count_is_refused() -> None:
    with pytest.raises(RunError, match="every -1-th"):
        tensortide.budget("1MiB", check=-1)
