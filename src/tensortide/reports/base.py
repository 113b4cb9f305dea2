"""Values, their units, and what every block has."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Value: TypeAlias = int | float | str | bool | None
Number: TypeAlias = int | float
Ints: TypeAlias = tuple[int, ...]
Strings: TypeAlias = tuple[str, ...]
TextUnit: TypeAlias = Literal["text", "name", "path", "code", "role", "flag"]
AmountUnit: TypeAlias = Literal["bytes", "ns", "s", "byte_ns", "flops", "macs", "count", "amount", "number", "op"]
RateUnit: TypeAlias = Literal["ratio", "share", "change", "factor", "flops_per_s", "bytes_per_s", "flops_per_byte"]
UnitName: TypeAlias = Literal[TextUnit, AmountUnit, RateUnit]
"""Rows of ``UNITS`` in ``render/values.py``: texts, then numbers, which are aligned right."""


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
