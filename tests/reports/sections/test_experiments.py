"""Sections of experiments: tables that fit the terminal, pictures that say where policies end."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from msgspec.structs import replace
from rich.console import Console

from tensortide.replays.remat import Deallocation, Simulator
from tensortide.reports.pictures import End, Scatter, Spans
from tensortide.reports.render.figure import draw, render_figure
from tensortide.reports.render.html import render_html
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections.experiments import BEST, document, residency_document, steps_table
from tensortide.studies.remat.linear import linear_network
from tensortide.studies.remat.results import Cell, Run, Step, Study, Trial

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
    first, seeds = picture.points
    assert first.x == pytest.approx((0.6, 0.8, 1.0))
    assert first.y == (None, 1.25, 1.0)
    assert (seeds.low, seeds.high) == ((None, 1.5, 1.0), (None, 1.75, 1.0))
    assert first.end == End("oom", first.x[0], 0.8, 1.25)
    assert seeds.end == End("thrash", seeds.x[0], 0.8, 1.625)
    assert [(shade.start, shade.end) for shade in picture.ranges] == [(0, 0.2), (0.2, pytest.approx(0.3))]
    assert render_figure(made, tmp_path / "sweep.png").stat().st_size > 5000
    (axis,) = draw(made).axes
    assert {"seeds, range", "constants", "one op"} <= {*axis.get_legend_handles_labels()[1]}


def test_runs_that_failed_have_no_figures() -> None:
    runs = document(experiment())["sweep"].table("runs")
    assert runs["status"] == ("ok", "ok", "oom", "ok", "ok", "ok", "ok", "thrash", "ok")
    for name in ("overhead", "clock_ns", "remat_ns", "peak_bytes", "evictions", "recomputations"):
        assert [value is None for value in runs[name]] == [status != "ok" for status in runs["status"]]


def test_a_policy_that_fails_at_its_first_budget_has_a_mark_and_marks_at_one_place_are_apart() -> None:
    names = ("lru", "size", "msps")
    trials = [trial for name in names for trial in curve(name, [[run(1.2, "oom")], [run(1.1, "oom")]])]
    made = document(Study("sweep", ("step",), tuple(trials)))
    picture = made["sweep"]["sweep_0"]
    assert isinstance(picture, Scatter)
    assert [one.end for one in picture.points] == [End("oom", 1.0, 1.0, 1, below) for below in range(3)]
    figure = draw(made)
    figure.draw_without_rendering()
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "x" and len(np.asarray(line.get_xydata()))]
    heights = [line.get_transform().transform(line.get_xydata())[0, 1] for line in marks]
    room = [(after - before) * 72 / figure.dpi for before, after in pairwise(heights)]
    assert room == pytest.approx([7.5, 7.5])


def test_seeds_that_agree_have_no_range() -> None:
    trials = curve("random", [[run(1.0), run(1.25)], [run(1.5)] * 2])  # at the largest budget a range has no width
    (axis,) = draw(document(Study("sweep", ("step",), tuple(trials)))).axes
    assert "random, range" not in axis.get_legend_handles_labels()[1]


def test_one_source_of_durations_is_said_once() -> None:
    one, other = (replace(STEP, name=name) for name in ("one", "other"))
    same = steps_table([one, other])
    assert "Durations" not in [column.label for column in same.shown]
    assert "Durations: made up." in same.note
    assert same["durations"] == ("made up", "made up")
    apart = steps_table([one, replace(other, durations="measured")])
    assert "Durations" in [column.label for column in apart.shown]


def drawn(axis: Axes) -> list[str]:
    """What the lines of a panel are: name (none: of what belongs to the line above), colour, marker, places."""
    lines = [(line, np.asarray(line.get_xydata())) for line in axis.lines]
    return [
        f"{'' if str(line.get_label()).startswith('_') else line.get_label()} {line.get_color()} {line.get_marker()} "
        + " ".join(f"{x:.1f},{y:.3g}" for x, y in places)
        for line, places in lines
        if len(places)
    ]


def test_a_line_that_ends_has_its_end_in_its_own_colour() -> None:
    (axis,) = draw(document(experiment(3))).axes
    assert drawn(axis) == [
        "first #0072b2 o 0.6,nan 0.8,1.25 1.0,1",
        " #0072b2 None 0.6,1.25 0.8,1.25",
        " #0072b2 x 0.6,1.25",
        "other0 #d55e00 s 0.6,nan 0.8,1.5 1.0,1",
        " #d55e00 None 0.6,1.5 0.8,1.5",
        " #d55e00 + 0.6,1.5",
        "seeds #009e73 D 0.6,nan 0.8,1.62 1.0,1",
        " #009e73 None 0.6,1.62 0.8,1.62",
        " #009e73 + 0.6,1.62",
        "without recomputation #444444 None 0.0,1 1.0,1",
    ]
    assert {"out of memory", "thrash"} <= {*axis.get_legend_handles_labels()[1]}


def test_sixteen_lines_look_different_and_each_below_another_is_wider() -> None:
    (axis,) = draw(document(experiment(16))).axes
    lines = [line for line in axis.lines if line.get_drawstyle() == "steps-post"]
    looks = [(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines]
    assert len(lines) == len({*looks}) == len({look[0] for look in looks}) == 16
    below = sorted(lines, key=lambda line: line.get_zorder())
    assert below == lines
    assert [line.get_linewidth() for line in below] == sorted((line.get_linewidth() for line in below), reverse=True)


def test_panels_that_are_compared_share_axes_and_a_legend() -> None:
    one, other = experiment().trials, [trial for trial in experiment(3, panels=2).trials if trial.panel]
    other = [replace(trial, step=replace(STEP, constant_bytes=100, bottleneck_bytes=20)) for trial in other]
    figure = draw(document(Study("sweep", ("one", "other"), (*one, *other))))
    first, second = figure.axes
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    colors = {(line.get_label(), line.get_color()) for axis in figure.axes for line in axis.lines}
    assert len([one for one in colors if one[0] == "seeds"]) == 1
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} > {"first", "other0", "seeds", "thrash"}
    assert first.get_legend() is second.get_legend() is None


def test_no_line_of_a_logarithmic_axis_comes_from_a_count_of_0() -> None:
    rows = [[replace(run(1.0), accesses=number)] for number in (0, 10, 1000)]
    (axis,) = draw(document(Study("accesses", ("step",), tuple(curve("dtr", rows))))).axes
    assert axis.get_yscale() == "log"
    assert drawn(axis) == ["dtr #0072b2 o 0.6,1e+03 0.8,10 1.0,nan"]
    assert axis.get_ylim()[0] > 1


def test_panels_of_an_ablation_say_what_is_weighed_beside_work_in_the_same_look() -> None:
    names = [f"{work}{part}" for work in ("e", "eq", "local") for part in ("-size-stale", "-size", "-stale", "")]
    names += ["one-size-stale", "one-size", "one-stale", "random"]
    trials = [trial for name in names for trial in curve(name, [[run(1.0)], [run(1.5)]])]
    figure = draw(document(Study("ablation", ("step",), tuple(trials))))
    assert len(figure.axes) == 4
    assert len(figure.legends) == 1
    looks = {
        (line.get_label(), line.get_color(), line.get_marker())
        for axis in figure.axes
        for line in axis.lines
        if line.get_drawstyle() == "steps-post"
    }
    assert sorted(str(label) for label, _, _ in looks) == [
        "neither",
        "random",
        "size",
        "size and staleness",
        "staleness",
    ]


Rows: TypeAlias = list[tuple[float | str, float | str]]


def assert_paths_whole(page: Page, path: Path, panels: list[Rows]) -> None:
    """A page of these panels, each with rows of two runs, has no path with what is no number, and draws every line."""
    trials: list[Trial] = []
    for number, rows in enumerate(panels):
        runs = [[run(1.5, one) if isinstance(one, str) else run(one) for one in row] for row in rows]
        trials += [*curve("first", [row[:1] for row in runs], number), *curve("seeds", runs, number)]
    study = Study("sweep", tuple(f"panel {number}" for number in range(len(panels))), tuple(trials))
    path.write_text(render_html(document(study)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    drawn = page.evaluate(
        "[...document.querySelectorAll('.plot path')].map((one) => [one.className.baseVal, one.getAttribute('d')])"
    )
    assert not [d for _, d in drawn if not re.fullmatch("[-+MLHVaZe., 0-9]*", d)]
    firsts = [[isinstance(one, float) for one, _ in rows] for rows in panels]
    both = [[isinstance(one, float) and isinstance(other, float) for one, other in rows] for rows in panels]
    assert sum(kind == "line" and bool(d) for kind, d in drawn) == sum(map(any, firsts)) + sum(map(any, both))
    assert sum("pick" in kind for kind, _ in drawn) == sum(map(sum, firsts)) + sum(map(sum, both))


def test_no_path_is_broken_where_a_seed_failed(window: Page, tmp_path: Path) -> None:
    assert_paths_whole(window, tmp_path / "page.html", [[(1.0, 1.0), ("oom", 1.5), (1.25, "thrash"), (1.5, 1.5)]])


def test_the_page_draws_what_the_figure_does(window: Page, tmp_path: Path) -> None:
    made = document(experiment(9))
    (tmp_path / "page.html").write_text(render_html(made))
    window.goto((tmp_path / "page.html").as_uri())
    window.wait_for_selector("html[data-ready]")
    script = "[...document.querySelectorAll('.plot path.KIND')].map((one) => getComputedStyle(one).stroke)"
    page = [window.evaluate(script.replace("KIND", kind)) for kind in ("line", "end:not([stroke-dasharray])")]
    lines = [line for line in draw(made).axes[0].lines if len(np.asarray(line.get_xydata()))]
    colors = {
        line: "rgb({}, {}, {})".format(*(round(255 * part) for part in to_rgb(line.get_color()))) for line in lines
    }
    shaded = window.evaluate(
        "[...document.querySelectorAll('.plot .range')].map((one) => getComputedStyle(one).opacity)"
    )
    legend = window.inner_text(".legend").splitlines()
    assert len({*shaded}) == 2
    assert {"constants", "one op", "seeds, range"} <= {*legend}
    steps = [colors[line] for line in lines if line.get_drawstyle() == "steps-post"]
    ends = [colors[line] for line in lines if line.get_marker() in ("x", "+")]
    assert page == [steps, ends]
    assert len({*steps}) == len(ends) == 9


RUNS = st.one_of(st.floats(1, 2), st.sampled_from(["oom", "thrash"]))


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(RUNS, RUNS), min_size=1, max_size=6), min_size=1, max_size=6))
@settings(max_examples=12, deadline=None)
def test_no_path_is_broken_wherever_budgets_fail(
    window: Page, tmp_path_factory: pytest.TempPathFactory, panels: list[Rows]
) -> None:
    assert_paths_whole(window, tmp_path_factory.getbasetemp() / "page.html", panels)


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
