"""Blocks that are drawn: curves over a step, points over two axes, and lanes of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from tensortide.reports.base import Block, Data, Ints, Number, Strings, UnitName


class Series(Data, frozen=True):
    """Values of a Curve, one for each of its entries. Text charts shade the series of one ``group`` alike."""

    key: str
    label: str
    values: tuple[Number, ...]
    group: str = ""


class Mark(Data, frozen=True):
    """An entry of a Curve that is pointed at, such as its peak."""

    at: int
    label: str


class Limit(Data, frozen=True):
    """A value drawn across, such as a budget."""

    label: str
    value: Number


class Stretch(Data, frozen=True):
    """Entries ``start`` to ``end`` (exclusive) of a Curve: a phase, or a stretch of recomputation."""

    label: str
    start: int
    end: int


class Curve(Block, frozen=True, kw_only=True):
    """Values over the step, in steps: entry ``i`` holds from ``x[i]`` to ``x[i + 1]``.

    ``x`` is in ns wherever durations are known, else op numbers. ``ops`` are the op numbers of the entries (empty:
    entry ``i`` is op ``i``). ``stack`` is summed; ``lines`` are drawn over it. ``bands`` label the axis; ``shades`` are
    highlighted. ``table`` is the key of a table with a row per op, in any section; ``alive`` that of a table with
    columns ``birth_op`` and ``death_op`` (or as ``death`` names it), whose rows the page names under the pointer. Of
    several Curves in a row that have a ``variant``, the page shows one at a time. Curves and Spans of one ``clock``
    have one x axis: figures draw them below each other, the page zooms them together.
    """

    x: Ints
    x_unit: Literal["ns", "op"]
    stack: tuple[Series, ...]
    unit: UnitName = "bytes"
    ops: Ints = ()
    lines: tuple[Series, ...] = ()
    marks: tuple[Mark, ...] = ()
    limits: tuple[Limit, ...] = ()
    shades: tuple[Stretch, ...] = ()
    bands: tuple[Stretch, ...] = ()
    table: str = ""
    alive: str = ""
    death: str = "death_op"
    variant: str = ""
    clock: str = ""

    def __post_init__(self) -> None:
        series = (*self.stack, *self.lines)
        if not self.x or any(len(one.values) != len(self) for one in series) or len(self.ops) not in (0, len(self)):
            raise ValueError(f"curve {self.key!r} needs an edge more in x than it has entries")

    def __len__(self) -> int:
        return len(self.x) - 1

    def totals(self) -> list[Number]:
        """Sum the stack at each entry."""
        return [sum(values) for values in zip(*(one.values for one in self.stack), strict=True)] or [0] * len(self)


class Axis(Data, frozen=True):
    """An axis of a Scatter. ``whole``: the value of which a second scale, across from it, shows shares (0: none).

    ``ticks``: the values that have one (empty: round values). ``from_zero``: the axis begins at 0. ``covers``: values
    that it reaches beside those of the points, as in other panels.
    """

    label: str
    unit: UnitName = "number"
    log: bool = False
    whole: Number = 0
    ticks: tuple[Number, ...] = ()
    from_zero: bool = False
    covers: tuple[Number, ...] = ()


class End(Data, frozen=True):
    """Place at which a line ends for a reason: ``x``, as high as the line is where it begins, at ``start``. ``below``
    others end at the same place: its mark stands above theirs."""

    reason: Literal["oom", "thrash"]
    x: Number
    start: Number
    y: Number
    below: int = 0


class Points(Data, frozen=True):
    """Points of a Scatter that belong together; ``joined`` by a line, or by steps that hold until the next x.

    ``low`` and ``high`` are the ends of a range around each y, such as that over seeds; ``between`` names it.
    ``tagged``: figures write the names beside the points. On a logarithmic axis a value of 0 is left out. ``look``: its
    colour and marker by number, where panels that are compared give a label the same (None: its place in the panel).
    """

    label: str
    x: tuple[Number, ...]
    y: tuple[Number | None, ...]
    joined: Literal["", "line", "step"] = ""
    names: Strings = ()
    low: tuple[Number | None, ...] = ()
    high: tuple[Number | None, ...] = ()
    between: str = ""
    tagged: bool = False
    end: End | None = None
    look: int | None = None


class Range(Data, frozen=True):
    """A range of x that is shaded in a Scatter."""

    label: str
    start: Number
    end: Number


class Scatter(Block, frozen=True, kw_only=True):
    """Points and lines over two axes. ``across`` are limits in y, ``down`` limits in x; ``ranges`` of x are shaded."""

    x: Axis
    y: Axis
    points: tuple[Points, ...]
    across: tuple[Limit, ...] = ()
    down: tuple[Limit, ...] = ()
    ranges: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        optional = [(len(one.x), len(part)) for one in self.points for part in (one.names, one.low, one.high)]
        if any(len(one.x) != len(one.y) for one in self.points) or any(part not in (0, n) for n, part in optional):
            raise ValueError(f"points of scatter {self.key!r} differ in length")


def with_one_look(panels: Sequence[Scatter]) -> list[Scatter]:
    """Give points of one label the same look in all ``panels``, which are compared."""
    numbers = {label: n for n, label in enumerate(dict.fromkeys(one.label for each in panels for one in each.points))}
    return [
        replace(
            panel,
            points=tuple(
                one if numbers[one.label] == place else replace(one, look=numbers[one.label])
                for place, one in enumerate(panel.points)
            ),
        )
        for panel in panels
    ]


class SpanLane(Data, frozen=True):
    """Intervals in time that share a line; ``names`` and ``kinds`` (colours) one for each, or none.

    ``rows`` are the rows of the table of its Spans that describe the intervals. ``group`` is its process in a trace.
    """

    label: str
    start: Ints
    end: Ints
    names: Strings = ()
    kinds: Strings = ()
    rows: Ints = ()
    group: str = ""

    def __post_init__(self) -> None:
        count = len(self.start)
        if len(self.end) != count or any(len(part) not in (0, count) for part in (self.names, self.kinds, self.rows)):
            raise ValueError(f"intervals of lane {self.label!r} differ in length")


class Arrow(Data, frozen=True):
    """A path through intervals of Spans, drawn in traces: each of ``stops`` is the number of a lane, and that of an
    interval on it. ``label`` says what goes along it."""

    label: str
    stops: tuple[tuple[int, int], ...]


class Spans(Block, frozen=True, kw_only=True):
    """Lanes of intervals: ops and transfers, lifetimes of storages. The terminal shows ``top`` lanes.

    ``clock`` is that of a Curve.
    """

    x_unit: Literal["ns", "op"]
    lanes: tuple[SpanLane, ...]
    arrows: tuple[Arrow, ...] = ()
    table: str = ""
    top: int = 12
    clock: str = ""
