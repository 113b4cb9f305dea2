"""Tables and facts of records, as their fields declare them (``tensortide.shown.Show``). Keys are the fields' names."""

from __future__ import annotations

import builtins
import functools
import math
import sys
from collections.abc import Iterator, Sequence
from enum import Enum, IntEnum
from fractions import Fraction
from inspect import get_annotations
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from tensortide.reports.blocks import Column, Fact, Facts, Table, UnitName, Value
from tensortide.shown import MEASURES, Show

TYPES: tuple[tuple[type, UnitName], ...] = ((bool, "flag"), (int, "count"), (float, "number"), (str, "text"))
"""Units of fields whose names and Shows tell none, by their type; that of any other is text."""
DATA = Show(data=True)
"""How a field without a Show looks."""
_ENDS: tuple[UnitName, ...] = (*MEASURES, "share", "change", "factor", "op")
"""Units that names tell, as their last word."""
_WHOLE = ("bytes", "ns", "byte_ns")
_PLAIN = (int, str, bool, NoneType)


class Field(NamedTuple):
    """A field or property of a record. ``kinds`` are its types but None, which an ``optional`` one has; ``declared``
    how: with a Show (``shown``), or without one as a field (``plain``) or a property (``named``: it stands only where
    it is named)."""

    name: str
    show: Show
    kinds: tuple[Any, ...]
    optional: bool = False
    declared: Literal["shown", "plain", "named"] = "shown"

    @property
    def unit(self) -> UnitName:
        """The unit of its values."""
        if self.show.unit is not None:
            return self.show.unit
        if str in self.kinds:
            return "text"
        ends = (unit for unit in _ENDS if self.name == unit or self.name.endswith(f"_{unit}"))
        measure = (unit for unit in ends if not self.name.endswith(f"_per_{unit}"))  # samples_per_s is no time
        by_type = (unit for kind, unit in TYPES if kind in self.kinds)
        return next(chain(measure, by_type), "text")


def table(kind: type, rows: Sequence[Any], /, *names: str | Column, key: str, **options: Any) -> Table:
    """Make the Table of ``rows``, which are all of ``kind``; ``options`` are those of a Table. The columns are as in
    ``columns``."""
    return Table(key=key, columns=columns(kind, rows, *names), **options)


def columns(kind: type, rows: Sequence[Any], *names: str | Column) -> tuple[Column, ...]:
    """Make the columns ``names`` of ``rows``, in this order (none: every field of ``kind`` that is a plain value, then
    every property with a Show).

    A name is that of a field or property; ``trial.peak_bytes`` is one inside a field, called ``peak_bytes``, and
    ``trial.peak_bytes as least_bytes`` calls it otherwise. A Column among them stands as it is.
    """
    named = names or tuple(fields(kind))
    return tuple(one if isinstance(one, Column) else column(kind, rows, one) for one in named)


def column(kind: type, rows: Sequence[Any], name: str, **changes: Any) -> Column:
    """Make one column, with ``changes`` of how its field declares it: ``label``, ``at_width``, ``data``, ..."""
    path, key, field = _found(kind, name)
    unit, show = field.unit, field.show
    values = tuple(value_of(row, path, unit) for row in rows)
    if {int, str} <= {*field.kinds} and values and all(type(value) is int for value in values):
        unit = "number"  # of what has a name or else a number: numbers are aligned as such
    signs = {side: _signs(rows, path, getattr(show, side)) for side in ("before", "after")}
    if show.times:
        counts = (_inner(row, [*path[:-1], show.times]) for row in rows)
        signs["after"] = tuple(f" x{count}" if count and count > 1 else "" for count in counts)
    given = {option: getattr(show, option) for option in ("at_width", "bar", "fold", "dim", "zero", "sum", "pick")}
    made = Column(
        key,
        show.title,
        unit,
        values,
        data=show.data or (show.if_any and not any(values)),
        **{**given, **signs},
    )
    return msgspec.structs.replace(made, **changes) if changes else made


def facts(found: Any, *names: str | Fact, data: bool = False, **options: Any) -> Facts:
    """Make the Facts of the record ``found``; ``options`` are those of Facts, and ``names`` as in ``columns``. A Fact
    among them stands as it is. ``data``: they are for data alone."""
    named = names or tuple(fields(type(found)))
    changes: dict[str, Any] = {"data": True} if data else {}
    rows = tuple(one if isinstance(one, Fact) else fact(found, one, **changes) for one in named)
    return Facts(rows=rows, **options)


def fact(found: Any, name: str, remark: str = "", **changes: Any) -> Fact:
    """Make one fact of a record with a ``remark``, and ``changes`` of how its field declares it: ``label``, ``level``,
    ``data``, ..."""
    path, key, field = _found(type(found), name)
    show, value = field.show, value_of(found, path, field.unit)
    data = show.data or (show.if_any and not value)
    (before,) = _signs([found], path, show.before) or ("",)
    made = Fact(key, show.title, value, field.unit, remark or show.remark, show.level, before, data)
    return msgspec.structs.replace(made, **changes) if changes else made


def value_of(row: Any, path: Sequence[str], unit: UnitName) -> Value:
    """The plain value of a field: bytes and nanoseconds whole, fractions as floats, the value of an enum (of one of
    numbers its text), the texts of a tuple joined or their count; None where a part is missing."""
    value = _inner(row, path)
    if type(value) in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, Fraction):
        value = float(value)
    if isinstance(value, float) and unit in _WHOLE and math.isfinite(value):
        return round(value)
    if isinstance(value, tuple):
        return len(value) if unit == "count" else ", ".join(map(str, value))
    if isinstance(value, IntEnum | Path):
        return str(value)
    return value.value if isinstance(value, Enum) else value  # type: ignore[no-any-return]


def _inner(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = None if row is None else getattr(row, name)
    return row


def _signs(rows: Sequence[Any], path: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(str(_inner(row, [*path[:-1], name]) or "") for row in rows) if name else ()


# -- what records declare ---------------------------------------------------------------------------


def _found(kind: type, name: str) -> tuple[list[str], str, Field]:
    """The way to a field, the key of its values, and the field."""
    dotted, _, key = name.partition(" as ")
    path = dotted.split(".")
    field = Field("", DATA, (kind,))
    for part in path:
        found = [_every(one)[part] for one in field.kinds if isinstance(one, type) and part in _every(one)]
        if not found:
            raise TypeError(f"{kind.__name__}: no {part!r} of {dotted} has a type that is known at run time")
        field = found[0]
    return path, key or path[-1], field._replace(name=key or path[-1]) if key else field


def fields(kind: type, *, named: bool = False) -> dict[str, Field]:
    """The fields of a record that are plain values and the properties that have a Show, by name; with ``named`` also
    the others that a table may name."""
    return {name: field for name, field in _every(kind).items() if _stands(field, named)}


def _stands(field: Field, named: bool) -> bool:
    value = bool(field.kinds) and all(one in (bool, int, float, str) or _is_word(one) for one in field.kinds)
    return field.declared == "shown" or (value and (named or field.declared == "plain"))


def _is_word(kind: Any) -> bool:
    return get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum | Path))


@functools.cache
def _every(kind: type) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__])
        found |= {name: _field(name, hint, names) for name, hint in get_annotations(base).items()}
        for name, member in vars(base).items():
            get = member.fget if isinstance(member, property) else getattr(member, "func", None)
            if get is not None and "return" in (hints := get_annotations(get)):
                field = _field(name, hints["return"], names)
                found[name] = field if field.declared == "shown" else field._replace(declared="named")
    return found


def _field(name: str, hint: Any, names: dict[str, Any]) -> Field:
    """Read an annotation; what of it is imported for type checkers alone is unknown."""
    if isinstance(hint, ForwardRef):  # of a NamedTuple
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        hint = eval(hint, {}, _Names(names))
    said = hint.__metadata__ if get_origin(hint) is Annotated else ()
    show = next((one for one in said if isinstance(one, Show)), None)
    every = tuple(_parts(hint))
    kinds = tuple(one for one in every if one is not NoneType)
    return Field(name, show or DATA, kinds, NoneType in every, "shown" if show is not None else "plain")


def _parts(hint: Any) -> Iterator[Any]:
    """The types that a value may have."""
    if get_origin(hint) is Annotated:
        yield from _parts(hint.__origin__)
    elif get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from _parts(one)
    else:
        yield get_origin(hint) if isinstance(get_origin(hint), type) else hint


class _AnyName(type):
    def __getattr__(cls, name: str) -> type:
        return cls


class _Unknown(metaclass=_AnyName):
    def __class_getitem__(cls, item: object) -> type:
        return cls


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _Unknown)
