"""Sections of experiments: tables that fit the terminal, pictures that say where policies end."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tensortide.replays.remat import Deallocation, Simulator
from tensortide.reports.pictures import Scatter, Spans
from tensortide.reports.render.figure import COLORS, draw, render_figure
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections.experiments import BEST, document, residency_document
from tensortide.studies.remat.linear import linear_network
from tensortide.studies.remat.results import Cell, Run, Step, Study, Trial

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


def curve(name: str, rows: list[list[Run]], panel: int = 0) -> list[Trial]:
    return [
        Trial(panel, name, 1 - 0.2 * i, STEP, Cell(f"{name}:{seed}", 100 - 20 * i, 2.0), run)
        for i, runs in enumerate(rows)
        for seed, run in enumerate(runs)
    ]


def experiment(count: int = 2, panels: int = 1) -> Study:
    """Curves that fail at a third budget: one out of memory, the others over the limit; the last has two seeds."""
    curves = {"first": [[run(1.0)], [run(1.25)], [run(1.5, "oom")]]}
    curves |= {f"other{i}": [[run(1.0)], [run(1.5)], [run(2.0, "thrash")]] for i in range(count - 2)}
    curves["seeds"] = [[run(1.0)] * 2, [run(1.5), run(1.75)], [run(2.0, "thrash"), run(1.5)]]
    trials = [trial for panel in range(panels) for name, rows in curves.items() for trial in curve(name, rows, panel)]
    return Study("sweep", ("step",) * panels, tuple(trials))


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
    (axis,) = draw(made).axes
    assert {"seeds, range", "constants", "one op"} <= {*axis.get_legend_handles_labels()[1]}
    assert not {str(line.get_color()) for line in axis.lines if line.get_label() in ("oom", "thrash")} & {*COLORS}


def test_panels_alike_share_a_legend() -> None:
    figure = draw(document(experiment(panels=2)))
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


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("deallocation", ["eager", "none"])
def test_residency_is_what_the_run_had(deallocation: Deallocation, compat: bool) -> None:
    """Every op finds its inputs; bytes never exceed the budget; what is made again was gone before."""
    recording = linear_network(20)
    simulator = Simulator(recording, compat=compat, deallocation=deallocation)
    simulation = simulator.run("dtr", 9)
    spans = residency_document([("run", simulation)])["residency"]["residency_0"]
    assert isinstance(spans, Spans)
    table = np.zeros((40, simulation.clock_ns - compat), "U10")
    for row, lane in zip(table, spans.lanes, strict=True):
        for start, end, kind in zip(lane.start, lane.end, lane.kinds, strict=True):
            assert (row[start:end] == "").all()
            row[start:end] = kind
    assert int((table != "").sum(axis=0).max()) == simulation.peak_bytes <= 9
    assert (table == "computed").sum() == 40
    assert (table == "recomputed").sum() == simulation.recomputations > 0
    made = np.isin(table, ("computed", "recomputed"))
    assert (made.sum(axis=0) == 1).all()
    for column, storage in enumerate(made.argmax(axis=0).tolist()):
        assert all(table[i, column] == "resident" for i in recording.graph.ops[storage].inputs)
        assert column == 0 or table[storage, column - 1] == ""
