"""Memory that is written past PyTorch while a budget is open: nothing is recomputed from the new bytes."""

from __future__ import annotations

import ctypes
import os
import random
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tensortide.errors import RunError
from tensortide.run.budget import Budget
from tests.run.native import floats
from tests.run.same import UNLIMITED, identical

SIZE = 20_000
"""More than what is copied in any case."""
SEEDS = range(200 if os.environ.get("TENSORTIDE_LIVE") else 4)
Imported = Callable[[Any], Tensor]
IMPORTS: dict[str, Imported] = {
    "from_numpy": torch.from_numpy,
    "view of an array": lambda array: torch.from_numpy(array[::2]),
    "as_tensor": torch.as_tensor,
    "asarray": torch.asarray,
    "frombuffer": lambda array: torch.frombuffer(memoryview(array), dtype=torch.float32),
    "DLPack": torch.utils.dlpack.from_dlpack,
    "array interface": lambda array: torch.from_numpy(np.asarray(Interface(array))),
    "storage": lambda array: torch.asarray(
        torch.from_numpy(array).untyped_storage()[0 : 4 * SIZE], dtype=torch.float32
    ),
}


class Interface:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


Writer = Callable[[float], object]
"""Writes a number into the second half of a tensor, or a part of it."""


def _by_address(address: int) -> Writer:
    numbers = (ctypes.c_float * SIZE).from_address(address)
    return lambda number: numbers.__setitem__(slice(SIZE // 2, SIZE), [number] * (SIZE // 2))


def _by_array(array: Any) -> Writer:
    def write(number: float) -> None:
        array[SIZE // 2 :] = number

    return write


def _by_storage(storage: torch.UntypedStorage) -> Writer:
    def write(number: float) -> None:
        storage[2 * SIZE : 2 * SIZE + 64] = int(number * 4)  # one op for each byte

    return write


def _by_fill(storage: Any) -> Writer:
    return lambda number: storage.fill_(int(number * 4))


def _by_copy(storage: torch.UntypedStorage) -> Writer:
    return lambda number: storage.copy_(torch.full((SIZE,), number).untyped_storage())


EXPORTS: dict[str, Callable[[Tensor], Writer]] = {
    "numpy": lambda t: _by_array(t.numpy()),
    "numpy of a view": lambda t: _by_array(t.view(2, -1)[:].numpy().reshape(-1)),
    "asarray": lambda t: _by_array(np.asarray(t)),
    "array": lambda t: _by_array(t.__array__()),
    "view of the array": lambda t: _by_array(t.numpy()[1:].view(np.uint32)[1:].view(np.float32)),
    "records": lambda t: _by_array(t.numpy().view(np.recarray)),
    "memoryview": lambda t: _by_array(np.frombuffer(t.numpy().data, dtype=np.float32)),
    "DLPack": lambda t: _by_array(np.from_dlpack(t)),
    "back again": lambda t: _by_array(torch.from_numpy(t.numpy()).numpy()),
    "address": lambda t: _by_address(t.data_ptr()),
    "address of the storage": lambda t: _by_address(t.untyped_storage().data_ptr()),
    "address of the typed storage": lambda t: _by_address(t.storage().data_ptr()),
    "storage": lambda t: _by_storage(t.untyped_storage()),
    "fill": lambda t: _by_fill(t.untyped_storage()),
    "copy": lambda t: _by_copy(t.untyped_storage()),
}


def in_turns(ways: Iterable[Any]) -> list[tuple[Any, bool]]:
    """Each of ``ways``, by turns with the compiled core and without: what is noticed does not depend on it."""
    return [(way, number % 2 == 1) for number, way in enumerate(ways)]


def evict_all(budget: Budget) -> None:
    assert budget.runtime is not None
    budget.runtime.promote()
    engine = budget.runtime.engine
    for storage in list(engine.pool):
        if storage in engine.pool:
            engine.evict(storage)


def assert_followed(program: Callable[[Callable[[], None]], list[Tensor]], compiled: bool) -> None:
    """``program`` leaves the same without a budget and under one, where all that can be evicted goes whenever it
    calls what it is given."""
    expected = program(lambda: None)
    for _ in range(2):  # the compiled core has ops that it knows
        with Budget(UNLIMITED, compiled=compiled) as budget:
            found = program(lambda: evict_all(budget))
        assert all(map(identical, found, expected))


def made_from(x: Tensor, evict: Callable[[], None], write: Writer, turns: int = 3) -> list[Tensor]:
    """Values made from ``x`` between writes to it."""
    held: list[Tensor] = []
    for turn in range(turns):
        w = x.sum().cos()  # less than a copy of x
        y = x * 2
        z = y.sin()
        y += x
        held += [w, x[1:] + 1, y, z, torch.stack([x, x]), z + x]
        evict()
        write(turn + 0.5)
        evict()
    return [*held, x.clone()]


@pytest.mark.parametrize(("how", "compiled"), in_turns(IMPORTS))
def test_memory_from_outside_may_be_written(how: str, compiled: bool) -> None:
    def program(evict: Callable[[], None]) -> list[Tensor]:
        array = np.linspace(0, 1, SIZE, dtype=np.float32)
        return made_from(IMPORTS[how](array), evict, array.fill)

    assert_followed(program, compiled)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(("how", "compiled"), in_turns(EXPORTS))
def test_memory_that_others_may_write_is_followed(how: str, compiled: bool) -> None:
    def program(evict: Callable[[], None]) -> list[Tensor]:
        x = torch.linspace(0, 1, SIZE).cos()
        before = x.exp()
        write = EXPORTS[how](x)
        return [*made_from(x, evict, write), before, *made_from(x.clone(), evict, lambda _: None)]

    assert_followed(program, compiled)


def interleaved(seed: int, evict: Callable[[], None]) -> list[Tensor]:
    """Ops, imports and exports of arrays, writes to them and past them, and evictions, as ``seed`` has it."""
    dice = random.Random(seed)
    held, arrays = [torch.linspace(0, 1, SIZE)], [np.linspace(0, 1, SIZE, dtype=np.float32)]
    for turn in range(60):
        x, y = dice.choice(held), dice.choice(held)
        move = dice.choice("iewwdpvvaaaosE")
        if move == "i":
            held.append(torch.from_numpy(dice.choice(arrays)))
        elif move == "e":
            arrays.append(x.numpy())
        elif move == "w":
            dice.choice(arrays)[dice.randrange(SIZE) :] = turn / 60
        elif move == "d":
            arrays = [np.zeros(SIZE, np.float32), *arrays[dice.randrange(len(arrays)) :]]
        elif move == "p":
            x[dice.randrange(SIZE) :].mul_(0.5)
        elif move == "v":
            held.append(torch.stack([x, y.cos()])[dice.randrange(2)])
        elif move == "a":
            held.append(x + y.sin())
        elif move == "o":
            held.append(torch.zeros(SIZE).add_(x).mul_(y))
        elif move == "s":
            held.append(x.mean().cos() * y)
        else:
            evict()
        held = held[-8:]
    evict()
    return [x.clone() for x in held]


@pytest.mark.parametrize(("seed", "compiled"), in_turns(SEEDS))
def test_any_order_of_reads_and_writes_is_followed(seed: int, compiled: bool) -> None:
    assert_followed(lambda evict: interleaved(seed, evict), compiled)


class Held:
    """Something of a program that has an array."""

    def __init__(self, array: Any) -> None:
        self.array = array


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "variable": lambda array: array,
    "attribute": Held,
    "dictionary": lambda array: [{"array": array}],
    "tuple": lambda array: [(0, array)],
    "view": lambda array: array[1:].view(np.uint32),
    "records": lambda array: array.view(np.recarray)[1:],
    "memoryview": memoryview,
    "generator": lambda array: (number for number in array),
}


def holding(hold: Callable[[Any], Any], array: Any, action: Callable[[], None]) -> None:
    """Do ``action`` while something holds ``array``. Variables are left alone in functions that ask for ``locals()``,
    which is what an assertion does under pytest."""
    held = hold(array)
    del array
    action()
    del held


@pytest.mark.parametrize(("how", "compiled"), in_turns(HOLDERS))
def test_arrays_from_before_are_found(how: str, compiled: bool) -> None:
    x = torch.linspace(0, 1, SIZE)
    address, before = x.data_ptr(), x.clone()

    def program(evict: Callable[[], None]) -> list[Tensor]:
        x.copy_(before)
        return made_from(x, evict, _by_address(address))

    holding(HOLDERS[how], x.numpy(), lambda: assert_followed(program, compiled))
    with Budget(UNLIMITED) as budget:
        assert budget.runtime is not None
        y = x * 2
        evict_all(budget)
        assert not budget.runtime.engine.resident[budget.runtime.storage(y)]


def test_tensors_live_as_long_as_without_the_search_for_arrays() -> None:
    x = torch.ones(SIZE)
    gone = weakref.ref(x)
    with Budget(UNLIMITED):
        del x
        assert gone() is None


def test_what_was_loaded_from_disk_is_written_by_nobody_else(tmp_path: Path) -> None:
    torch.save(torch.ones(SIZE), tmp_path / "saved.pt")
    for mapped in (False, True):
        x = torch.load(tmp_path / "saved.pt", mmap=mapped)
        with Budget(UNLIMITED) as budget:
            y = x * 2
            evict_all(budget)
            assert budget.usage.evictions == 1
        assert identical(y, torch.full((SIZE,), 2.0))


def test_addresses_that_are_not_kept_cost_nothing(tmp_path: Path) -> None:
    layer, x = torch.nn.Linear(1, SIZE), torch.ones(SIZE)
    with Budget(UNLIMITED) as budget:
        torch.save([layer.state_dict(), x], tmp_path / "saved.pt")
        assert layer.weight.data_ptr() != layer.state_dict()["bias"].untyped_storage().data_ptr()
        y = layer(x[:1])
        evict_all(budget)
        assert budget.usage.evictions > 0
    assert identical(y, layer(x[:1]))


def test_what_is_evicted_is_not_read_by_address() -> None:
    expected = r"native code called at .*native.py:\d+ reads the memory of a tensor that is evicted"
    with pytest.raises(RunError, match=expected) as caught, Budget(UNLIMITED) as budget:  # noqa: PT012
        x = torch.linspace(0, 1, SIZE).cos()
        evict_all(budget)
        floats(x)
    assert "\n" not in str(caught.value)
    assert identical(x, torch.linspace(0, 1, SIZE).cos())


def test_an_op_that_reads_what_is_evicted_is_named() -> None:
    read = torch.library.custom_op("tensortide_outside::read", _read, mutates_args=(), schema="(Tensor x) -> Tensor")
    expected = r"tensortide_outside.read.default reads the memory of a tensor that is evicted"
    with pytest.raises(RunError, match=expected), Budget(UNLIMITED) as budget:  # noqa: PT012
        OTHER.append(torch.linspace(0, 1, SIZE).cos())
        evict_all(budget)
        read(torch.ones(2))


def _read(x: Tensor) -> Tensor:
    return x + floats(OTHER.pop())[0]


OTHER: list[Tensor] = []
