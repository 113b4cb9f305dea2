"""Plans known before a search, and what became of them as rivals of its result."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

Kind: TypeAlias = Literal["as recorded", "modules", "partitioner", "online policy", "static plan", "given", "order"]
"""Kinds of plans known before the search. ``given``: by the caller; ``order``: each op once, in another order."""


class Known(NamedTuple):
    """A plan known before the search: its ops in order, or the ``reason`` why there is none."""

    name: str
    kind: Kind
    sequence: list[int] | None = None
    reason: str = ""


class Rival(msgspec.Struct, frozen=True):
    """A known plan as replayed. ``time_ns`` and ``peak_bytes`` are those of its replay, None if there is no plan
    to play; ``reason``: why it is no answer, empty if it is one."""

    name: str
    kind: Kind
    time_ns: int | None = None
    peak_bytes: int | None = None
    reason: str = ""
