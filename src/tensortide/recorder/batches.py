"""Iterators of data: what a capture takes from them is given back, and loading is no part of the step."""

from __future__ import annotations

import contextlib
import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from tensortide.recorder.surroundings import replaced

_SOURCES = ("builtins", "itertools")


class Batches(Iterator[Any]):
    """Stands for a data iterator during capture. ``replace`` makes an item one of the capture's."""

    def __init__(self, source: Iterator[Any], replace: Callable[[Any], Any]) -> None:
        self._given = self._source = source
        with contextlib.suppress(TypeError):  # a cycle keeps what it was given, and may not keep the capture's
            self._source = _twin(source)
        self._replace = replace
        self._taken: list[Any] = []
        self._back: Iterator[Any] | None = None

    def __next__(self) -> Any:
        with _disable_current_modes():
            item = next(self._source)
            if not any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(item)):
                self._taken.append(item)  # one that was made of stand-ins is of no use to the user
            return self._replace(item)

    def __getattr__(self, name: str) -> Any:
        """The rest of a generator: send, throw, close."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)

    def given_back(self) -> Iterator[Any]:
        """The iterator as it was before anything was taken from it; the same one for all who hold it."""
        if self._source is not self._given:
            return self._given
        if self._back is None:
            self._back = itertools.chain(self._taken, self._source) if self._taken else self._source
        return self._back


def _twin(source: Iterator[Any]) -> Any:
    """Another iterator at the same place: over lists and the like, cycles of them, chains. Raises TypeError where none
    can be made."""
    if type(source).__module__ not in _SOURCES or type(source).__name__ in ("_tee", "callable_iterator"):
        raise TypeError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons mean to do without
        reduced: Any = source.__reduce__()  # a generator has none
    kind, args, *state = reduced
    twin = kind(*[_twin(part) if isinstance(part, Iterator) else part for part in args])
    if state and state[0] is not None:
        twin.__setstate__(tuple(map(_repeatable, state[0])) if isinstance(state[0], tuple) else state[0])
    return twin


def _repeatable(part: Any) -> Any:
    if isinstance(part, Iterator):
        return _twin(part)
    return list(part) if type(part) is list else part


def is_source(value: Any) -> bool:
    """True for an iterator that has no state but its position. One of a user's own class is an object like others."""
    if not isinstance(value, Iterator) or isinstance(value, io.IOBase):
        return False
    return type(value).__module__ in _SOURCES or isinstance(value, _BaseDataLoaderIter)


def loaders(replace: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Let data loaders load as ever, on real data, and hand out ``replace``d batches."""
    iterate = DataLoader.__iter__

    def batches(loader: DataLoader[Any]) -> Any:
        with _disable_current_modes():
            return Batches(iterate(loader), replace)

    return replaced(DataLoader, "__iter__", batches)
