"""Documents of random blocks."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import strategies as st

from tensortide.reports.base import UnitName
from tensortide.reports.blocks import Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.pictures import Axis, Curve, Limit, Mark, Points, Scatter, Series, SpanLane, Spans, Stretch
from tensortide.reports.render.values import UNITS, data_key

TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(["a|b", "<b>", "[bold]x", "$x$", "x" * 200])
INTS = st.integers(0, 2**62)
FLOATS = st.floats(-1e18, 1e18, allow_nan=False)
VALUES = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | FLOATS | TEXT
UNIT = st.sampled_from(sorted(UNITS))
LEVELS = st.integers(0, 2)
KEYS = ("a", "b", "peak", "time", "ops", "birth")
X_UNIT: st.SearchStrategy[Literal["ns", "op"]] = st.sampled_from(["ns", "op"])


def keys(most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(KEYS), unique=True, max_size=most)


def few(items: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=most).map(tuple)


def column(key: str, rows: int) -> st.SearchStrategy[Column]:
    signs = st.just(()) | st.tuples(*[st.sampled_from(["", "~", "*"])] * rows)

    def made(unit: UnitName, *parts: Any, **signs: Any) -> Column:
        return Column(data_key(key, unit), parts[0], unit, parts[1], **signs)

    return st.builds(
        made,
        UNIT,
        TEXT,
        st.tuples(*[VALUES] * rows),
        at_width=st.sampled_from([0, 100]),
        bar=st.sampled_from([0, 1, 90]),
        fold=st.booleans(),
        before=signs,
        after=signs,
        zero=st.none() | st.just("-"),
        data=st.booleans(),
    )


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(0, 6))
    return {
        "columns": tuple(draw(column(key, rows)) for key in draw(keys(5))),
        "top": draw(st.none() | st.integers(0, 4)),
    }


@st.composite
def table(draw: st.DrawFn, key: str) -> Table:
    return Table(key=key, title=draw(TEXT), remark=draw(TEXT), note=draw(TEXT), rest=draw(TEXT), **draw(tables()))


@st.composite
def tree(draw: st.DrawFn, key: str) -> Table:
    made = draw(tables())
    rows = len(made["columns"][0].values) if made["columns"] else 0
    return Table(key=key, depth=tuple(draw(st.tuples(*[st.integers(0, 5)] * rows))), **made)


@st.composite
def curve(draw: st.DrawFn, key: str) -> Curve:
    count = draw(st.integers(0, 6))
    entry = st.integers(0, max(0, count - 1))
    values = st.tuples(*[INTS] * count)

    def series() -> tuple[Series, ...]:
        band = st.sampled_from(["", "low", "high"])
        return tuple(Series(one, draw(TEXT), draw(values), draw(band)) for one in draw(keys(4)))

    steps = draw(st.lists(INTS, min_size=count + 1, max_size=count + 1))
    stretch = st.builds(lambda label, a, b: Stretch(label, min(a, b), max(a, b)), TEXT, entry, entry)
    stretches = few(stretch)
    return Curve(
        key=key,
        title=draw(TEXT),
        x=tuple(sorted(steps)),
        x_unit=draw(X_UNIT),
        unit=draw(st.sampled_from(["bytes", "count"])),
        stack=series(),
        lines=series(),
        marks=draw(few(st.builds(Mark, entry, TEXT))),
        limits=draw(few(st.builds(Limit, TEXT, INTS))),
        shades=draw(stretches),
        bands=draw(stretches),
    )


@st.composite
def points(draw: st.DrawFn) -> Points:
    count = draw(st.integers(0, 5))
    x = draw(st.tuples(*[st.floats(0, 1e12)] * count))
    y = draw(st.tuples(*[st.none() | st.floats(0, 1e12)] * count))
    return Points(draw(TEXT), x, y, draw(st.sampled_from(["", "line", "step"])))


def scatter(key: str) -> st.SearchStrategy[Scatter]:
    axis = st.builds(Axis, TEXT, UNIT, st.booleans())
    limits = few(st.builds(Limit, TEXT, st.floats(1, 1e9)))
    return st.builds(Scatter, key=st.just(key), x=axis, y=axis, points=few(points(), 3), across=limits, down=limits)


@st.composite
def spans(draw: st.DrawFn, key: str) -> Spans:
    def lane() -> SpanLane:
        count = draw(st.integers(0, 4))
        edges = sorted(draw(st.tuples(*[INTS] * 2 * count)))
        names = draw(st.just(()) | st.tuples(*[TEXT] * count))
        return SpanLane(draw(TEXT), tuple(edges[::2]), tuple(edges[1::2]), names, group=draw(TEXT))

    lanes = tuple(lane() for _ in range(draw(st.integers(0, 4))))
    return Spans(key=key, x_unit=draw(X_UNIT), lanes=lanes, top=draw(st.integers(0, 3)))


@st.composite
def facts(draw: st.DrawFn, number: int) -> Facts:
    rows = [
        Fact(
            data_key(f"{key}{number}", unit := draw(UNIT)),
            draw(TEXT),
            draw(VALUES),
            unit,
            draw(TEXT),
            draw(LEVELS),
            data=draw(st.booleans()),
        )
        for key in draw(keys(4))
    ]
    return Facts(rows=tuple(rows), compact=draw(st.booleans()), title=draw(TEXT))


def notes() -> st.SearchStrategy[Note]:
    kinds = ("verdict", "failure", "advice", "assumption", "coverage", "warning", "remark")
    return st.builds(Note, text=TEXT, kind=st.sampled_from(kinds))


@st.composite
def sections(draw: st.DrawFn, key: str) -> Section:
    makers = (table, tree, curve, scatter, spans)
    blocks: list[Any] = []
    for number in range(draw(st.integers(0, 4))):
        which = draw(st.integers(0, len(makers) + 1))
        if which < len(makers):
            blocks.append(draw(makers[which](f"block{number}")))
        else:
            blocks.append(draw(facts(number) if which == len(makers) else notes()))
    return Section(key, draw(TEXT), draw(TEXT), tuple(blocks))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    settings = draw(st.dictionaries(TEXT, VALUES, max_size=2))
    made = tuple(draw(sections(key)) for key in draw(keys(3)))
    return Document(title=draw(TEXT), subtitle=(draw(TEXT),), settings=settings, sections=made)
