"""The page in a real browser, from a file, without a network."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from tensortide.graph.model import Graph
from tensortide.reports import report
from tensortide.reports.html import render_html
from tests.reports.conftest import Open
from tests.reports.graphs import alone, empty, tower

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


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
    """Where ``element`` is."""
    found = element.bounding_box()
    assert found is not None
    return Box(**found)


def told(page: Page, selector: str) -> str:
    """The text of an element, shown or not."""
    text = page.text_content(selector)
    assert text is not None
    return text


def ops_shown(page: Page) -> int:
    """How many ops the search leaves, as the page says."""
    match = re.match(r"([\d\s\u2009]+) of", told(page, "#ops .vnote"))
    assert match is not None
    return int(re.sub(r"\D", "", match[1]))


@pytest.mark.parametrize("compress", [True, False], ids=["compressed", "plain"])
def test_totals_are_there(open_page: Open, compress: bool) -> None:
    page = open_page(tower(), compress=compress)
    text = page.inner_text("#overview")
    assert "tower" in text
    assert "152.0 KiB" in text
    assert "3.17 MFLOP" in text
    assert page.is_hidden("#status")
    assert page.title() == "tower - tensortide"


def test_modules_expand_collapse_and_sort(open_page: Open) -> None:
    page = open_page(tower(layers=40))
    rows = page.locator("#modules tbody tr")
    page.click("text=Collapse all")
    assert rows.count() == 2
    page.click("text=Expand all")
    assert rows.count() == 2 + 1 + 2 * 40
    page.locator("#modules .twist").nth(1).click()
    assert rows.count() == 3
    page.locator("#modules .twist").first.press("Enter")
    assert rows.count() == 2
    page.click("#modules th button[data-key=flops]")
    assert page.get_attribute("#modules th:has(button[data-key=flops])", "aria-sort") == "descending"
    page.click("#modules th button[data-key=flops]")
    assert rows.first.inner_text().startswith("(outside)")


def test_the_icicle_enlarges_a_module(open_page: Open) -> None:
    page = open_page(tower())
    tile = page.locator("#modules .icicle rect").nth(2)
    before = box_of(tile).width
    tile.click()
    assert page.inner_text("#modules .icicle .keys").startswith("Whole model")
    assert page.locator("#modules tr.active").count() == 1
    page.click("#modules .icicle >> text=Whole model")
    assert box_of(tile).width == before
    page.click("#modules [data-key=parameters] >> nth=0")
    assert page.locator("#modules .icicle rect").count() == 10


def test_ops_are_found_and_sorted(open_page: Open) -> None:
    page = open_page(tower())
    page.fill("#ops input", "MM backward layers.2")
    assert ops_shown(page) == 2
    page.fill("#ops input", "train.py:20")
    assert ops_shown(page) == 4
    page.fill("#ops input", "no such op")
    assert page.inner_text("#ops .vnote") == "Nothing here."
    page.fill("#ops input", "")
    page.click("#ops [data-chip=forward]")
    assert ops_shown(page) == 8
    page.click("#ops .vhead [data-key=flops]")
    assert "aten.mm" in page.inner_text("#ops .vrow >> nth=0")
    page.click("#top-ops tbody button >> nth=3")
    assert page.input_value("#ops input").startswith("aten.add_.Tensor")


def test_the_chart_tells_what_runs_and_what_is_alive(open_page: Open) -> None:
    page = open_page(tower())
    box = box_of(page.locator("#memory svg"))
    page.mouse.move(box.x + 80, box.y + box.height / 2)
    tooltip = page.inner_text("#tip")
    assert "op 0" in tooltip
    assert "train.py:10" in tooltip
    assert "parameter" in tooltip
    page.mouse.click(box.x + 80, box.y + box.height / 2)
    assert page.inner_text("#memory .alive-title").startswith("Alive at op 0")
    page.click("text=Go to the peak")
    assert page.inner_text("#memory .alive-title").startswith("Alive at the peak, op 15")
    assert "152.0 KiB" in told(page, "#memory svg .peak-text")
    page.click("#memory .pick:has-text('gradient')")
    assert page.locator("#memory .vrow").count() == 4
    page.mouse.move(0, 0)
    assert page.is_hidden("#tip")


def test_lifetimes_and_zoom(open_page: Open) -> None:
    page = open_page(tower(layers=30))
    page.click("#memory [data-key=last_use]")
    assert page.get_attribute("#memory [data-key=last_use]", "aria-pressed") == "true"
    box = box_of(page.locator("#memory svg"))
    page.mouse.move(box.x + 300, box.y + 100)
    page.mouse.down()
    page.mouse.move(box.x + 500, box.y + 100)
    page.mouse.up()
    assert page.is_enabled("text=Whole step")
    page.mouse.dblclick(box.x + 400, box.y + 100)
    assert page.is_disabled("text=Whole step")


def test_the_chart_answers_to_keys(open_page: Open) -> None:
    page = open_page(tower())
    chart = page.locator("#memory svg")
    chart.focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        chart.press(key)
    assert told(page, "#memory .said").startswith("op 2,")
    chart.press("Enter")
    assert page.inner_text("#memory .alive-title").startswith("Alive at op 2")
    chart.press("+")
    assert page.is_enabled("text=Whole step")
    chart.press("Escape")
    assert page.is_disabled("text=Whole step")
    chart.press("p")
    assert told(page, "#memory .said").startswith("op 15,")


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
    page.click("text=Expand all")
    assert page.locator("#modules tbody td").filter(has_text=name).count() >= 1


def test_assumptions_are_told(open_page: Open) -> None:
    graph = tower()
    assumed = msgspec.structs.replace(graph.meta, assumptions=("no padding", "<b>one</b> expert"))
    page = open_page(msgspec.structs.replace(graph, meta=assumed))
    assert "Assumed: no padding; <b>one</b> expert" in page.inner_text("#overview")
    assert "no padding" in page.inner_text("#about")
    assert "Assumed" not in open_page(graph).inner_text("main")


@pytest.mark.parametrize("graph", [alone(), empty(), tower(train=False)], ids=["alone", "empty", "inference"])
@pytest.mark.parametrize("width", [390, 1600])
def test_steps_with_little_in_them(open_page: Open, graph: Graph, width: int) -> None:
    page = open_page(graph)
    page.set_viewport_size({"width": width, "height": 800})
    assert "Peak memory" in page.inner_text("#overview")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_agrees_with_the_document(open_page: Open) -> None:
    """What the page computes from births and deaths is the series that Python computed."""
    graph = tower(layers=20)
    page = open_page(graph)
    document = report(graph)
    script = "(async () => [...new Report(await readDocument()).series.%s.total])()"
    assert page.evaluate(script % "eager") == list(document.ops.resident_bytes)
    assert max(page.evaluate(script % "last_use")) == document.memory.last_use.peak_bytes
    for number in (0, 1023, 1536, 13249974107, 3 * 1024**7):
        from tensortide.units import format_bytes, format_count

        assert page.evaluate(f"bytes({number})") == format_bytes(number)
        assert page.evaluate(f"count({number}, 'FLOP')") == format_count(number, "FLOP")


@pytest.mark.slow
def test_twenty_thousand_ops_stay_quick(open_page: Open, tmp_path: Path) -> None:
    page = open_page(tower(layers=4000))
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    assert ops_shown(page) == 20_000
    start = time.monotonic()
    page.fill("#ops input", "mm backward layers.39")
    assert ops_shown(page) == 2 * 111
    page.fill("#ops input", "")
    page.click("#ops .vhead [data-key=bytes]")
    page.evaluate("document.querySelector('#ops .vbody').scrollTop = 15000 * 24")
    page.wait_for_selector("#ops .vrow[aria-rowindex='15010']")
    assert page.locator("#ops .vrow").count() < 100
    page.click("#memory [data-key=last_use]")
    assert time.monotonic() - start < 10
