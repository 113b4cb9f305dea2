"""The report in every medium: a golden copy, widths, pipes, names that try to be more than names."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tensortide.expr import sized, symbol
from tensortide.graph.model import Graph, Meta
from tensortide.reports import report
from tensortide.reports.blocks import Document
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.render.trace import render_trace
from tests.reports.graphs import alone, empty, tower

GOLDEN = Path(__file__).with_name("sections") / "report.txt"
HOSTILE = "a`|*b_</script>\n# c"
LITTLE = pytest.mark.parametrize(
    "little",
    [alone(), empty(), tower(train=False), tower(1, hostile=HOSTILE)],
    ids=["alone", "empty", "inference", "hostile"],
)


def text_of(document: Document, width: int = 100, encoding: str = "utf-8") -> str:
    """Print ``document`` as into a pipe."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding, newline="") as file:
        Console(file=file, width=width, highlight=False, no_color=True).print(document, end="")
        file.flush()
        return raw.getvalue().decode(encoding)


def test_the_text_is_the_golden_copy(document: Document) -> None:
    """After a change that is meant: ``python -m tests.reports.test_report`` writes the copy anew."""
    assert text_of(document) == GOLDEN.read_text("utf-8")


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("layers", [1, 4, 60])
def test_it_fits(width: int, layers: int) -> None:
    lines = text_of(report(tower(layers)), width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    assert len(lines) < 80


def test_a_pipe_gets_no_colours(document: Document) -> None:
    assert "\x1b" not in text_of(document)


def test_ascii_where_that_is_all_there_is(document: Document) -> None:
    text = text_of(document, encoding="ascii")
    assert text.isascii()
    assert "?" not in text


def test_a_name_cannot_repaint_the_terminal() -> None:
    text = text_of(report(tower(hostile="evil\x1b[2J\n[bold]name[/bold]")))
    assert "\x1b" not in text
    assert "evil?[2J?[bold]name[/bold]" in text


def test_an_unknown_cost_makes_a_lower_bound() -> None:
    assert ">= 0 FLOP" in text_of(report(alone()))


def test_assumptions_have_a_heading(document: Document) -> None:
    assert "Assumptions" not in text_of(document)
    graph = tower()
    meta = msgspec.structs.replace(graph.meta, assumptions=("no padding", "<b>one</b> expert"))
    assumed = report(msgspec.structs.replace(graph, meta=meta))
    assert "Assumptions\nno padding\n<b>one</b> expert\n" in text_of(assumed)


def test_folded_names_stay_indented() -> None:
    text = text_of(report(tower(hostile="a" * 90)), 80)
    lines = text[text.index("Where it goes") : text.index("Most expensive ops")].splitlines()
    assert any(line.startswith("  aaa") for line in lines)
    assert not any(line.startswith("aaa") for line in lines)


@LITTLE
def test_steps_with_little_in_them(little: Graph) -> None:
    document = report(little)
    assert "Peak memory" in text_of(document)
    for render in (render_html, render_json, render_markdown, render_trace):
        assert render(document)


def test_markdown_has_the_totals_and_is_well_formed(document: Document) -> None:
    text = render_markdown(document)
    assert "152.0 KiB" in text
    for table in text.split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "\n# c" not in render_markdown(report(tower(hostile=HOSTILE)))


def test_json_has_values_under_their_names(document: Document) -> None:
    sections = json.loads(render_json(document))["sections"]
    assert sections["cost"]["facts"]["peak_bytes"] == document["cost"].fact("peak_bytes")
    assert len(sections["ops"]["tables"]["ops"]["name"]) == document["cost"].fact("ops")
    assert set(sections["memory"]["curves"]) == {"resident", "last_use"}


def test_json_of_names_that_are_no_text() -> None:
    document = report(tower(hostile="half\ud800a character"))
    assert "half\ud800a character.0" in json.loads(render_json(document))["sections"]["ops"]["tables"]["ops"]["module"]


def test_a_size_is_a_number_in_every_medium() -> None:
    graph, size = tower(), sized(symbol("n"), 4)
    storages = tuple(msgspec.structs.replace(one, nbytes=one.nbytes * size) for one in graph.storages)
    document = report(msgspec.structs.replace(graph, storages=storages))
    peak = document["cost"].fact("peak_bytes")
    assert json.loads(render_json(document))["sections"]["memory"]["facts"]["peak_bytes"] == peak
    for render in (render_html, render_markdown, render_trace):
        assert render(document)


def test_the_title_of_the_page_is_escaped() -> None:
    graph = msgspec.structs.replace(tower(), meta=Meta(workload="<i>&"))
    assert "<title>&lt;i&gt;&amp; - tensortide</title>" in render_html(report(graph))


def test_the_page_is_small(document: Document) -> None:
    assert len(render_html(document, compress=True)) < 110_000


if __name__ == "__main__":
    GOLDEN.write_text(text_of(report(tower())), "utf-8")
