"""Input patterns: which elements of a batch become which arguments of the model, and which are left over.

>>> InputPattern((1, "_", 0)).arguments(["mask", "label", "image"]).positional
('image', 'mask')
>>> InputPattern({"ids": "input_ids", "mask": "attention_mask"}).arguments({"ids": 1, "mask": 2, "labels": 3}).named
{'input_ids': 1, 'attention_mask': 2}
"""

from __future__ import annotations

import keyword
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from tensortide.measures.backend import Arguments

Entry: TypeAlias = int | str
Pattern: TypeAlias = tuple[Entry, ...] | Mapping[Any, Entry]
"""As people write it: an entry per element of a batch that is a tuple, or entries by the keys of one that is a
mapping."""

LEFT_OUT = "_"
"""Entry of an element that is no argument, such as a label."""


class InputPattern:
    """A checked pattern. An integer puts an element among the positional arguments, in the order of the integers; a
    name makes it a named argument; ``"_"`` leaves it out.

    A tuple with one entry takes a batch whole, without an entry, or with a single ``"_"``, it takes nothing. A mapping
    leaves out the keys that it does not have.

    Raises TypeError for a pattern of another type, and for entries that are no such integers or names, or are equal.
    """

    def __init__(self, pattern: Pattern) -> None:
        given: Any = pattern
        self.by_key = isinstance(given, Mapping)
        if not isinstance(given, tuple | Mapping):
            kind = type(given).__name__
            raise TypeError(f"an input pattern is a tuple, such as (0, '_'), or a dict of batch keys, not a {kind}")
        pairs: list[tuple[Any, Entry]] = list(given.items() if isinstance(given, Mapping) else enumerate(given))
        for _, entry in pairs:
            _check(entry)
        used = [entry for _, entry in pairs if entry != LEFT_OUT]
        twice = next((entry for i, entry in enumerate(used) if entry in used[:i]), None)
        if twice is not None:
            raise TypeError(f"the input pattern {pattern!r} has {twice!r} twice: each argument is one element")
        self.pattern = pattern
        self._size = len(pairs)
        self._positional = [key for key, entry in sorted(_integers(pairs), key=lambda pair: pair[1])]
        self._named = {entry: key for key, entry in pairs if isinstance(entry, str) and entry != LEFT_OUT}

    def __repr__(self) -> str:
        return f"InputPattern({self.pattern!r})"

    def arguments(self, batch: Any) -> Arguments:
        """Make arguments of a batch. Raises ValueError if it does not have the elements of the pattern."""
        elements = self._elements(batch)
        positional = tuple(elements[key] for key in self._positional)
        return Arguments(positional, {name: elements[key] for name, key in self._named.items()})

    def left_out(self, batch: Any) -> dict[Hashable, Any]:
        """Collect the elements of a batch that are no arguments, by position or key. Raises ValueError as above."""
        used = {*self._positional, *self._named.values()}
        return {key: item for key, item in self._elements(batch).items() if key not in used}

    def _elements(self, batch: Any) -> dict[Any, Any]:
        if not self._size:
            return {}
        if self.by_key:
            return self._by_key(batch)
        if self._size == 1:
            return {0: batch}
        if not isinstance(batch, tuple | list):
            keys = f" with the keys {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else ""
            raise ValueError(
                f"the input pattern {self.pattern!r} takes a tuple of {self._size}, and the batch is a "
                f"{type(batch).__name__}{keys}: a pattern of one entry, (0,), takes it whole, a dict by its keys"
            )
        if len(batch) != self._size:
            raise ValueError(f"the input pattern {self.pattern!r} has {self._size} entries, the batch {len(batch)}")
        return dict(enumerate(batch))

    def _by_key(self, batch: Any) -> dict[Any, Any]:
        if not isinstance(batch, Mapping):
            raise ValueError(
                f"the input pattern {self.pattern!r} takes a dict, and the batch is a {type(batch).__name__}"
            )
        absent = [key for key in (*self._positional, *self._named.values()) if key not in batch]
        if absent:
            has = ", ".join(map(repr, batch)) or "no key"
            raise ValueError(
                f"the batch has no {', '.join(map(repr, absent))}, which the input pattern takes; it has {has}"
            )
        return dict(batch)


def _check(entry: object) -> None:
    whole = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0
    name = isinstance(entry, str) and entry.isidentifier() and not keyword.iskeyword(entry)
    if not whole and not name:
        raise TypeError(
            f"an entry of an input pattern is an integer from 0, the name of an argument or '_', not {entry!r}"
        )


def _integers(pairs: list[tuple[Any, Entry]]) -> list[tuple[Any, int]]:
    return [(key, entry) for key, entry in pairs if isinstance(entry, int)]


DEFAULT_PATTERN = InputPattern((0, LEFT_OUT))
"""Inputs and a label: the first element is the argument of the model."""
