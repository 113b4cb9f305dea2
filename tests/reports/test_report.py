"""The report in every medium: a golden copy, widths, pipes, names that try to be more than names."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tensortide.expr import sized, symbol
from tensortide.graph import load, unrolled
from tensortide.graph.model import Graph, Meta
from tensortide.reports import report
from tensortide.reports.blocks import Document
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.render.trace import render_trace
from tensortide.timing import device, estimate
from tests.golden import assert_golden
from tests.graphs import stored
from tests.reports.graphs import alone, empty, tower

GOLDEN, ANSWER = (Path(__file__).with_name("sections") / name for name in ("report.txt", "answer.txt"))
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
    assert_golden(text_of(document.full()), GOLDEN)


def timed() -> Document:
    """The answer about a step of known times."""
    return report(tower(), durations=estimate(tower(), device("T4")))


def test_the_answer_is_the_golden_copy() -> None:
    assert_golden(text_of(timed()), ANSWER)
    assert str(timed()) == ANSWER.read_text("utf-8")


STEPS = [*sorted(Path(__file__).parents[1].joinpath("graphs").glob("*.tide"))]


@pytest.mark.parametrize(
    ("width", "most", "steps"),  # two commands are printed below
    [(100, 45, STEPS[::5]), *(pytest.param(*each, STEPS, marks=pytest.mark.slow) for each in ((100, 45), (80, 55)))],
)
def test_the_answer_is_one_screen(width: int, most: int, steps: list[Path]) -> None:
    for path in steps:
        graph = unrolled(load(path))
        shown = report(graph, durations=estimate(graph, device("T4")))
        lines = text_of(shown, width).splitlines()
        assert len(lines) <= most, path
        assert max(map(len, lines)) <= width, path
        assert lines[0] == graph.meta.workload


def test_the_things_to_do_are_what_dominates_and_what_to_recompute_and_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.reports.graphs.BATCH", 1 << 20)
    graph = tower(8)
    text = " ".join(str(report(graph, durations=estimate(graph, device("T4")))).split())
    assert "What to do 1. " in text
    assert re.search(
        r"[23]\. Recompute relu .*? \(train.py:11\): frees \S+ [MG]iB for .*? costs \S+ ms. .*checkpoint\(f", text
    )
    assert re.search(r"[23]\. Offload relu .*? over pcie4: frees \S+ [MG]iB for .*save_on_cpu\(pin_memory", text)


def test_the_answer_has_the_figures_of_the_sections() -> None:
    found = timed()
    assert found.answer is not None
    for key in ("peak_bytes", "flops", "parameters", "op_sum_ns"):
        assert found.answer.fact(key) == found["cost"].fact(key)
    times = [int(ns or 0) for ns in found.answer.table("costly")["time_ns"]]
    assert times == sorted(times, reverse=True)
    largest = found["memory"].table("tensors")["size_bytes"]
    assert found.answer.table("tensors")["size_bytes"] == largest[: len(found.answer.table("tensors"))]


def test_settings_take_two_lines_above_an_answer() -> None:
    settings = {f"setting_{n}": n for n in range(30)}
    many = msgspec.structs.replace(timed(), settings=settings)
    above = text_of(many).split("\none training step")[0].splitlines()
    assert len(above) == 3
    assert above[-1].endswith(" more")
    assert "setting_29=29" in text_of(many.full())


def test_data_and_pages_have_no_answer() -> None:
    found = timed()
    for render in (render_html, render_json, render_markdown, render_trace):
        assert render(found) == render(found.full())


def test_the_answer_says_what_is_unknown() -> None:
    text = text_of(report(alone()))
    assert ">= 0 FLOP" in text
    assert "no rule: mylib.mystery" in " ".join(text.split())
    assert "unknown: no durations are known" in text
    guessed = text_of(report(alone(), durations=estimate(alone(), device("T4"))))
    assert "~ the time of 1 op is unknown, and a stand-in counts for it" in guessed


def test_the_answer_names_the_devices_that_it_leaves_out() -> None:
    assert "Memory is that of cuda:0; the step also uses cpu." in text_of(report(stored("two_devices")))


@pytest.mark.parametrize(("width", "layers"), [(80, 1), (80, 60), (100, 4), (120, 60), (200, 1)])
def test_it_fits(width: int, layers: int) -> None:
    lines = text_of(report(tower(layers)).full(), width).splitlines()
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
    document = report(tower(hostile="evil\x1b[2J\n[bold]name[/bold]"))
    for text in (text_of(document), text_of(document.full())):
        assert "\x1b" not in text
        assert "evil?[2J?[bold]name[/bold]" in text


def test_an_unknown_cost_makes_a_lower_bound() -> None:
    assert ">= 0 FLOP" in text_of(report(alone()).full())


def test_assumptions_have_a_heading(document: Document) -> None:
    assert "Assumptions" not in text_of(document)
    graph = tower()
    meta = msgspec.structs.replace(graph.meta, assumptions=("no padding", "<b>one</b> expert"))
    assumed = report(msgspec.structs.replace(graph, meta=meta))
    for shown in (assumed, assumed.full()):
        assert "Assumptions\nno padding\n<b>one</b> expert\n" in text_of(shown)


def test_folded_names_stay_indented() -> None:
    text = text_of(report(tower(hostile="a" * 90)).full(), 80)
    lines = text[text.index("Where it goes") : text.index("Most expensive ops")].splitlines()
    assert any(line.startswith("  aaa") for line in lines)
    assert not any(line.startswith("aaa") for line in lines)


@LITTLE
def test_steps_with_little_in_them(little: Graph) -> None:
    document = report(little)
    assert "Peak memory" in text_of(document)
    assert "Peak memory" in text_of(document.full())
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
    assert len(render_html(document, compress=True)) < 115_000
