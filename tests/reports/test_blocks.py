"""Blocks: every renderer takes every block, no value is lost, and a section is one file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tensortide.errors import OutputError
from tensortide.reports import sections
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, UnitName
from tensortide.reports.pictures import Axis, Curve, Limit, Points, Scatter, Series, SpanLane, Spans, Stretch
from tensortide.reports.render import json_objects
from tensortide.reports.render.chart import span_lines
from tensortide.reports.render.csv import render_csv, tables
from tensortide.reports.render.figure import draw, render_figure
from tensortide.reports.render.json import encode, render_json
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.render.trace import render_trace
from tensortide.reports.render.values import UNITS, data_key, value_text
from tensortide.shown import Shown
from tests.graphs import Builder
from tests.reports.documents import documents

FEWER = settings().max_examples // 4
"""Examples of whole documents: seven, more where many are asked for."""


def text_of(document: Document, width: int = 100, *, ascii_only: bool = False) -> str:
    class Ascii(io.StringIO):
        encoding = "ascii"

    file = Ascii() if ascii_only else io.StringIO()
    render_terminal(document, Console(file=file, width=width, no_color=True, highlight=False))
    return file.getvalue()


def printed(result: object) -> str:
    file = io.StringIO()
    Console(file=file, width=80, highlight=False).print(result)
    return file.getvalue()


def of_blocks(*blocks: AnyBlock) -> Document:
    return Document(title="t", sections=(Section("s", "S", blocks=blocks),))


@pytest.fixture
def new_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], object]:
    """A function that adds the file of a section, by its name and text."""
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text)


def test_a_line_ends_between_words_and_never_between_a_number_and_its_unit() -> None:
    values = ("165 ms", "98.4 %", "2.48 GiB", "400 Gbit/s", "3.17 TFLOP", "12 days", "8 x T4")
    note = Note(text=f"From {' to '.join(values)} or more.", kind="verdict")
    document = Document(title="step", sections=(Section(key="s", title="s", blocks=(note,)),))
    for width in range(20, 60):
        lines = text_of(document, width).splitlines()
        assert max(map(len, lines)) <= width
        for value in values[:-1]:
            assert any(value in line for line in lines), width
    assert any(line.endswith("8") for width in range(20, 60) for line in text_of(document, width).splitlines())


@settings(deadline=None, max_examples=FEWER)
@given(documents(), st.sampled_from([80, 100, 160]))
def test_text_fits_the_width(document: Document, width: int) -> None:
    for line in text_of(document, width).splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()


@settings(deadline=None, max_examples=FEWER)
@given(documents())
def test_json_and_csv_have_every_value(document: Document) -> None:
    assert msgspec.json.decode(encode(document), type=Document) == document
    shown: Any = json.loads(render_json(document))
    assert json.loads(encode(msgspec.json.decode(render_json(document), type=json_objects.Document))) == shown
    assert (shown["format"], shown["schema_version"]) == (document.format, document.schema_version)
    for section in document.sections:
        for block in section.blocks:
            found = shown["sections"][section.key]
            if isinstance(block, Facts):
                for fact in block.rows:
                    assert found["facts"][fact.key] == fact.value
            elif isinstance(block, Note):
                assert {"kind": block.kind, "text": block.text} in found["notes"]
            elif isinstance(block, Table):
                columns = found["tables"][block.key]
                assert all(columns[one.key] == [*one.values] for one in block.columns)
                rows = list(csv.reader(io.StringIO(render_csv(document, f"{section.key}.{block.key}"), newline="")))
                assert len(rows) == 1 + len(block) or not block.columns


@settings(deadline=None, max_examples=FEWER)
@given(documents())
def test_markdown_and_traces_take_every_block(document: Document) -> None:
    assert render_markdown(document).startswith("# ")
    events: Any = json.loads(render_trace(document))["traceEvents"]
    assert all(event.get("dur", 0) >= 0 for event in events)


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout not applied")
@settings(deadline=None, max_examples=FEWER // 2)
@given(documents())
def test_figures_take_every_block(document: Document) -> None:
    try:
        figure = draw(document)
    except OutputError:
        return
    figure.canvas.draw()


def test_a_panel_without_a_title_has_that_of_its_section_and_its_legend_is_whole() -> None:
    series = Series("a", "some words of a legend that take more than a line", (1,))
    curve = Curve(key="memory", x=(0, 1), x_unit="op", stack=(series,), variant="Eager")
    (axis,) = draw(Document(title="step", sections=(Section("memory", "Memory", blocks=(curve,)),))).axes
    assert axis.get_title(loc="left") + axis.get_title() == "Memory, eager"
    assert [label.replace("\n", " ") for label in axis.get_legend_handles_labels()[1]] == [series.label]


def test_every_unit_has_a_row() -> None:
    assert set(UNITS) == set(get_args(UnitName))
    for name, unit in UNITS.items():
        assert value_text(3, name), name
        assert unit.right or not unit.suffix


def test_text_in_a_column_of_numbers_stays_as_it_is() -> None:
    assert [value_text(value, "bytes") for value in (1536, "oom", None)] == ["1.50 KiB", "oom", "-"]


def test_names_in_data_carry_their_unit_once() -> None:
    assert [data_key(key, "bytes") for key in ("peak", "peak_bytes", "bytes")] == ["peak_bytes", "peak_bytes", "bytes"]


TOY = """
from tensortide.reports.blocks import Fact, Facts, Section

ORDER = 1


def of_step(step):
    return Section("toy", "A toy", blocks=(Facts(rows=(Fact("count", "Ops", len(step.graph), "count"),)),))
"""


def test_a_new_section_is_one_file(new_section: Callable[[str, str], object]) -> None:
    new_section("toy", TOY)
    builder = Builder()
    builder.op([], [builder.storage(8)])
    found = sections.sections_of(sections.Step(builder.graph()))
    assert found[0].key == "toy"
    document = Document(title="step", sections=found)
    assert "Ops  1" in text_of(document)
    assert json.loads(render_json(document))["sections"]["toy"]["facts"] == {"count": 1}
    assert "| Ops | 1 |" in render_markdown(document)


def simple(**options: Any) -> Document:
    columns = (
        Column("name", "Name", "name", ("aten.mm.default", "relu", "mul"), fold=True),
        Column("size_bytes", "Size", "bytes", (2048, 0, None), bar=1),
        Column("late", "Late", "count", (1, 2, 3), at_width=100),
        Column("raw", "Raw", "count", (7, 8, 9), data=True),
    )
    return of_blocks(Table(key="t", columns=columns, **options))


def test_a_table_shows_what_fits_and_counts_the_rest() -> None:
    text = text_of(simple(top=2), 80)
    assert "mm    2.00 KiB  ████████" in text
    assert "and 1 more row" in text
    assert "Late" not in text
    assert "Late" in text_of(simple(), 100)
    assert "Raw" not in text_of(simple(), 160)
    assert "########" in text_of(simple(), ascii_only=True)
    assert render_csv(simple(), "t").splitlines() == [
        "name,size_bytes,late,raw",
        "aten.mm.default,2048,1,7",
        "relu,0,2,8",
        "mul,,3,9",
    ]


def test_a_name_that_is_too_long_is_parted_between_its_words() -> None:
    names = ("_log_softmax_backward_data", "blocks.[0-11].attention.qkv", "two words", "unpartableunpartable")
    numbers = Column("n", "N", "text", ("1" * 22,) * len(names))
    table = Table(key="t", columns=(Column("name", "Name", "path", names, fold=True), numbers))
    lines = text_of(Document(title="d", sections=(Section("s", "", blocks=(table,)),)), width=40).splitlines()
    shown = " ".join(line.partition("  ")[0] for line in lines)
    assert "_log_softmax_ backward_data blocks.[0-11]. attention.qkv two words unpartableunpart able" in shown


def test_a_table_that_is_not_there_is_named() -> None:
    assert list(tables(simple())) == ["s.t"]
    with pytest.raises(OutputError, match=r"no table is called 'x': s\.t"):
        render_csv(simple(), "x")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((Note(text="x"), Table(columns=())), "without a key"),
        ((Table(key="t", columns=()), Table(key="t", columns=(), depth=())), "two of t"),
        ((Facts(rows=(Fact("x", "", 1),)), Facts(rows=(Fact("x", "", 2),))), "two of x"),
    ],
)
def test_keys_are_unique(blocks: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Section("s", "S", blocks=blocks)


def test_columns_are_of_one_length() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Table(key="t", columns=(Column("a", "", "count", (1,)), Column("b", "", "count", ())))


def test_a_document_shows_itself() -> None:
    assert repr(simple()) == "<Document t>"
    assert "2.00 KiB" in printed(simple())


class Counted(Shown, msgspec.Struct, frozen=True):
    """A result with a section of its own."""

    SECTION = "counted"
    ops: int


COUNTED = """
from tensortide.reports.blocks import Document, Fact, Facts, Section


def document(found):
    facts = Facts(rows=(Fact("ops", "Ops", found.ops, "count"),))
    return Document(title="step", sections=(Section("counted", "Counted", blocks=(facts,)),))
"""


def test_a_result_shows_itself(new_section: Callable[[str, str], object]) -> None:
    new_section("counted", COUNTED)
    result = Counted(1234)
    assert repr(result) == "<Counted step: Ops 1,234>"
    assert "<td>1,234</td>" in result._repr_html_()
    assert result.page()._repr_html_().startswith("<iframe srcdoc=")
    assert "Ops  1,234" in printed(result)


def test_a_figure_needs_something_to_draw(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="nothing to draw"):
        render_figure(simple(), tmp_path / "x.png")


def test_time_begins_at_0_in_the_terminal() -> None:
    for unit, first in (("ns", "0 ns"), ("op", "40")):
        spans = Spans(key="s", x_unit=unit, lanes=(SpanLane("one", (40, 70), (60, 80)),))  # type: ignore[arg-type]
        drawn, ends = (line.plain for line in span_lines(spans, 44))
        assert ends.strip().startswith(f"{first}  ")
        assert drawn.startswith("one " + " " * 20 if unit == "ns" else "one █")


def charts(span: int, nbytes: int) -> Document:
    steps = range(40)
    curve = Curve(
        key="curve",
        x=tuple(i * span for i in (*steps, 40)),
        x_unit="ns",
        stack=(Series("activation", "activations", tuple(nbytes * i for i in steps)),),
        limits=(Limit("budget", 30 * nbytes),),
        shades=(Stretch("recomputed", 3, 9),),
    )
    spans = Spans(
        key="spans", x_unit="ns", lanes=(SpanLane("one", (0,), (40 * span,)), SpanLane("two", (span,), (3 * span,)))
    )
    points = (Points("mm", (1, 10**3, 10**7), (span, 9 * span, 10**4 * span), "line"),)
    scatter = Scatter(key="scatter", x=Axis("batch", "count", True), y=Axis("time", "ns", True), points=points)
    return of_blocks(curve, spans, scatter)


SMALL, MIDDLE, LARGE = (1, 3), (123_457, 999_999), (86_400 * 10**9, 1 << 40)


@pytest.mark.parametrize(
    ("span", "nbytes", "keys"),
    [
        (*LARGE, ()),
        (*SMALL, ("scatter",)),
        (*MIDDLE, ("curve",)),
        pytest.param(*MIDDLE, (), marks=pytest.mark.slow),
        pytest.param(*LARGE, ("scatter",), marks=pytest.mark.slow),
    ],
)
def test_tick_labels_do_not_meet(span: int, nbytes: int, keys: tuple[str, ...]) -> None:
    figure = draw(charts(span, nbytes), keys)
    figure.canvas.draw()
    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(("unit", "size", "name"), [("bytes", 2**30, "GiB"), ("bytes_per_s", 10**9, "GB/s")])
def test_ticks_of_bytes_are_round_in_their_own_unit(unit: UnitName, size: int, name: str, log: bool) -> None:
    amounts = Points("one", (1, 2, 3), (12.9 * size, 60.1 * size, 121.3 * size))
    scatter = Scatter(key="scatter", x=Axis("size", "count"), y=Axis("amount", unit, log), points=(amounts,))
    figure = draw(of_blocks(scatter))
    figure.canvas.draw()
    texts = [label.get_text() for label in figure.axes[0].yaxis.get_ticklabels()]
    numbers = [text.partition(" ")[0] for text in texts if name in text]
    assert len(numbers) >= 3
    assert all(number.isdecimal() for number in numbers), texts


@pytest.mark.parametrize(("kinds", "legends"), [(("forward", "backward"), 2), (("a", "b"), 1)])
def test_a_color_of_two_meanings_is_told_panel_by_panel(kinds: tuple[str, str], legends: int) -> None:
    """The lanes' first color is the stack's first: one legend would name it twice, unless both mean the same."""
    spans = Spans(key="what", x_unit="ns", clock="step", lanes=(SpanLane("gpu0", (0, 5), (5, 9), ("x", "y"), kinds),))
    stack = (Series("a", "a", (1, 2)), Series("b", "b", (1, 2)))
    figure = draw(of_blocks(spans, Curve(key="memory", x=(0, 5, 9), x_unit="ns", clock="step", stack=stack)))
    own = [axis.get_legend() for axis in figure.axes if axis.get_legend() is not None]
    assert len(own) + len(figure.legends) == legends


def test_kinds_of_intervals_without_a_colour_of_their_own_take_those_that_no_other_has() -> None:
    kinds = ("backward", "exchange", "forward", "optimizer", "other", "transfer", "update")
    times = range(len(kinds))
    lane = SpanLane("gpu0", tuple(times), tuple(time + 1 for time in times), kinds, kinds)
    (axis,) = draw(of_blocks(Spans(key="what", x_unit="ns", lanes=(lane,)))).axes
    drawn: list[Any] = [*axis.get_legend_handles_labels()[0]]
    colors = [tuple(one.get_facecolor()[0]) for one in drawn]
    assert len({*colors}) == len(kinds)


def test_a_text_chart_names_everything_in_it() -> None:
    text = text_of(charts(1000, 1 << 20), 80)
    assert all(part in text for part in ("activations", "budget", "recomputed", "30.00 MiB", "40.0 us"))


def test_what_is_not_there_is_told_with_what_is() -> None:
    table = Table(key="modules", columns=(Column("time_ns", "Time", "ns", (1,)),))
    section = Section(
        "cost", "Cost", blocks=(Facts(rows=(Fact("ops", "Ops", 2), Fact("peak_bytes", "Peak", 1, "bytes"))), table)
    )
    document = section.document("made")
    for ask, told in (
        (lambda: document["costs"], r"no section called 'costs'; did you mean cost\?"),
        (lambda: section["module"], r"no block of section 'cost' called 'module'; did you mean modules\?"),
        (lambda: section.table("foo"), "no table of section 'cost' called 'foo'; there are: modules"),
        (lambda: section.fact("peak"), "no fact of section 'cost' called 'peak'; there are: ops, peak_bytes"),
        (lambda: table["time"], r"no column of table 'modules' called 'time'; did you mean time_ns\?"),
    ):
        with pytest.raises(KeyError, match=told):
            ask()
