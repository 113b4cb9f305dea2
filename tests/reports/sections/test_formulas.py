"""Formulas on a terminal and in figures: everything that matters is there, and it fits."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from tensortide.errors import ExpressionError, OutputError
from tensortide.expr import parse
from tensortide.formulas import (
    DOMAINS,
    PPOPP19,
    Formulas,
    Partial,
    Symbolic,
    asymptotics,
    geometric,
    project,
    shares,
    solve,
    sweep,
)
from tensortide.reports.blocks import Document
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.figure import check_figure, render_figure
from tensortide.reports.render.markdown import render_markdown
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections import formula_answers
from tensortide.reports.sections import formulas as written
from tests.formulas.samples import made, transformer, word_lm


def shown(document: Document, width: int = 100) -> str:
    out = io.StringIO()
    render_terminal(document, Console(file=out, width=width, highlight=False, color_system=None))
    return out.getvalue()


def projected() -> Document:
    return formula_answers.of_projection(project(word_lm(), DOMAINS["word_lm"], "h", batch="b", samples_per_step="b*s"))


def grown(formulas: Formulas, of: str, *, top: int = 4, batch: str = "") -> Document:
    terms = {name: shares(formulas, name) for name in formulas.totals}
    found = asymptotics(formulas, of)
    drawn = formula_answers.intensity_scatter(formulas, of, batch or found.batch, PPOPP19)
    return formula_answers.of_growth(found, terms, drawn, top=top)


def every_document() -> list[Document]:
    formulas = transformer()
    points = sweep(formulas, {"batch": [1, 2], "hidden": geometric(192, 3072)})
    solved = formula_answers.of_solution(solve(formulas, "batch", "peak_bytes <= 24GiB"))
    return [formula_answers.of_sweep(points), solved, grown(formulas, "hidden"), projected()]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_everything_fits(width: int) -> None:
    text = "".join(shown(document, width) for document in every_document())
    assert max(map(len, text.splitlines())) <= width
    assert all(line == line.rstrip() for line in text.splitlines())


def test_sweep() -> None:
    document = formula_answers.of_sweep(sweep(transformer(), {"hidden": [768, 770]}))
    text = shown(document)
    assert "124.4 M" in text
    assert "1 point is outside the region, which needs hidden % heads == 0" in text
    assert "Peak" not in shown(document, 30)


def test_a_sweep_as_csv_and_markdown() -> None:
    table = sweep(transformer(), {"hidden": [768, 770]})
    document = formula_answers.of_sweep(table)
    rows = list(csv.DictReader(io.StringIO(render_csv(document, "points"))))
    assert int(rows[0]["flops"]) == table.column("flops")[0]
    assert rows[1]["flops"] == ""
    assert rows[1]["outside"] == "hidden % heads == 0"
    assert "| 770 | - |" in render_markdown(document)


def test_solution() -> None:
    text = shown(formula_answers.of_solution(solve(transformer(), "batch", "peak_bytes <= 24GiB")))
    assert text.startswith("batch = 9\n")
    assert "largest with peak_bytes <= 24GiB" in text
    assert "batch = 10 would reach" in text
    assert "not checked: formulas alone were given" in text


def test_the_nearest_value_says_what_it_reaches_and_its_neighbour() -> None:
    formulas = made({"parameters": "n**2"}, {"n": 4})
    text = " ".join(shown(formula_answers.of_solution(solve(formulas, "n", "parameters = 1_000_000"))).split())
    assert "reaches 1,000,000 not checked" in text
    text = " ".join(shown(formula_answers.of_solution(solve(formulas, "n", "parameters = 1_000_500"))).split())
    assert "reaches 1,000,000: no value meets the target exactly; n = 1,001 would reach 1,002,001" in text


def test_repeated_roundings_have_a_name_and_totals_stand_to_the_unit() -> None:
    formulas = made({"flops": "n*floor(s/4) + 3*floor(s/4) + 5000*floor(s/4)**2*n"}, {"n": 4, "s": 9})
    document = written.document(formulas)
    assert "t*(n*(5000*t + 1) + 3)" in shown(document)
    assert "t =  floor(s/4)" in shown(document)
    assert "80,014" in shown(document)
    expression = document["formulas"].table("totals")["expression"][0]
    assert parse(str(expression)) == formulas.totals["flops"]


def test_a_part_of_unknown_size_is_not_zero() -> None:
    part = Partial(known=parse("8*n"), missing={"the bytes of a buffer": None})
    formulas = replace(made({"parameters": "n"}, {"n": 4}), partial={"footprint_bytes": part})
    (line,) = (line for line in shown(written.document(formulas)).splitlines() if "unexplained" in line)
    assert line.split()[-1] == "-"


def test_figures_without_a_formula_are_one_line_for_each_reason() -> None:
    remarks = tuple(f"op {number}: differs at s=9" for number in range(20))
    found = Symbolic(formulas=made({"parameters": "n"}, {"n": 4}), rows=(), numeric=(*remarks, "io_bytes: none"))
    text = shown(written.document(found))
    assert "op 0, op 1, op 2 and 17 more, in --json: differs at s=9" in text
    assert text.count("differs at") == 1
    assert written.document(found)["formulas"].table("numeric")["remark"] == found.numeric


def test_growth() -> None:
    text = shown(grown(word_lm(), "h", top=1))
    for part in (
        "s*(6*b + 1) + 3",
        "b*sqrt(p)/(u*sqrt(p) + w*b)",
        "96*b*h**2*s",
        "76.0 %",
        "p = 16*h**2 + ...",
        "2*(6*s + 7)/(3*s)",
    ):
        assert part in text
    assert "144*b*h*s" not in text


def test_long_formulas_lose_their_middle() -> None:
    many = ", ".join(f"{i}*h + {300 - i}*s" for i in range(1, 150))
    formulas = made({"parameters": "h**2", "peak_bytes": f"max({many})"}, {"h": 4, "s": 4})
    terms = {"peak_bytes": shares(formulas, "peak_bytes")}
    text = shown(formula_answers.of_growth(asymptotics(formulas, "h"), terms, None, top=4))
    assert "max of 149 expressions is" in text.replace("\n", " ")
    assert len(text) < 2500


def test_projection() -> None:
    text = shown(projected())
    assert "nat/word 3.37 -> 2.48: 79.69 G words (60.41 G to 105.5 G), 24.33 G parameters" in text
    assert "ridge 19.9 FLOP/byte; b 81 reaches it" in text
    for label in ("today", "target", "low", "high"):
        assert f"\n{label} " in text


def test_figures_of_a_sweep(tmp_path: Path) -> None:
    points = sweep(transformer(), {"hidden": [768, 3072], "batch": [1, 8]})
    render_figure(formula_answers.of_sweep(points), tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").stat().st_size > 4000


@pytest.mark.slow
def test_figures_on_paper(tmp_path: Path) -> None:
    render_figure(projected(), tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_figures_of_growth_are_deterministic(tmp_path: Path) -> None:
    document = grown(word_lm(), "h")
    for name in ("a.svg", "b.svg"):
        render_figure(document, tmp_path / name)
    assert (tmp_path / "a.svg").stat().st_size > 4000
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_figures_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"ends in \.png"):
        check_figure(tmp_path / "figure.bmp")
    with pytest.raises(ExpressionError, match="nothing to draw"):
        formula_answers.check_drawable(sweep(transformer(), {"hidden": [769, 770]}))
    with pytest.raises(ExpressionError, match="'batch' is no symbol"):
        formula_answers.intensity_scatter(word_lm(), "h", "batch", PPOPP19)
    with pytest.raises(ExpressionError, match="too many to tell apart"):
        formula_answers.check_drawable(sweep(transformer(), {"hidden": [12, 24], "batch": range(1, 20)}))
    assert not list(tmp_path.iterdir())
