"""Objects that ``--json`` prints, field by field; ``docs/schemas/document.schema.json`` is made of these classes."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from tensortide.reports.base import Ints, NoteKind, Number, Strings, Value
from tensortide.reports.pictures import Arrow, Limit, Mark, Points, Range, SpanLane, Stretch


class Printed(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object that is printed; defaults are left out. A reader passes over fields that it does not know."""


class Note(Printed, frozen=True):
    """A sentence or more. ``failure`` is a verdict that says no."""

    kind: Annotated[str, msgspec.Meta(examples=[*get_args(NoteKind)])]
    text: str


class Curve(Printed, frozen=True, kw_only=True):
    """Values over the step: entry i holds from ``x_ns[i]`` (or ``x_op[i]``) to the next, ``stack`` is summed."""

    x_ns: Ints | msgspec.UnsetType = msgspec.UNSET
    x_op: Ints | msgspec.UnsetType = msgspec.UNSET
    ops: Ints = ()
    stack: dict[str, tuple[Number, ...]]
    lines: dict[str, tuple[Number, ...]]
    marks: tuple[Mark, ...]
    limits: tuple[Limit, ...]
    shades: tuple[Stretch, ...]
    bands: tuple[Stretch, ...]


class Axis(Printed, frozen=True):
    """An axis of a Scatter."""

    label: str
    unit: Annotated[str, msgspec.Meta(examples=["bytes", "ns", "share"])]


class Scatter(Printed, frozen=True):
    """Points and lines over two axes; ``across`` are limits in y, ``down`` limits in x."""

    x: Axis
    y: Axis
    points: tuple[Points, ...]
    across: tuple[Limit, ...]
    down: tuple[Limit, ...]
    ranges: tuple[Range, ...]


class Spans(Printed, frozen=True):
    """Lanes of intervals, whose ends are in ``unit``."""

    unit: Literal["ns", "op"]
    lanes: tuple[SpanLane, ...]
    arrows: tuple[Arrow, ...] = ()


class Section(Printed, frozen=True):
    """Findings of one capability, by kind of block and name. A table is its columns, lists of equal length."""

    title: str
    about: str
    notes: tuple[Note, ...] = ()
    facts: dict[str, Value] = {}
    tables: dict[str, dict[str, tuple[Value, ...]]] = {}
    curves: dict[str, Curve] = {}
    scatters: dict[str, Scatter] = {}
    spans: dict[str, Spans] = {}


class Document(Printed, frozen=True):
    """The answer of a verb; ``settings`` name what the step was made with."""

    format: Literal["tensortide.document"]
    schema_version: Literal[1]
    title: str
    subtitle: Strings
    settings: dict[str, Value]
    sections: dict[str, Section]
