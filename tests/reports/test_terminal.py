"""The report as text: a golden copy, widths, pipes, names that try to repaint the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tensortide.graph.model import Branch
from tensortide.reports import report
from tensortide.reports.document import Document
from tensortide.reports.terminal import render, render_count, render_timeline
from tests.reports.graphs import alone, empty, tower

GOLDEN = Path(__file__).with_name("golden.txt")


def text_of(document: Document, width: int = 100, encoding: str = "utf-8") -> str:
    """What a pipe gets."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding, newline="") as file:
        render(document, Console(file=file, width=width))
        file.flush()
        return raw.getvalue().decode(encoding)


def test_the_text_is_the_golden_copy(document: Document) -> None:
    """After a change that is meant: ``python -m tests.reports.test_terminal`` writes the copy anew."""
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


@pytest.mark.parametrize("graph", [alone(), empty(), tower(train=False)], ids=["alone", "empty", "inference"])
def test_steps_with_little_in_them(graph: Document) -> None:
    text = text_of(report(graph))  # type: ignore[arg-type]
    assert "Peak memory" in text


def test_a_document_shows_itself(document: Document) -> None:
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as shown:
        console.print(document)
    assert "Alive at the peak" in shown.get()


def test_an_unknown_cost_is_told() -> None:
    assert ">= 0 FLOP" in text_of(report(alone()))


def test_assumptions_are_told(document: Document) -> None:
    assert "Assumed" not in text_of(document)
    told = msgspec.structs.replace(document, assumptions=("no padding",))
    assert "Assumed" in text_of(told)
    assert "no padding" in text_of(told)


def test_arms_that_are_not_taken_are_in_no_list() -> None:
    """Two arms of a conditional: a product of one, a relu of the other."""
    graph = tower(layers=1, train=False)
    product, relu = graph.ops
    arms = (msgspec.structs.replace(product, branch=0), msgspec.structs.replace(relu, branch=1))
    document = report(msgspec.structs.replace(graph, ops=arms, branches=(Branch(0, 0), Branch(0, 1))))
    assert document.ops.untaken == (1,)
    assert [group.op for group in document.top_by_flops] == ["aten.mm.default"]
    assert sum(group.flops for group in document.top_by_flops) == document.overview.total.flops
    assert "other arms (1 op) are in no total" in " ".join(text_of(document).split())


def test_what_is_folded_stays_indented() -> None:
    text = text_of(report(tower(hostile="a" * 90)), 80)
    lines = text[text.index("Where it goes") : text.index("Most expensive ops")].splitlines()
    assert any(line.startswith("  aaa") for line in lines)
    assert not any(line.startswith("aaa") for line in lines)


def test_modules_without_anything_are_left_out(document: Document) -> None:
    idle = msgspec.structs.replace(document.modules[-1], path="idle", name="idle", flops=0, accessed_bytes=0)
    idle = msgspec.structs.replace(idle, parameters=0, peak_bytes=0)
    assert "idle" not in text_of(msgspec.structs.replace(document, modules=(*document.modules, idle)))


def test_verbs_show_their_part(document: Document) -> None:
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as counted:
        render_count(document, console)
    with console.capture() as timed:
        render_timeline(document, console)
    assert "Most expensive ops" in counted.get()
    assert "Memory over the step" not in counted.get()
    assert "Alive at the peak" in timed.get()
    assert "Most expensive ops" not in timed.get()


if __name__ == "__main__":
    GOLDEN.write_text(text_of(report(tower())), "utf-8")
