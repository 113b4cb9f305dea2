"""Values, their units, and what every block has."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tensortide.shown import MEASURES
from tensortide.shown import UnitName as UnitName

Value: TypeAlias = int | float | str | bool | None
Number: TypeAlias = int | float
Ints: TypeAlias = tuple[int, ...]
Strings: TypeAlias = tuple[str, ...]
NoteKind: TypeAlias = Literal["verdict", "failure", "advice", "assumption", "coverage", "warning", "remark"]


def check_named(key: str, unit: UnitName) -> None:
    """Raise ValueError for a key that does not end in its unit, where that is a measure."""
    if unit in MEASURES and key != unit and not key.endswith(f"_{unit}"):
        raise ValueError(f"{key!r} is in {unit}, and its name does not say so")


class Data(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data of a document; defaults are left out where it is encoded."""


class Block(Data, frozen=True, kw_only=True, tag_field="block", tag=str.lower):
    """Anything a Section shows. ``key`` names it in JSON, CSV and links; ``remark`` stands beside its title.

    ``only`` keeps it to some views: ``text`` (terminal, Markdown) where the page has the same in full, ``page`` where
    it is too long for text, ``data`` for tables that other blocks refer to. JSON has all.
    """

    key: str = ""
    title: str = ""
    remark: str = ""
    only: Literal["", "text", "page", "data"] = ""
