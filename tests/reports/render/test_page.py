"""The page of blocks: self-contained as text, and used in a real browser from a file without a network."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import msgspec
import pytest

from tensortide.reports.blocks import Column, Document, Fact, Facts, Note, Section, Table, UnitName
from tensortide.reports.pictures import Axis, Curve, Limit, Mark, Points, Scatter, Series, SpanLane, Spans, Stretch
from tensortide.reports.render.figure import render_figure
from tensortide.reports.render.html import render_frame, render_html
from tensortide.reports.render.values import value_text

if TYPE_CHECKING:
    from playwright.sync_api import Page

DATA = re.compile(r'<script type="application/json" id="data" data-encoding="(\w+)">(.*?)</script>', re.DOTALL)
PAGE = Path(__file__).parents[3] / "src" / "tensortide" / "reports" / "page"
OPS = 20_000

Open: TypeAlias = "Callable[[Document], Page]"


def data_of(page: str) -> Any:
    found = DATA.search(page)
    assert found is not None
    encoding, text = found.groups()
    return json.loads(gzip.decompress(base64.b64decode(text)) if encoding == "gzip" else text)


def step(ops: int = 200) -> Document:
    """A step whose first tenth takes nine tenths of the time."""
    names = tuple(("aten.mm.default", "aten.relu.default")[i % 2] for i in range(ops))
    durations = [81 if i < ops // 10 else 1 for i in range(ops)]
    edges = tuple(sum(durations[:i]) for i in range(ops + 1)) if ops <= 1000 else tuple(range(ops + 1))
    work = tuple(1 << 20 if i == ops // 20 else i % 7 << 10 for i in range(ops))
    table = Table(
        key="ops",
        columns=(
            Column("op", "Op", "name", names, fold=True),
            Column("module", "Module", "path", tuple(f"layers.{i % 12}" for i in range(ops))),
            Column("time_ns", "Time", "ns", tuple(durations), bar=1, sum=True),
            Column("secret", "Secret", "count", tuple(range(ops)), data=True),
        ),
    )
    storages = Table(
        key="storages",
        columns=(
            Column("tensor", "Tensor", "text", ("weight", "hidden", "late")),
            Column("size_bytes", "Bytes", "bytes", (4096, 1 << 20, 64)),
            Column("birth_op", "Born", "op", (-1, 5, ops // 2)),
            Column("death_op", "Dies", "op", (ops + 1, 20, ops)),
        ),
    )
    curve = Curve(
        key="resident",
        title="Memory over the step",
        x=edges,
        x_unit="ns",
        stack=(Series("parameter", "parameters", (4096,) * ops), Series("activation", "activations", work)),
        marks=(Mark(ops // 20, "peak 1.00 MiB"),),
        limits=(Limit("budget", 1 << 20),),
        bands=(Stretch("forward", 0, ops // 2), Stretch("backward", ops // 2, ops)),
        table="ops",
        alive="storages",
    )
    facts = Facts(
        rows=(Fact("peak_bytes", "Peak", 1 << 20, "bytes"), Fact("part_bytes", "of it weights", 4096, "bytes", level=1))
    )
    tree = Table(
        key="modules",
        title="Modules",
        columns=(Column("m", "Module", "path", ("a", "a.b", "c")), Column("n", "Ops", "count", (1, 1, 5))),
        depth=(0, 1, 0),
    )
    scatter = Scatter(
        key="sweep", x=Axis("batch", log=True), y=Axis("time", "ns"), points=(Points("mm", (1, 10, 100), (5, 7, None)),)
    )
    spans = Spans(key="lanes", x_unit="ns", lanes=(SpanLane("gpu", (0, 10), (5, 30)),))
    return Document(
        title="tower",
        settings={"batch": 2},
        sections=(
            Section("memory", "Memory", blocks=(Note(text="It fits.", kind="verdict"), facts, curve, storages)),
            Section("ops", "All ops", blocks=(table, tree)),
            Section("plots", "Plots", blocks=(scatter, spans)),
        ),
    )


@pytest.mark.parametrize("compress", [True, False])
def test_the_page_holds_the_document(compress: bool) -> None:
    document = step(20)
    assert msgspec.convert(data_of(render_html(document, compress=compress)), Document) == document


def test_repeated_text_is_written_once() -> None:
    found = data_of(render_html(step()))["sections"][1]["blocks"][0]["columns"][0]["values"]
    assert found["of"] == ["aten.mm.default", "aten.relu.default"]
    assert found["at"][:3] == [0, 1, 0]


def test_nothing_is_loaded_from_anywhere_and_no_text_is_markup() -> None:
    hostile = "</script><b>bold</b><!--<script>"
    page = render_html(Document(title=hostile, sections=(Section("s", hostile, blocks=(Note(text=hostile),)),)))
    assert not re.findall(r"<(?:link|img|iframe|script[^>]*\ssrc|base|object|embed)\b", page)
    assert not re.findall(r"url\(|@import|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page)
    assert set(re.findall(r"https?://[\w./]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "<b>" not in page
    assert page.count("</script>") == 3
    assert "{{" not in DATA.sub("", page)
    assert render_frame(step(5)).count("<") == 2


def test_the_page_has_a_row_for_every_unit() -> None:
    text = (PAGE / "units.js").read_text()
    rows = re.findall(r"^  (\w+): (?:numeric|written)\(", text, re.MULTILINE)
    assert set(rows) == set(get_args(UnitName))


NUMBERS = (0.0, -0.0, 0.04, -0.04, -0.0004, 0.125, 0.96, -0.35, 1.0, 5.439, -7.26, 12.5, 99.96, 153.24, 2048.0)


def test_the_page_prints_numbers_as_the_text_does(open_page: Open) -> None:
    """In every unit of fractions, with no zero that has a sign."""
    page = open_page(step(5))
    units: tuple[UnitName, ...] = ("ratio", "share", "change", "factor", "number", "flops_per_byte", "amount")
    for unit in units:
        for column in (False, True):
            script = "([unit, values, column]) => values.map((value) => valueText(value, unit, column))"
            shown = page.evaluate(script, [unit, NUMBERS, column])
            assert shown == [value_text(value, unit, column=column) for value in NUMBERS]
            assert not [text for text in shown if re.match(r"-[0.]+\D*$", text)]


def test_lanes_of_time_begin_at_0_on_a_page_and_in_figures(open_page: Open, tmp_path: Path) -> None:
    """Also if they share no clock with a curve, and if their first interval begins late; lanes of ops do not."""
    lanes = (SpanLane("rank 0", (900,), (1000,), ("a",), ("forward",)),)
    blocks = tuple(Spans(key=unit, x_unit=unit, lanes=lanes) for unit in ("ns", "op"))
    made = Section("run", "Run", blocks=blocks).document("example")
    page = open_page(made)
    time, ops = (page.locator(f"[id='run.{unit}'] .lanes svg text").all_text_contents() for unit in ("ns", "op"))
    assert "0" in time
    assert "0" not in ops
    picture = render_figure(made, tmp_path / "lanes.svg", ["ns"]).read_text()
    assert re.search(r"<!-- 0 -->", picture)


@pytest.fixture
def open_page(open_html: Callable[[str], Page]) -> Open:
    """A function that opens a document as ``open_html`` does."""
    return lambda document: open_html(render_html(document))


def test_every_block_is_drawn(open_page: Open) -> None:
    page = open_page(step())
    assert "1.00 MiB" in page.inner_text("#memory .figures")
    assert "It fits." in page.inner_text("#memory .verdict")
    assert page.locator("[data-block=curve] path[data-role]").count() == 2
    assert page.locator("[data-block=scatter] path.pick").count() == 2
    assert page.locator("[data-block=spans] rect").count() == 2
    assert page.locator("#nav a").all_inner_texts() == ["Memory", "All ops", "Plots"]
    assert "Secret" not in page.inner_text("#ops")


def test_time_is_the_axis_where_durations_are_known(open_page: Open) -> None:
    page = open_page(step())

    def width(band: int) -> float:
        box = page.locator("[data-block=curve] rect").nth(band).bounding_box()
        assert box is not None
        return box["width"]

    assert page.get_attribute("button[data-key=ns]", "aria-pressed") == "true"
    assert width(0) > 8 * width(1)
    page.click("button[data-key=op]")
    assert width(0) == pytest.approx(width(1), rel=0.02)


def test_the_pointer_names_what_is_alive(open_page: Open) -> None:
    page = open_page(step())
    page.focus("[data-block=curve] svg")
    page.keyboard.press("p")
    tip = page.inner_text("#tip")
    for part in ("op 10", "mm", "1.00 MiB", "hidden", "weight"):
        assert part in tip
    assert "late" not in tip
    table = page.locator("[id='memory.storages']")
    assert table.locator(".vbody .vrow").count() == 2
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert "late" in table.inner_text()


def test_a_long_table_is_searched_and_sorted(open_page: Open) -> None:
    page = open_page(step(OPS))
    ops = page.locator("[id='ops.ops']")
    assert ops.locator(".vbody .vrow").count() < 100
    ops.locator("input").fill("MM layers.10")
    assert ops.locator(".vnote").inner_text().startswith("1\u2009666 of 20\u2009000 rows")
    ops.locator("button[data-key=time_ns]").click()
    assert ops.locator(".vbody .vrow").first.inner_text().replace("\n", " ").split()[-2:] == ["81", "ns"]
    ops.locator(".vbody .vrow").first.click()
    assert "Resident at op" in page.inner_text("#memory .alive-title")


def test_a_point_that_is_clicked_stays(open_page: Open) -> None:
    page = open_page(step())
    plot = page.locator("[data-block=scatter]")
    plot.locator("path.pick").first.click()
    page.mouse.move(0, 0)
    assert "batch: 1\ntime: 5 ns" in plot.inner_text()
    page.set_viewport_size({"width": 900, "height": 800})
    page.wait_for_selector("[data-block=scatter] path.kept")
    plot.locator("path.kept").click()
    assert "time: 5 ns" not in plot.inner_text()


def test_trees_open_close_and_keep_children_below_parents(open_page: Open) -> None:
    page = open_page(step())
    rows = page.locator("[id='ops.modules'] .vbody .vrow")
    page.click("[id='ops.modules'] button[data-key=n]")
    assert [text.split("\n")[0].strip("▾ ") for text in rows.all_inner_texts()] == ["c", "a", "a.b"]
    page.click("[id='ops.modules'] .twist")
    assert rows.count() == 2


def test_a_printed_chart_is_whole(open_page: Open) -> None:
    """Paper is narrower than the window in which the chart was drawn."""
    page = open_page(step())
    page.emulate_media(media="print")
    outside = page.evaluate(
        """() => {
            const plot = document.querySelector("[data-block=curve] svg");
            plot.parentNode.style.width = "600px";
            const frame = plot.getBoundingClientRect();
            return [...plot.querySelectorAll("path, rect, text")].filter(
                (node) => node.getBoundingClientRect().right > frame.right + 1).map((node) => node.outerHTML);
        }"""
    )
    assert outside == []


def test_dark_and_light(open_page: Open) -> None:
    page = open_page(step(20))
    before = page.get_attribute("html", "data-theme")
    page.click("#theme")
    assert {before, page.get_attribute("html", "data-theme")} == {"light", "dark"}


def test_a_document_without_anything(open_page: Open) -> None:
    page = open_page(Document(title="", sections=(Section("s", "", blocks=(Table(key="t", columns=()),)),)))
    assert "unnamed step" in page.inner_text("h1")


def linked() -> Document:
    """Two tables beside each other, a third one that is linked with them, and one that is not."""

    def table(key: str, pairs: tuple[int, ...], **options: Any) -> Table:
        names = tuple(f"{key}{pair}" for pair in pairs)
        return Table(
            key=key, columns=(Column("m", key, "path", names), Column("pair", "", "count", pairs, data=True)), **options
        )

    both = (table("a", tuple(range(80)), linked="pair"), table("b", tuple(range(40, 100)), linked="pair", beside=True))
    others = (table("c", (3, 50, 50), linked="pair"), table("d", (50,)))
    return Document(title="two", sections=(Section("s", "Both", blocks=(*both, *others)),))


def test_the_row_under_the_pointer_highlights_its_partners(open_page: Open) -> None:
    page = open_page(linked())
    left, right = (page.locator(f"[id='s.{key}']") for key in "ab")
    boxes = left.bounding_box(), right.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    row = right.locator(".vrow", has_text="b60").first
    right.locator(".vbody").evaluate("body => { body.scrollTop = 400 }")
    row.hover()
    assert left.locator(".vrow.mate").all_inner_texts() == ["a60"]
    shown, body = left.locator(".vrow.mate").bounding_box(), left.locator(".vbody").bounding_box()
    assert shown is not None
    assert body is not None
    assert body["y"] <= shown["y"] <= body["y"] + body["height"]  # scrolled into sight
    right.locator(".vrow", has_text="b50").first.hover()
    assert page.locator("[id='s.c'] .vrow.mate").all_inner_texts() == ["c50", "c50"]
    assert page.locator("[id='s.d'] .vrow.mate").count() == 0
    page.locator("h1").hover()
    assert page.locator(".vrow.mate").count() == 0


def test_a_logarithmic_axis_of_bytes_has_round_ticks(open_page: Open) -> None:
    points = Points("fits", (0.02, 700.0, 3000.0), (2**27, 2**33, 2**36), names=("a", "b", "c"))
    x, y = Axis("step", "s", log=True), Axis("memory", "bytes", log=True)
    scatter = Scatter(key="trade", x=x, y=y, points=(points,))
    page = open_page(Document(title="scale", sections=(Section("s", "Scale", blocks=(scatter,)),)))
    texts = page.locator("[data-block=scatter] svg text").all_text_contents()
    sizes = [text for text in texts if text.endswith("iB")]
    assert len(sizes) >= 3
    assert all(re.fullmatch(r"(1|2|4|8|16|32|64|128|256|512) [MG]iB", text) for text in sizes), sizes
    times = [text for text in texts if text.split(" ")[-1] in ("ms", "s", "min")]
    assert all(re.fullmatch(r"[1235]0* (ms|s|min)", text) for text in times), times


def test_flags_of_long_lists_are_words(open_page: Open) -> None:
    column = Column("fits", "Fits", "flag", tuple(row % 3 == 0 for row in range(40)))
    page = open_page(Document(title="t", sections=(Section("s", "S", blocks=(Table(key="t", columns=(column,)),)),)))
    assert page.locator(".vrow").all_inner_texts()[:4] == ["yes", "no", "no", "yes"]


def test_tables_cut_no_number_and_wrap_a_long_text(open_page: Open) -> None:
    reason = "layers of a chunk: layers / (pipeline * chunks) = 96/64, 128, 256 or 512 is no whole number"
    numbers = [Column(f"n{i}_bytes", f"micro-batches {i}", "bytes", (193_500_000_000 + i,) * 3) for i in range(7)]
    columns = (*numbers, Column("reason", "Reason", "text", (reason,) * 3, fold=True))
    page = open_page(Document(title="t", sections=(Section("s", "S", blocks=(Table(key="t", columns=columns),)),)))
    page.set_viewport_size({"width": 1100, "height": 800})
    cut = "cells => cells.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
    assert page.locator(".vrow > span, .vhead > button").evaluate_all(cut) == []
    heights = page.locator(".vrow").evaluate_all("rows => rows.map((row) => row.clientHeight)")
    assert min(heights) > 30


@pytest.mark.parametrize(("from_zero", "least"), [(False, 1.02), (True, 0.0)])
def test_an_axis_begins_at_zero_only_where_it_says_so(from_zero: bool, least: float, open_page: Open) -> None:
    """Small differences would be flat otherwise; figures begin where the page does."""
    y = Axis("slowdown", from_zero=from_zero)
    points = Points("runs", (0.5, 1.0), (1.05, 1.02), joined="line")
    scatter = Scatter(key="trade", x=Axis("budget"), y=y, points=(points,))
    page = open_page(Document(title="slowdown", sections=(Section("s", "Slowdown", blocks=(scatter,)),)))
    ticks = page.locator("[data-block=scatter] svg text[text-anchor=end]").all_text_contents()
    values = [float(tick) for tick in ticks if re.fullmatch(r"[0-9.]+", tick)]
    assert len(values) >= 3
    assert min(values) == pytest.approx(least, abs=0.005)


def test_ticks_of_bytes_divide_the_span_of_a_narrow_axis(open_page: Open) -> None:
    points = Points("fits", (1.0, 2.0), (17.4 * 2**20, 20.3 * 2**20))
    scatter = Scatter(key="trade", x=Axis("time"), y=Axis("memory", "bytes", log=True), points=(points,))
    page = open_page(Document(title="narrow", sections=(Section("s", "Narrow", blocks=(scatter,)),)))
    ticks = page.locator("[data-block=scatter] svg text[text-anchor=end]").all_text_contents()
    assert {"18 MiB", "19 MiB", "20 MiB"} <= {*ticks}


def test_lines_of_a_note_stay_apart(open_page: Open) -> None:
    note = Note(text="first\nsecond", kind="advice")
    page = open_page(Document(title="note", sections=(Section("s", "Note", blocks=(note,)),)))
    height = page.evaluate("[document.querySelector('.note.advice')].map((n) => n.offsetHeight / 10)[0]")
    assert height > 3  # two lines
