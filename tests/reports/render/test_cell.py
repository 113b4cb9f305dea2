"""Cells of a notebook: small, in the notebook's own colours, and closed to what names of a model might say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import explain
from tensortide.graph import Graph
from tensortide.importers.imported import Imported
from tensortide.reports import report
from tensortide.timelines import idleness
from tensortide.timing import device, estimate
from tests.graphs import stored
from tests.reports.graphs import tower
from tests.reports.sections.test_shown import CELL_BYTES

HOSTILE = "<script>document.title = 'evil'</script><img src=//example.com/x>"
RESULTS: dict[str, Callable[[Graph], Any]] = {
    "report": lambda graph: report(graph, durations=estimate(graph, device("T4"))),
    "graph": lambda graph: graph,
    "imported": Imported,
    "count": tensortide.count,
    "explain": lambda graph: explain(graph, 0),
    "timeline": tensortide.timeline,
    "lives": tensortide.liveness,
    "idleness": lambda graph: idleness(graph, [1000] * len(graph)),
    "checks": lambda graph: tensortide.check(graph, ["peak <= 1 KB", "no recomputation"]),
    "compared": lambda graph: tensortide.compare(graph, stored("hf_gpt2")),
}


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return stored("gpt2")


@pytest.mark.parametrize("name", RESULTS)
def test_a_cell_is_a_few_kilobytes(name: str, gpt2: Graph) -> None:
    result = RESULTS[name](gpt2)
    assert len(result._repr_html_().encode()) < CELL_BYTES


def test_a_cell_shows_what_a_terminal_shows(gpt2: Graph) -> None:
    found = RESULTS["report"](gpt2)
    answer, full = found._repr_html_(), found.full()._repr_html_()
    for text in ("What takes the time", "Peak memory", "What to do", ".page()"):
        assert text in answer
    assert "Where it goes" not in answer
    assert "Where it goes" in full
    assert len(full.encode()) < 2 * CELL_BYTES


def test_the_page_comes_on_demand(tmp_path: Path) -> None:
    page = report(tower()).page()
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert repr(page).startswith("<Page ")
    written = page.save(tmp_path / "made" / "step.html")
    assert written.read_text("utf-8").startswith("<!doctype html>")
    assert tensortide.count(tower()).page().save(tmp_path / "count.html").stat().st_size > 10_000


def test_names_are_no_markup_and_nothing_is_loaded() -> None:
    found = report(tower(hostile=HOSTILE))
    for cell in (found._repr_html_(), found.full()._repr_html_()):
        assert "&lt;script&gt;" in cell
        assert not re.search(r"<script|<img|src=|href=|url\(|@import", cell.replace("&lt;img src=", ""))
        assert not re.search(r"(?<!-)color:", cell)


@pytest.mark.slow
def test_a_browser_shows_it_in_light_and_in_dark(open_html: Callable[[str], Any]) -> None:
    cell = report(tower(hostile=HOSTILE))._repr_html_()
    for background, ink in (("#fff", "rgb(34, 34, 34)"), ("#111", "rgb(224, 224, 224)")):
        page = open_html(
            f"<html data-ready><title>t</title><body style='background:{background};color:{ink}'>{cell}</body></html>"
        )
        assert page.title() == "t"
        assert page.locator("table").count() == 3
        colour = page.locator("table td").first.evaluate("cell => getComputedStyle(cell).color")
        assert colour == ink
        number = page.locator("table td:nth-child(2)").first
        assert number.evaluate("cell => getComputedStyle(cell).textAlign") == "right"
