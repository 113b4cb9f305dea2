"""Lanes of a plan in a real browser: what is told of an interval, under the pointer and by keys, and zooming."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from tensortide.plans import Lane, Plan
from tensortide.replays import replay_transfers
from tensortide.reports.blocks import AnyBlock, Document, Section
from tensortide.reports.pictures import Curve, Series, SpanLane, Spans
from tensortide.reports.render.html import render_html
from tensortide.reports.render.values import shortened
from tensortide.reports.sections import plan_memory, transfers
from tensortide.timelines import timeline
from tensortide.timing.links import Link
from tests.replays.test_transfers import PUBLISHED, TIMES, WORKSPACE, example
from tests.reports.conftest import Open

if TYPE_CHECKING:
    from playwright.sync_api import Page

LANES = "[id='plan.lanes'] .lanes svg"
CURVE = "[id='plan.memory'] svg"


def shown() -> Document:
    """The published example: A leaves for the host, and two ops wait."""
    graph = example()
    plan = Plan(graph.index.digest, (Lane("cpu", PUBLISHED),))
    links = (Link("host", Fraction(10**9), 1),)
    line = replay_transfers(graph, plan, durations_ns=TIMES, links=links, workspace=WORKSPACE, budget_bytes=13)
    without = timeline(graph, lifetimes="last_use", durations_ns=TIMES, workspace=WORKSPACE)
    blocks: tuple[AnyBlock, ...] = (*transfers.lanes(line), *plan_memory.curves(line, without, 13))
    return Section("plan", "Plan", blocks=blocks).document("example")


@pytest.fixture
def page(open_html: Open) -> Page:
    return open_html(render_html(shown()))


def test_compute_engines_and_stalls_are_lanes_of_coloured_intervals(page: Page) -> None:
    names = page.locator(f"{LANES} text title").all_text_contents()
    assert names == ["compute", "host out", "host in", "stalls"]
    kinds = page.locator(f"{LANES} rect[data-kind]").evaluate_all("all => all.map((one) => one.dataset.kind)")
    assert [kinds.count(kind) for kind in ("copy", "fetch", "stall")] == [1, 1, 2]


def test_the_pointer_says_what_is_moved_and_why(page: Page) -> None:
    page.locator(f"{LANES} rect[data-kind=copy]").hover()
    text = page.inner_text("#tip")
    for part in ("copy u8[6] of test.op", "7 ns, 4 ns to 11 ns", "Bytes", "6 B", "away from 11 ns to 27 ns", "op 4"):
        assert part in text
    assert page.locator(f"{LANES} path.path").count() == 1  # to its fetch, and to the op that needs it
    page.locator(f"{LANES} rect[data-kind=stall]").nth(1).hover()
    assert "waits for the fetch of u8[6]" in page.inner_text("#tip")


def test_keys_reach_every_interval_and_keep_what_is_told(page: Page) -> None:
    page.focus(LANES)
    page.keyboard.press("ArrowRight")
    assert "0 ns to 4 ns" in page.inner_text("#tip")
    page.keyboard.press("ArrowRight")
    assert "4 ns to 9 ns" in page.inner_text("#tip")
    page.keyboard.press("ArrowDown")
    assert "copy" in page.inner_text("#tip")
    page.keyboard.press("Enter")
    page.locator("h1").hover()
    assert "away from 11 ns to 27 ns" in page.inner_text("[id='plan.lanes'] .note.told")
    page.keyboard.press("ArrowDown")
    assert "host in: fetch" in page.inner_text("[id='plan.lanes'] .said")


def test_lanes_and_curves_of_one_clock_zoom_together(page: Page) -> None:
    def axis(plot: str) -> list[str]:
        texts = page.locator(f"{plot} text").all_text_contents()
        return [text for text in texts if text == "0" or text.endswith(" ns")]

    whole = axis(LANES)
    assert "30 ns" in whole
    page.locator(f"{LANES} rect[data-kind=copy]").hover()
    page.keyboard.press("+")
    page.focus(LANES)
    for key in ("ArrowRight", "+", "+"):
        page.keyboard.press(key)
    assert "30 ns" not in axis(LANES)
    assert "30 ns" not in axis(CURVE)
    page.keyboard.press("Escape")
    assert axis(LANES) == whole
    assert "30 ns" in axis(CURVE)


def test_stalls_are_hatched_over_the_memory(page: Page) -> None:
    assert page.locator(f"{CURVE} path.hatch").count() == 2
    page.click("button[data-key=without]")
    assert page.locator("[id='plan.without'] svg path[data-role]").count() >= 1


def links(*names: str) -> Document:
    """Lanes of those names, above a curve of the same clock."""
    lanes = tuple(SpanLane(name, (0, 60), (50, 100), ("a", "b"), ("forward", "strange")) for name in names)
    blocks = (
        Spans(key="lanes", x_unit="ns", lanes=lanes, clock="step"),
        Curve(key="memory", x=(0, 50, 100), x_unit="ns", stack=(Series("one", "one", (1, 2)),), clock="step"),
    )
    return Section("plan", "Plan", blocks=blocks).document("example")


def test_names_of_links_are_whole_and_curves_begin_where_lanes_do(open_html: Open) -> None:
    long = "accelerator-of-node-0123 > accelerator-of-node-4567"
    page = open_html(render_html(links("gpu0", "gpu0 > gpu1", "machine-03.gpu11 > machine-04.gpu12", long)))
    written = page.locator(f"{LANES} text:has(title)").evaluate_all("all => all.map((one) => one.firstChild.data)")
    assert written[:3] == ["gpu0", "gpu0 > gpu1", "machine-03.gpu11 > machine-04.gpu12"]
    first, _, second = written[3].partition(" > ")
    assert first.endswith("0123")
    assert second.endswith("4567")
    begins = page.locator(f"{LANES} line.grid").first.get_attribute("x1")
    assert begins == page.locator("[id='plan.memory'] svg line.axis").first.get_attribute("x1")
    kept = page.locator(f"{LANES} text:has(title)").evaluate_all("all => all.map((one) => one.getBBox().x)")
    assert min(kept) >= 0  # nothing sticks out at the left
    colours = page.locator(f"{LANES} rect[data-kind=strange]").evaluate_all("all => all.map((one) => one.style.fill)")
    assert len(set(colours)) == 1  # of a kind, whatever the lane


def test_intervals_too_short_to_see_lie_below_the_others(open_html: Open) -> None:
    """They are drawn wider than they are."""
    starts, ends = (0, 10_000, 10_001, 19_998, 19_999), (10_000, 10_001, 19_998, 19_999, 20_000)
    kinds = ("forward", "transfer", "backward", "exchange", "transfer")
    lanes = (SpanLane("one", starts, ends, (), kinds),)
    made = Section("plan", "Plan", blocks=(Spans(key="lanes", x_unit="ns", lanes=lanes),)).document("example")
    page = open_html(render_html(made))
    drawn = page.locator(f"{LANES} rect[data-kind]").evaluate_all("all => all.map((one) => one.dataset.kind)")
    assert drawn[-2:] == ["forward", "backward"]
    assert set(drawn[:-2]) == {"transfer", "exchange"}


def test_a_name_that_is_too_long_keeps_its_ends() -> None:
    assert shortened("gpu0 > gpu1", 11) == "gpu0 > gpu1"
    assert shortened("accelerator-node00 > accelerator-node01", 25) == "…tor-node00 > …tor-node01"
    assert shortened("blocks.0.attention.qkv.weight", 10) == "…kv.weight"
