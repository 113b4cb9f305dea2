"""Ops of other libraries: what they write is followed, whatever their schemas say; some are recomputed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tensortide.run.budget import Budget
from tests.run.native import floats, put
from tests.run.same import UNLIMITED, identical

SIDE = 32


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        yield library


def scale(x: Tensor) -> None:
    """Double ``x`` by its address."""
    put(x, [2 * number for number in floats(x)])


def scaled(x: Tensor) -> Tensor:
    scale(x)
    return x.clone()


def scaled_in_place(x: Tensor) -> Tensor:
    scale(x)
    return x


WRITERS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "declared": ("op(Tensor(a!) x) -> ()", scale, "CompositeExplicitAutograd"),
    "declared and returned": ("op(Tensor(a!) x) -> Tensor", scaled, "CPU"),
    "inferred": ("op(Tensor _0) -> Tensor _0", scaled, "CPU"),
    "inferred, in parts": ("op(Tensor _0) -> Tensor _0", scaled, "CompositeImplicitAutograd"),
    "undeclared": ("op(Tensor x) -> Tensor", scaled, "CPU"),
    "undeclared, in parts": ("op(Tensor x) -> Tensor", scaled, "CompositeImplicitAutograd"),
    "nothing returned": ("op(Tensor x) -> ()", scale, "CompositeImplicitAutograd"),
    "itself returned": ("op(Tensor x) -> Tensor", scaled_in_place, "CPU"),
    "list": ("op(Tensor[] x) -> Tensor", lambda x: scaled(x[0]), "CPU"),
}


def squeezed(run: Callable[[], list[Tensor]], share: float) -> int:
    """``run`` leaves the same without a budget, without a limit, and in ``share`` of what it needs; the number of
    recomputations of the latter."""
    expected = run()
    with Budget(UNLIMITED) as free:
        before = free.resident_bytes
        assert all(map(identical, run(), expected))
    with Budget(int(before + (free.usage.peak_bytes - before) * share), workspace=False) as memory:
        found = run()
    assert all(map(identical, found, expected))
    return memory.usage.recomputations


@pytest.mark.parametrize("writer", WRITERS)
def test_what_they_write_is_followed(writer: str, library: torch.library.Library) -> None:
    schema, kernel, key = WRITERS[writer]
    library.define(schema)
    library.impl("op", kernel, key)
    op = torch.ops.tensortide_tests.op

    def run() -> list[Tensor]:
        x = torch.linspace(-1, 1, SIDE * SIDE).view(SIDE, SIDE)
        made = []
        for _ in range(4):
            y = x.sin()
            made += [y, y.cos().tanh()]
            op([y] if writer == "list" else y)
            made.append(y.tanh())
            if schema.startswith("op(Tensor") and "()" not in schema and "[]" not in schema:
                made.append(op(y.clone()))
        return [value * 2 for value in made]

    assert squeezed(run, 0.8) > 0


def _custom(library: torch.library.Library) -> Any:
    return torch.library.custom_op(
        "tensortide_tests::doubled", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
    )


def _defined(library: torch.library.Library) -> Any:
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", lambda x: x * 2, "CPU")
    torch.library.register_fake("tensortide_tests::op", lambda x: x.new_empty(x.shape), lib=library)
    return torch.ops.tensortide_tests.op


@pytest.mark.parametrize("promise", [_custom, _defined])
def test_those_that_say_what_they_write_are_recomputed(
    promise: Callable[[torch.library.Library], Any], library: torch.library.Library
) -> None:
    op = promise(library)
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        x = torch.ones(SIDE, SIDE)
        made = op(x)
        runtime.engine.evict(runtime.storage(made))
        assert identical(made + 0, x * 2)
        assert budget.usage.recomputations == 1


def test_custom_ops_may_write_and_draw_random_numbers(library: torch.library.Library) -> None:
    def tripled(x: Tensor, out: Tensor) -> None:
        torch.mul(x, 3, out=out)

    define: Any = torch.library.custom_op
    define("tensortide_tests::noise", lambda x: x + torch.randn_like(x), mutates_args=(), schema="(Tensor x) -> Tensor")
    define("tensortide_tests::tripled", tripled, mutates_args=("out",), schema="(Tensor x, Tensor(a!) out) -> ()")
    ops = torch.ops.tensortide_tests

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        made = [torch.linspace(-1, 1, SIDE * SIDE).view(SIDE, SIDE)]
        for _ in range(5):
            into = torch.zeros_like(made[-1])
            ops.tripled(made[-1], into)
            made += [ops.noise(into.sin()), into.cos()]
        return [value * 2 for value in made]

    assert squeezed(run, 0.8) > 0


def test_ops_that_are_not_believed_do_not_run_on_tensors_without_memory(library: torch.library.Library) -> None:
    calls = []

    def doubled(x: Tensor) -> Tensor:
        calls.append(x.device)
        return x * 2

    library.define("op(Tensor x) -> Tensor")
    library.impl("op", doubled, "CompositeExplicitAutograd")
    with Budget(UNLIMITED):
        torch.ops.tensortide_tests.op(torch.ones(4))
    assert calls == [torch.device("cpu")]


HANDED: dict[str, Callable[[Tensor], object]] = {
    "address": lambda x: ctypes.memset(x.data_ptr(), 0, x.numel() * 4),
    "storage": lambda x: ctypes.memset(x.untyped_storage().data_ptr(), 0, x.numel() * 4),
    "numpy": lambda x: x.numpy().fill(7),
    "array": lambda x: np.asarray(x).fill(7),
    "view": lambda x: x[2:].numpy().fill(7),
}


@pytest.mark.parametrize("how", HANDED)
@pytest.mark.parametrize("share", [0.7, 0.9])
def test_addresses_may_be_written_at_once(how: str, share: float) -> None:
    def run() -> list[Tensor]:
        x = torch.linspace(-1, 1, SIDE * SIDE).view(SIDE, SIDE)
        made = []
        for _ in range(4):
            y = x.sin()
            made += [y, y.cos().tanh()]
            HANDED[how](y)
            made.append(y.tanh())
        return [value * 2 for value in made]

    squeezed(run, share)
