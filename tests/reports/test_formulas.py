"""Formulas on a terminal and in figures: everything that matters is there, and it fits."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tensortide.errors import ExpressionError, OutputError
from tensortide.formulas import DOMAINS, PPOPP19, Projection, asymptotics, geometric, project, shares, solve, sweep
from tensortide.reports.figures import intensity_figure, projection_figure, sweep_figure
from tensortide.reports.formulas import render_projection, render_solution, render_sweep
from tensortide.reports.growth import render_asymptotics
from tensortide.reports.render.figure import check_figure
from tests.formulas.samples import made, transformer, word_lm


def shown(render: Callable[[Console], None], width: int = 100) -> str:
    out = io.StringIO()
    render(Console(file=out, width=width, highlight=False, color_system=None))
    return out.getvalue()


def projection() -> Projection:
    return project(word_lm(), DOMAINS["word_lm"], "h", batch="b", samples_per_step="b*s")


def everything(console: Console) -> None:
    formulas = transformer()
    render_sweep(sweep(formulas, {"batch": [1, 2], "hidden": geometric(192, 3072)}), console)
    render_solution(solve(formulas, "batch", "peak_bytes <= 24GiB"), console)
    found = asymptotics(formulas, "hidden")
    render_asymptotics(found, {name: shares(formulas, name) for name in formulas.totals}, console)
    render_projection(projection(), console)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_everything_fits(width: int) -> None:
    text = shown(everything, width)
    assert max(map(len, text.splitlines())) <= width
    assert all(line == line.rstrip() for line in text.splitlines())


def test_sweep() -> None:
    table = sweep(transformer(), {"hidden": [768, 770]})
    text = shown(lambda console: render_sweep(table, console))
    assert "124.4 M" in text
    assert "1 point is outside the region: the formulas do not hold at" in text
    assert "heads*floor(hidden/heads)" in text
    narrow = shown(lambda console: render_sweep(table, console), 30)
    assert "and bytes, peak_bytes: in a wider window" in narrow.replace("\n", " ")


def test_solution() -> None:
    text = shown(lambda console: render_solution(solve(transformer(), "batch", "peak_bytes <= 24GiB"), console))
    assert text.startswith("batch = 9  largest with peak_bytes <= 24GiB\n")
    assert "batch = 10 would reach" in text
    assert "proved by the shape of the formulas" in text


def test_asymptotics() -> None:
    found = asymptotics(word_lm(), "h")
    terms = {"flops": shares(word_lm(), "flops")}
    text = shown(lambda console: render_asymptotics(found, terms, console, top=1))
    for part in (
        "s*(6*b + 1) + 3",
        "30,803",
        "b*sqrt(p)/(u*sqrt(p) + w*b)",
        "96*b*h**2*s",
        "76.0 %",
        "p = 16*h**2 + ...",
    ):
        assert part in text
    assert "144*b*h*s" not in text


def test_long_formulas_lose_their_middle() -> None:
    many = ", ".join(f"{i}*h + {300 - i}*s" for i in range(1, 150))
    formulas = made({"parameters": "h**2", "peak_bytes": f"max({many})"}, {"h": 4, "s": 4})
    terms = {"peak_bytes": shares(formulas, "peak_bytes")}
    text = shown(lambda console: render_asymptotics(asymptotics(formulas, "h"), terms, console))
    assert "max of 149 expressions is" in text.replace("\n", " ")
    assert len(text) < 2500


def test_projection() -> None:
    text = shown(lambda console: render_projection(projection(), console))
    assert "nat/word 3.37 -> 2.48: 79.69 G words (60.41 G to 105.5 G), 24.33 G parameters" in text
    assert "ridge 19.9 FLOP/B; b 81 reaches it" in text
    for label in ("today", "target", "low", "high"):
        assert f"\n{label} " in text


def test_figures(tmp_path: Path) -> None:
    for i, draw in enumerate(
        (
            lambda path: sweep_figure(sweep(transformer(), {"hidden": geometric(192, 3072)}), path),
            lambda path: sweep_figure(sweep(transformer(), {"hidden": geometric(192, 3072), "batch": [1, 8]}), path),
            lambda path: sweep_figure(sweep(transformer(), {"hidden": [768, 770, 780], "batch": [8]}), path),
            lambda path: intensity_figure(word_lm(), "h", "b", PPOPP19.roof(), path),
        )
    ):
        draw(tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").stat().st_size > 4000
    projection_figure(projection(), tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_figures_are_deterministic(tmp_path: Path) -> None:
    drawn = []
    for name in ("a.svg", "b.svg"):
        projection_figure(projection(), tmp_path / name)
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]


def test_figures_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"ends in \.png"):
        check_figure(tmp_path / "figure.bmp")
    with pytest.raises(ExpressionError, match="nothing to draw"):
        sweep_figure(sweep(transformer(), {"hidden": [769, 770]}), tmp_path / "x.png")
    with pytest.raises(ExpressionError, match="'batch' is no symbol"):
        intensity_figure(word_lm(), "h", "batch", PPOPP19.roof(), tmp_path / "x.png")
    with pytest.raises(ExpressionError, match="too many to tell apart"):
        sweep_figure(sweep(transformer(), {"hidden": [12, 24], "batch": range(1, 20)}), tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
