"""The page of an experiment in a real browser: its table is filtered, its curves are drawn, it fits a narrow window."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tensortide.reports.pictures import Scatter
from tensortide.reports.render.html import render_html
from tensortide.reports.sections.trials import document
from tests.reports.conftest import Open
from tests.reports.sections.test_trials import conducted

TABLE = "[id='trials.trials']"


def test_the_page_names_what_runs_and_what_failed(tmp_path: Path) -> None:
    page = render_html(document(conducted(tmp_path / "a")), compress=False)
    for text in ("running", "too small a budget", "7 trials: 5 ok, 1 infeasible, 1 running"):
        assert text in page


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_trials_are_filtered_and_curves_drawn(open_html: Open, tmp_path: Path, width: int) -> None:
    made = document(conducted(tmp_path / "a", budgets=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5)))
    page = open_html(render_html(made), width=width)
    table = page.locator(TABLE)
    assert table.locator(".vnote").inner_text() == "15 of 15 rows"
    assert "running" in table.inner_text()
    table.get_by_role("button", name="lru", exact=True).click()
    assert table.locator(".vnote").inner_text() == "7 of 15 rows"
    table.get_by_role("button", name="infeasible", exact=True).click()
    assert table.locator(".vnote").inner_text() == "1 of 15 rows"
    assert page.locator("#pareto [data-block=scatter] path.pick").count() == 13
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_a_table_of_few_rows_more_shows_all_and_policies_keep_their_colours(open_html: Open, tmp_path: Path) -> None:
    made = document(conducted(tmp_path / "a", budgets=[0.99 - 0.05 * n for n in range(12)]))
    page = open_html(render_html(made), width=1280)
    body = page.locator(f"{TABLE} .vbody")
    assert body.evaluate("one => one.scrollHeight <= one.clientHeight")
    (panel,) = [one for one in made["pareto"].blocks if isinstance(one, Scatter)]
    moved = [replace(one, look=5) for one in panel.points]
    other = replace(made, sections=(replace(made["pareto"], blocks=(replace(panel, points=tuple(moved)),)),))
    page = open_html(render_html(other), width=1280)
    style = page.locator("#pareto [data-block=scatter] path.line").first.get_attribute("style")
    assert style is not None
    assert "--p5" in style
