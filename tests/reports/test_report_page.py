"""The page of a report in a real browser, from a file, without a network."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from tensortide.graph.model import Graph
from tensortide.reports import report
from tensortide.reports.blocks import Document, UnitName
from tensortide.reports.render.html import render_html
from tensortide.reports.render.values import value_text
from tensortide.timing import Durations
from tensortide.units import format_bytes, format_count
from tests.marks import some_slow
from tests.reports.conftest import Open
from tests.reports.graphs import alone, empty, tower

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CURVE = "[id='memory.resident']"
OPS = "[id='ops.ops']"
STORAGES = "[id='memory.storages']"
TREE = "[id='modules.modules']"


@pytest.fixture
def open_page(open_html: Open) -> Open:
    """A function that opens the report of a graph."""
    return lambda graph, **options: open_html(render_html(report(graph), **options))


class Box(NamedTuple):
    """A rectangle in the window."""

    x: float
    y: float
    width: float
    height: float


def box_of(element: Locator) -> Box:
    """The place of ``element``, which is scrolled into view."""
    element.scroll_into_view_if_needed()
    found = element.bounding_box()
    assert found is not None
    return Box(**found)


def text_at(page: Page, selector: str) -> str:
    """The text of an element, shown or not."""
    text = page.text_content(selector)
    assert text is not None
    return text


def rows_shown(page: Page, table: str) -> int:
    """Number of rows that a search leaves, as the page states it."""
    match = re.match(r"([\d\s\u2009]+) of", text_at(page, f"{table} .vnote"))
    assert match is not None
    return int(re.sub(r"\D", "", match[1]))


@pytest.mark.parametrize("compress", some_slow([True, False], [True]), ids=["compressed", "plain"])
def test_totals_stand_in_tiles(open_page: Open, compress: bool) -> None:
    page = open_page(tower(), compress=compress)
    text = page.inner_text("#cost")
    assert "152.0 KiB" in text
    assert "3.17 MFLOP" in text
    assert "tower" in page.inner_text("h1")
    assert page.locator("#status").count() == 0
    assert page.title() == "tower - tensortide"


def test_modules_expand_collapse_and_sort(open_page: Open) -> None:
    page = open_page(tower(layers=8))
    rows = page.locator(f"{TREE} .vbody .vrow")
    page.click(f"{TREE} >> text=Collapse all")
    assert rows.count() == 2
    page.click(f"{TREE} >> text=Expand all")
    assert rows.count() == 2 + 1 + 2 * 8
    page.locator(f"{TREE} .twist").nth(1).click()
    assert rows.count() == 3
    page.click(f"{TREE} .vhead button[data-key=flops]")
    assert page.get_attribute(f"{TREE} .vhead button[data-key=flops]", "aria-sort") == "descending"
    page.click(f"{TREE} .vhead button[data-key=flops]")
    assert rows.first.inner_text().startswith("(outside)")


def test_a_tree_is_nested_bars(open_page: Open) -> None:
    page = open_page(tower())
    bars = page.locator(f"{TREE} .icicle rect")
    before = box_of(bars.nth(2)).width
    bars.nth(2).hover()
    assert "(root).layers.0" in page.inner_text("#tip")
    bars.nth(2).click()
    assert page.inner_text(f"{TREE} .icicle .keys").startswith("Show all")
    page.click(f"{TREE} .icicle >> text=Show all")
    assert box_of(bars.nth(2)).width == before
    page.click(f"{TREE} .icicle [data-key=parameters]")
    assert bars.count() == 10


def test_ops_are_found_and_sorted(open_page: Open) -> None:
    page = open_page(tower())
    page.fill(f"{OPS} input", "MM backward layers.2")
    assert rows_shown(page, OPS) == 2
    page.fill(f"{OPS} input", "line 20 of the step")
    assert rows_shown(page, OPS) == 4
    page.fill(f"{OPS} input", "no such op")
    assert page.inner_text(f"{OPS} .vnote") == "Nothing here."
    page.fill(f"{OPS} input", "forward")
    assert rows_shown(page, OPS) == 8
    page.click(f"{OPS} .vhead [data-key=flops]")
    assert "mm" in page.inner_text(f"{OPS} .vrow >> nth=0")


def test_ops_of_a_phase_are_picked(open_page: Open) -> None:
    page = open_page(tower())
    page.click(f"{OPS} [data-chip=backward]")
    assert page.get_attribute(f"{OPS} [data-chip=backward]", "aria-pressed") == "true"
    backward = rows_shown(page, OPS)
    assert 0 < backward < 20
    page.click(f"{OPS} [data-chip=forward]")
    assert rows_shown(page, OPS) == 8
    page.click(f"{OPS} [data-chip=forward]")
    assert rows_shown(page, OPS) > backward + 8


def test_the_legend_picks_a_role_of_what_is_alive(open_page: Open) -> None:
    page = open_page(tower())
    shown = page.locator(f"{STORAGES} .vrow")
    every = shown.count()
    page.click(f"{CURVE} .legend [data-chip=gradient]")
    assert 0 < shown.count() < every
    assert all(text.startswith("gradient") for text in shown.all_inner_texts())
    assert page.get_attribute(f"{STORAGES} [data-chip=gradient]", "aria-pressed") == "true"
    page.click(f"{CURVE} .legend [data-chip=gradient]")
    assert shown.count() == every


def test_a_group_leads_to_its_first_op(open_page: Open) -> None:
    page = open_page(tower(layers=30))
    page.click(f"{OPS} [data-chip=forward]")
    page.locator("[id='ops.groups'] .vrow").filter(has_text="backward").first.click()
    marked = page.locator(f"{OPS} .vrow.here")
    assert "backward" in marked.inner_text()
    assert box_of(marked).y > 0


def test_the_chart_names_what_runs_and_what_is_alive(open_page: Open) -> None:
    page = open_page(tower())
    box = box_of(page.locator(f"{CURVE} svg"))
    page.mouse.move(box.x + 80, box.y + box.height / 2)
    tooltip = page.inner_text("#tip")
    for part in ("op 0", "train.py:10", "parameter", "layers.0.fc.weight"):
        assert part in tooltip
    page.mouse.click(box.x + 80, box.y + box.height / 2)
    assert page.inner_text(f"{CURVE} .alive-title").startswith("Resident at op 0")
    page.click(f"{CURVE} >> text=Go to the peak")
    assert page.inner_text(f"{CURVE} .alive-title").startswith("Resident at the peak, op 15")
    assert "152.0 KiB" in text_at(page, f"{CURVE} svg .peak-text")
    page.fill(f"{STORAGES} input", "gradient")
    assert page.locator(f"{STORAGES} .vrow").count() == 4
    page.mouse.move(0, 0)
    assert page.is_hidden("#tip")


def test_lifetimes_and_zoom(open_page: Open) -> None:
    page = open_page(tower(layers=30))
    last_use = "[id='memory.last_use']"
    assert page.is_hidden(last_use)
    page.click("#memory .variants [data-key=last_use]")
    assert page.is_hidden(CURVE)
    assert page.locator(f"{last_use} path[data-role]").count() == 5
    page.click("#memory .variants [data-key=resident]")
    box = box_of(page.locator(f"{CURVE} svg"))
    page.mouse.move(box.x + 300, box.y + 100)
    page.mouse.down()
    page.mouse.move(box.x + 500, box.y + 100)
    page.mouse.up()
    assert page.is_enabled(f"{CURVE} >> text=Whole step")
    page.mouse.dblclick(box.x + 400, box.y + 100)
    assert page.is_disabled(f"{CURVE} >> text=Whole step")


def test_the_chart_answers_to_keys(open_page: Open) -> None:
    page = open_page(tower())
    chart = page.locator(f"{CURVE} svg")
    chart.focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        chart.press(key)
    assert text_at(page, f"{CURVE} .said").startswith("op 2,")
    chart.press("Enter")
    assert page.inner_text(f"{CURVE} .alive-title").startswith("Resident at op 2")
    chart.press("+")
    assert page.is_enabled(f"{CURVE} >> text=Whole step")
    chart.press("Escape")
    assert page.is_disabled(f"{CURVE} >> text=Whole step")
    chart.press("p")
    assert text_at(page, f"{CURVE} .said").startswith("op 15,")


def test_the_theme_is_switched_and_follows_the_system(open_page: Open) -> None:
    page = open_page(tower())
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    dark = page.evaluate(paper)
    assert dark != "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(paper) == dark
    page.emulate_media(color_scheme="dark", media="print")
    page.wait_for_selector("html[data-theme=light]")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"


def test_names_are_text(open_page: Open) -> None:
    name = "</script><b>bold</b><img src=x onerror=alert(1)>&amp;"
    page = open_page(tower(hostile=name), compress=False)
    assert page.locator("b:has-text('bold')").count() == 0
    assert page.locator(f"{TREE} .vrow").filter(has_text=name).count() >= 1


def test_assumptions_have_a_heading(open_page: Open) -> None:
    graph = tower()
    assumed = msgspec.structs.replace(graph.meta, assumptions=("no padding", "<b>one</b> expert"))
    text = open_page(msgspec.structs.replace(graph, meta=assumed)).inner_text("#cost")
    for part in ("Assumptions", "no padding", "<b>one</b> expert"):
        assert part in text
    assert "Assumptions" not in open_page(graph).inner_text("main")


@pytest.mark.parametrize(
    ("graph", "width"),
    [
        (alone(), 390),
        pytest.param(empty(), 1600, marks=pytest.mark.slow),
        pytest.param(tower(train=False), 390, marks=pytest.mark.slow),
        (tower(train=False), 1600),
    ],
    ids=["alone", "empty", "inference, narrow", "inference, wide"],
)
def test_steps_with_little_in_them(open_page: Open, graph: Graph, width: int) -> None:
    page = open_page(graph)
    page.set_viewport_size({"width": width, "height": 800})
    assert "Peak memory" in page.inner_text("#cost")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_agrees_with_the_document(open_page: Open) -> None:
    """Long lists are written shorter; the page has them as they were."""
    graph = tower(layers=20)
    document = report(graph)
    page = open_page(graph)
    script = (
        "(async () => unpack(await readDocument()).sections.flatMap((s) => s.blocks)"
        ".filter((b) => b.block === 'curve').map((b) => b.stack.map((s) => s.values)))()"
    )
    curves = [document["memory"][key] for key in ("resident", "last_use")]
    assert page.evaluate(script) == [[list(one.values) for one in curve.stack] for curve in curves]  # type: ignore[union-attr]
    for number in (0, 1023, 1536, 13249974107, 3 * 1024**7):
        assert page.evaluate(f"bytes({number})") == format_bytes(number)
        assert page.evaluate(f"count({number}, 'FLOP')") == format_count(number, "FLOP")


@pytest.mark.slow
def test_twenty_thousand_ops_stay_quick(open_html: Open, tmp_path: Path) -> None:
    graph = tower(layers=4000)
    durations = Durations(tuple(3000 + 7919 * i % 80_000 for i in range(len(graph))), "made up", "measured")
    page = open_html(render_html(report(graph, durations=durations)))
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    assert rows_shown(page, OPS) == 20_000
    start = time.monotonic()
    page.fill(f"{OPS} input", "mm backward layers.39")
    assert rows_shown(page, OPS) == 2 * 111
    page.fill(f"{OPS} input", "")
    page.click(f"{OPS} .vhead [data-key=accessed_bytes]")
    page.evaluate(f'document.querySelector("{OPS} .vbody").scrollTop = 15000 * 24')
    page.wait_for_selector(f"{OPS} .vrow[aria-rowindex='15010']")
    assert page.locator(f"{OPS} .vrow").count() < 100
    page.click("#memory .variants [data-key=last_use]")
    assert time.monotonic() - start < 10


HALVES = [577.25 * 1024, 576.75 * 1024, 1.125 * 2**20, 1.375 * 2**20, 12.345, 0.125, 2.5, 3.5, 577_500.0, 576_500.0]
HALVES += [0.0625, 0.1875, 1e9 + 5e6, 2.25 * 3.6e12, 4.25 * 864e11, 10.5 * 864e11, 11.5 * 864e11, 1_234_500.0, 100.5]


def test_the_page_rounds_as_the_terminal_does(open_html: Open, document: Document) -> None:
    """Halves above all, which binary numbers have exactly: a program that rounds them to even would differ."""
    page = open_html(render_html(document))
    values = [*HALVES, *(-value for value in HALVES), *(value / 1000 for value in HALVES if value > 1)]
    units: tuple[UnitName, ...] = (
        "bytes",
        "ns",
        "s",
        "flops",
        "amount",
        "number",
        "ratio",
        "share",
        "change",
        "factor",
    )
    for unit in units:
        written = page.evaluate("([values, unit]) => values.map((value) => valueText(value, unit))", [values, unit])
        written = [text.replace("\u2009", ",").replace("µ", "u") for text in written]
        assert written == [value_text(value, unit) for value in values], unit
