"""Ops as a reader knows them."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An op of the step: its number, name, module, and line of code ("" if unknown)."""

    op: int
    name: str
    module: str
    source: str
