"""The page of an experiment in a real browser: its table is filtered, its curves are drawn, it fits a narrow window."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.reports.render.html import render_html
from tensortide.reports.sections.trials import document
from tests.reports.conftest import Open
from tests.reports.sections.test_trials import conducted

TABLE = "[id='trials.trials']"


def test_the_page_names_what_runs_and_what_failed(tmp_path: Path) -> None:
    page = render_html(document(conducted(tmp_path / "a")), compress=False)
    for text in ("running, 1 done", "too small a budget", "7 trials: 5 ok, 1 infeasible, 1 running"):
        assert text in page


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_trials_are_filtered_and_curves_drawn(open_html: Open, tmp_path: Path, width: int) -> None:
    made = document(conducted(tmp_path / "a", budgets=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5)))
    page = open_html(render_html(made), width=width)
    table = page.locator(TABLE)
    assert table.locator(".vnote").inner_text() == "15 of 15 rows"
    assert "running, 1 done" in table.inner_text()
    table.get_by_role("button", name="lru", exact=True).click()
    assert table.locator(".vnote").inner_text() == "7 of 15 rows"
    table.get_by_role("button", name="infeasible", exact=True).click()
    assert table.locator(".vnote").inner_text() == "1 of 15 rows"
    assert page.locator("#pareto [data-block=scatter] path.pick").count() == 13
    assert page.evaluate("document.documentElement.scrollWidth") <= width
