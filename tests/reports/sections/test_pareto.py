"""Sections of experiments: tables that fit the terminal, pictures that say where policies end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tensortide.replays.remat import Simulator
from tensortide.reports.blocks import Scatter, Spans
from tensortide.reports.render.figure import draw, render_figure
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections.linear import residency_document
from tensortide.reports.sections.pareto import BEST, document
from tensortide.studies.remat.linear import linear_network
from tensortide.studies.remat.results import Curve, Experiment, Row, Run, Step, Study

STEP = Step(
    name="step",
    device="cpu",
    ops=3,
    durations="made up",
    compat=False,
    model_ns=100,
    baseline_bytes=100,
    constant_bytes=20,
    bottleneck_bytes=10,
)


def run(overhead: float, status: str = "ok") -> Run:
    return Run(
        status=status,  # type: ignore[arg-type]
        overhead=overhead,
        clock_ns=round(100 * overhead),
        remat_ns=round(100 * (overhead - 1)),
        peak_bytes=50,
        evictions=1,
        recomputations=1,
        evaluations=1,
        accesses=1,
        eviction_hash="0",
    )


def curve(name: str, rows: list[list[Run]]) -> Curve:
    policies = tuple(f"{name}:{i}" for i in range(len(rows[0])))
    made = tuple(Row(100 - 20 * i, 1 - 0.2 * i, tuple(runs)) for i, runs in enumerate(rows))
    return Curve(name, policies, "eager", False, made)


def experiment(count: int = 2) -> Experiment:
    """Curves that fail at a third budget: one out of memory, the others over the limit; the last has two seeds."""
    curves = [curve("first", [[run(1.0)], [run(1.25)], [run(1.5, "oom")]])]
    curves += [curve(f"other{i}", [[run(1.0)], [run(1.5)], [run(2.0, "thrash")]]) for i in range(count - 2)]
    curves.append(curve("seeds", [[run(1.0)] * 2, [run(1.5), run(1.75)], [run(2.0, "thrash"), run(1.5)]]))
    return Experiment("sweep", 2.0, (Study(STEP, tuple(curves)),))


def test_a_cell_has_the_overhead_or_why_there_is_none() -> None:
    table = document(experiment())["sweep"].table("budgets_0")
    assert table["first"] == (1.0, 1.25, "oom")
    assert table["seeds"] == (1.0, 1.625, "thrash 1/2")
    assert {column.key: column.after for column in table.columns[2:]} == {
        "first": (BEST, BEST, " "),
        "seeds": (BEST, " ", " "),
    }
    runs = document(experiment())["sweep"].table("runs")
    assert runs["policy"] == ("first:0",) * 3 + ("seeds:0", "seeds:1") * 3


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_table_of_many_policies_is_shown_in_parts(width: int) -> None:
    file = io.StringIO()
    render_terminal(document(experiment(20)), Console(file=file, width=width, no_color=True, highlight=False))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.startswith("of peak  Budget")]
    assert len(heads) > 1
    assert " ".join(heads).split().count("Budget") == len(heads)
    assert [name for line in heads for name in line.split()[3:]] == [
        "first",
        *(f"other{i}" for i in range(18)),
        "seeds",
    ]


def test_a_picture_shows_where_policies_end_and_the_range_over_seeds(tmp_path: Path) -> None:
    made = document(experiment())
    picture = made["sweep"]["sweep_0"]
    assert isinstance(picture, Scatter)
    first, seeds, oom, thrash = picture.points
    assert first.x == pytest.approx((0.6, 0.8, 1.0))
    assert first.y == (None, 1.25, 1.0)
    assert (seeds.low, seeds.high) == ((None, 1.5, 1.0), (None, 1.75, 1.0))
    assert oom.x == pytest.approx((0.6,))
    assert (oom.y, oom.names) == ((1.25,), ("first",))
    assert (thrash.y, thrash.names) == ((1.625,), ("seeds",))
    assert [(shade.start, shade.end) for shade in picture.ranges] == [(0, 0.2), (0.2, pytest.approx(0.3))]
    assert render_figure(made, tmp_path / "sweep.png").stat().st_size > 5000


def test_panels_alike_share_a_legend() -> None:
    two = Experiment("sweep", 2.0, experiment().studies * 2)
    figure = draw(document(two))
    assert len(figure.legends) == 1
    assert all(axis.get_legend() is None for axis in figure.axes)


def test_residency_adds_up_to_the_run_and_recomputation_has_a_colour_of_its_own() -> None:
    simulation = Simulator(linear_network(8)).run("dtr-eq", 6, compiled=False)
    made = residency_document([("run", simulation)])
    spans = made["residency"]["residency_0"]
    assert isinstance(spans, Spans)
    kinds = [kind for lane in spans.lanes for kind in lane.kinds]
    assert kinds.count("recomputed") == simulation.recomputations > 0
    (axis,) = draw(made).axes
    legend = axis.get_legend()
    assert legend is not None
    entries = zip(legend.get_texts(), legend.get_patches(), strict=True)
    colors = {text.get_text(): patch.get_facecolor() for text, patch in entries}
    assert set(colors) == {"computed", "resident", "recomputed"}
    assert len(set(colors.values())) == 3
