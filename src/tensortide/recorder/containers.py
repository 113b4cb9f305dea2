"""Swap what Python's own containers hold, and put it back: dicts, lists, tuples, sets, partial calls, caches."""

from __future__ import annotations

import collections
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from tensortide.recorder.batches import Batches


class Containers(ABC):
    """The part of an Isolation that knows containers. ``visit`` is what is done with each thing they hold."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}
        self._depth = 0
        self._undo: list[Callable[[], None]] = []
        self._containers: tuple[tuple[Any, Callable[[Any, str], Any]], ...] = (
            (dict, self._dict),
            (list, self._list),
            (tuple, self._tuple),
            ((set, frozenset, collections.deque), self._collection),
            (functools.partial, self._partial),
            (functools._lru_cache_wrapper, self._cached),
        )

    @abstractmethod
    def visit(self, value: Any, path: str = "") -> Any:
        """``value`` with its tensors swapped: the same object if it can be changed in place, else a copy."""

    def _back(self, value: Any) -> Any:
        """Value to restore in place of ``value``: itself, or a twin of a data iterator that repeats its batches."""
        if isinstance(value, Batches):
            return value.given_back()
        seen = self._seen.get(id(value))
        stand_in = seen[1] if seen is not None and seen[0] is value else None
        return stand_in.given_back() if isinstance(stand_in, Batches) and stand_in is not value else value

    def _attributes(self, value: Any, path: str) -> None:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict) and attributes:
            self.visit(attributes, path)

    def _key(self, key: Any) -> Any:
        """A key names nothing: its tensors have their names from where they live."""
        self._depth += 1
        try:
            return self.visit(key)
        finally:
            self._depth -= 1

    def _dict(self, value: dict[Any, Any], path: str) -> dict[Any, Any]:
        plain: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        before = dict(plain.items(value))

        def fill(items: dict[Any, Any]) -> None:  # by the base class: a subclass may refuse or count
            plain.clear(value)
            for key, item in items.items():
                plain.__setitem__(value, key, item)

        self._undo.append(lambda: fill({key: self._back(item) for key, item in before.items()}))
        keys_changed = False
        after: dict[Any, Any] = {}
        for i, (key, item) in enumerate(before.items()):
            new_key = self._key(key) if isinstance(key, (torch.Tensor, tuple)) else key
            keys_changed |= new_key is not key
            after[new_key] = self.visit(item, join(path, key if isinstance(key, (str, int)) else i))
        if keys_changed:
            fill(after)
        else:
            for key, item in after.items():
                if item is not before[key]:
                    plain.__setitem__(value, key, item)
        self._attributes(value, path)
        return value

    def _list(self, value: list[Any], path: str) -> list[Any]:
        before = list(value)

        def undo() -> None:
            list.__setitem__(value, slice(None), [self._back(item) for item in before])

        self._undo.append(undo)
        for i, item in enumerate(before):
            new = self.visit(item, f"{path}[{i}]")
            if new is not item:
                list.__setitem__(value, i, new)
        self._attributes(value, path)
        return value

    def _tuple(self, value: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        items = [self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)

    def _collection(self, value: Any, path: str) -> Any:
        items = [self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, frozenset):
            return value if all(new in value for new in items) else frozenset(items)
        before = list(value)

        def undo() -> None:
            value.clear()
            _extend(value, [self._back(item) for item in before])

        self._undo.append(undo)
        value.clear()
        _extend(value, items)
        return value

    def _partial(self, value: functools.partial[Any], path: str) -> Any:
        func, args, keywords = self.visit(value.func, path), self.visit(value.args, path), dict(value.keywords)
        keywords = {name: self.visit(item, join(path, name)) for name, item in keywords.items()}
        unchanged = func is value.func and args is value.args
        if unchanged and all(keywords[name] is item for name, item in value.keywords.items()):
            return value
        return functools.partial(func, *args, **keywords)

    def _cached(self, value: Any, path: str) -> Any:
        """A cache of its own: what the step's calls return is not for the user's."""
        return functools.lru_cache(**value.cache_parameters())(self.visit(value.__wrapped__, path))


def join(path: str, key: object) -> str:
    """The path of what ``key`` leads to from ``path``."""
    if not isinstance(key, str):
        return f"{path}[{key!r}]" if isinstance(key, int) else path
    return f"{path}.{key}" if path else key


def _extend(value: Any, items: list[Any]) -> None:
    (value.update if isinstance(value, set) else value.extend)(items)
