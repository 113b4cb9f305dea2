"""Sections of a comparison: the cause and the metrics on the first screen, then where the difference is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import tensortide
from tensortide.measures.differences.compared import Compared
from tensortide.reports.blocks import Document
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections.comparison import SHOWN, document
from tests.golden import assert_golden
from tests.graphs import Builder
from tests.measures.differences.models import side

GOLDEN = Path(__file__).with_name("comparison.txt")


@pytest.fixture(scope="module")
def doubled() -> Document:
    """The Tower, and one whose third feed-forward part doubled."""
    return document(compared())


def compared(**options: Any) -> Compared:
    return tensortide.compare(side(), side(doubled=3), thresholds=["peak=+2%", "flops=+50%"], **options)


def text(made: Document, width: int = 100) -> str:
    out = io.StringIO()
    render_terminal(made, Console(file=out, width=width, highlight=False, no_color=True))
    return out.getvalue()


def test_the_terminal_shows_what_it_showed(doubled: Document) -> None:
    assert_golden(text(doubled), GOLDEN)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_first_screen_names_the_cause(doubled: Document, width: int) -> None:
    lines = text(doubled, width).splitlines()
    assert max(map(len, lines)) <= width
    screen = "\n".join(lines[:24])
    assert "blocks.3.mlp doubled" in screen
    assert "Exceeded peak=+2%" in screen
    assert "Peak memory" in screen


def test_values_are_raw_in_data(doubled: Document) -> None:
    sections = json.loads(render_json(doubled))["sections"]
    table = sections["modules"]["tables"]["modules"]
    row = table["b_path"].index("blocks.3.mlp")
    assert table["difference_flops"][row] == table["b_flops"][row] - table["a_flops"][row] > 0
    roots = [i for i, depth in enumerate(table["depth"]) if depth == 0]
    metrics = sections["comparison"]["tables"]["all_metrics"]
    flops = metrics["name"].index("flops")
    difference = metrics["value_b"][flops] - metrics["reference"][flops]
    assert sum(table["own_difference_flops"]) == sum(table["difference_flops"][i] for i in roots) == difference
    assert sum(table["own_difference_peak_bytes"]) == sum(sections["peak"]["tables"]["roles"]["difference_bytes"])
    kinds = sections["ops"]["tables"]["kinds"]
    assert sum(kinds["difference_flops"]) == difference
    assert {note["kind"] for note in sections["comparison"]["notes"]} == {"verdict", "advice", "failure"}


def test_csv_has_a_row_for_every_module_of_both(doubled: Document) -> None:
    lines = render_csv(doubled, "modules").splitlines()
    found = compared().steps[0]
    assert found is not None
    assert len(lines) == sum(1 for _ in found.root.walk())  # the heading in place of the step as a whole
    assert lines[0].startswith("depth,module,path,kind,difference_flops,a_flops,b_flops,own_difference_flops")


def test_markdown_is_short_and_closes_details(doubled: Document) -> None:
    written = render_markdown(doubled)
    head, *details = written.split("<details>")
    assert len(head.splitlines()) < 60
    assert "blocks.3.mlp doubled" in head
    assert "| FLOPs |" in head
    assert len(details) == 3
    assert all("</details>" in part and "<summary>" in part for part in details)


def test_siblings_that_differ_alike_are_one_row() -> None:
    found = document(tensortide.compare(side(), side(batch=16)))["modules"].table("differing")
    assert "blocks.[0-3]" in found["module"]
    more = document(tensortide.compare(side(), side(blocks=6)))["modules"].table("differing")
    row = more["module"].index("[4-5]") if "[4-5]" in more["module"] else more["module"].index("blocks.[4-5]")
    assert more["kind"][row] == "added"


def test_equal_steps_have_no_places() -> None:
    made = document(tensortide.compare(side(), side()))
    assert "No difference" in made.summary()
    assert not [block for section in made.sections for block in section.blocks if block.key == "differing"]


def test_several_are_compared_with_one() -> None:
    made = document(tensortide.compare(side(), side(doubled=3), side(batch=16), names=["one", "two", "three"]))
    assert [section.key for section in made.sections][:3] == ["comparison", "modules_b", "ops_b"]
    assert "modules_c" in [section.key for section in made.sections]
    columns = [column.label for column in made["comparison"].table("metrics").shown]
    assert columns[:4] == ["Metric", "A", "B", "difference"]
    assert "C" in columns
    written = text(made, 80)
    assert "A → B: doubled -1 → 3; blocks.3.mlp doubled" in written
    assert "A → C: " in written


def test_metrics_alone_are_compared_without_places() -> None:
    first, second = (tensortide.compare(side(), side(**more)).entrants[1].status for more in ({}, {"batch": 16}))
    made = document(tensortide.compare(first, second))
    assert [section.key for section in made.sections] == ["comparison"]
    assert "FLOPs" in made["comparison"].table("metrics")["title"]


def test_metrics_that_text_shows_exist() -> None:
    from tensortide.measures.registry import default_registry

    assert set(SHOWN) <= set(default_registry())


def test_the_page_is_one_file(doubled: Document) -> None:
    assert "modules_b" in render_html(doubled, compress=False)


def test_costs_without_a_rule_are_lower_bounds() -> None:
    builder = Builder()
    builder.op([builder.storage(8)], [builder.storage(8, birth=0)], name="mylib.mix.default")
    made = document(tensortide.compare(builder.graph(), side()))
    table = made["comparison"].table("metrics")
    flops = table["title"].index("FLOPs")
    assert table["reference_text"][flops] == ">= 0 FLOP"
    assert not str(table["value_b_text"][flops]).startswith(">=")
    written = text(made)
    assert "1 of 1 ops of A and 0 of " in written
    assert "FLOPs (lower bounds) (0 FLOP → " in " ".join(written.split())
    assert made.title == "A and tower compared"
