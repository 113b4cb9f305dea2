"""A search for tensors finds what objects store, and runs nothing that the program has written."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tensortide.recorder.found import reached

ONE = torch.ones(1)


class Refusing(Mapping[str, Any]):
    """A mapping, as those of configurations, whose values cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise ValueError(key)

    def __iter__(self) -> Iterator[str]:
        raise ValueError

    def __len__(self) -> int:
        raise ValueError


class Proxy:
    """An object that computes whatever it is asked for, its class included."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError


class Owner:
    """An object with a tensor, and with what must not be called."""

    def __init__(self) -> None:
        self.weight = ONE
        self._loaded = False

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    @property
    def lazy(self) -> Any:
        raise AssertionError


class Loud(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError


class LoudList(list[Any]):
    def __getitem__(self, at: Any) -> Any:
        raise AssertionError

    def __iter__(self) -> Any:
        raise AssertionError


def test_nothing_of_the_program_runs() -> None:
    values = {"a": Refusing(), "b": Proxy(), "c": Owner(), "d": Loud(x=ONE + 1), "e": LoudList([ONE + 2])}
    assert set(reached(values, "v").tensors) == {"v.c.weight", "v.d.x", "v.e[0]"}


def test_containers_of_libraries_have_their_keys_as_names() -> None:
    batch = UserDict(ids=ONE)
    assert set(reached(batch, "batch").tensors) == {"batch.ids"}
    assert set(reached(OrderedDict(ids=ONE), "batch").tensors) == {"batch.ids"}
