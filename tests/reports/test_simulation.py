"""A run under a budget as it is shown: sentences, text, page, figure, files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans import in_order
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulation, Simulator
from tensortide.replays.remat.smallest import smallest_budget
from tensortide.replays.remat.telemetry import telemetry
from tensortide.reports import report
from tensortide.reports.html import render_html
from tensortide.reports.simulation import SimulationView, view, view_of_plan, with_simulation
from tensortide.reports.simulation.figure import simulation_figure
from tensortide.reports.simulation.sheets import sheets
from tensortide.reports.simulation.terminal import render_simulation
from tensortide.reports.simulation.words import budget_text
from tensortide.units import format_bytes, parse_bytes
from tests.reports import graphs
from tests.reports.conftest import Open
from tests.reports.graphs import empty, tower

if TYPE_CHECKING:
    pass

LAYERS = 12


def deep(hostile: str = "") -> Graph:
    """A tower in which activations, not weights, take most of the memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "BATCH", 512)
        return tower(LAYERS, hostile=hostile)


def simulator_of(graph: Graph) -> Simulator:
    return Simulator(recorded(graph, [1000 * (1 + i % 4) for i in range(len(graph))], "made up"))


def play(simulator: Simulator, ratio: float, limit: float | None = None) -> Simulation:
    budget = int(simulator.baseline_bytes * ratio)
    return simulator.run("dtr-eq", budget, overhead_limit=limit, compiled=False)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return simulator_of(deep())


@pytest.fixture(scope="module")
def fits(simulator: Simulator) -> SimulationView:
    run = play(simulator, 0.6)
    return view(simulator, run, telemetry(simulator, run))


@pytest.fixture(scope="module")
def fails(simulator: Simulator) -> SimulationView:
    run = play(simulator, 0.3)
    return view(simulator, run, telemetry(simulator, run), smallest=smallest_budget(simulator, "dtr-eq"))


def text_of(shown: SimulationView, width: int = 100, top: int = 10, encoding: str = "utf-8") -> str:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding=encoding)
    render_simulation(shown, Console(file=out, width=width, no_color=True, highlight=False), top=top)
    out.flush()
    return data.getvalue().decode(encoding)


# Figures


def test_rows_add_up(fits: SimulationView, simulator: Simulator) -> None:
    assert fits.status == "ok"
    assert fits.recomputed > 0
    for rows in (fits.modules, fits.kinds):
        assert sum(row.ns for row in rows) == fits.remat_ns == fits.clock_ns - fits.model_ns
        assert sum(row.count for row in rows) == fits.recomputed == sum(fits.curves.again)
        assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert max(fits.curves.after_bytes) == fits.peak_bytes <= (fits.budget_bytes or 0)
    assert max(fits.curves.before_bytes) == fits.baseline_bytes == simulator.baseline_bytes
    assert len({len(column) for column in (msgspec.structs.astuple(fits.curves))}) == 1


def test_before_is_the_step_at_the_op_that_comes_next(fits: SimulationView) -> None:
    resident = report(deep()).ops.resident_bytes
    expected = [resident[op] for op, again in zip(fits.curves.op, fits.curves.again, strict=True) if not again]
    found = [b for b, again in zip(fits.curves.before_bytes, fits.curves.again, strict=True) if not again]
    assert found == expected == list(resident)


def test_what_could_not_be_evicted_adds_up(fails: SimulationView) -> None:
    assert fails.status == "oom"
    assert fails.stopped is not None
    held = sum(row.pinned_bytes + row.locked_bytes for row in fails.stopped.held)
    assert held + fails.stopped.asked_bytes > (fails.budget_bytes or 0)
    parameters = next(row for row in fails.stopped.held if row.role == "parameter")
    assert (parameters.storages, parameters.pinned_bytes) == (LAYERS, LAYERS * 64 * 64 * 4)


def test_a_plan_is_shown_like_the_run_it_came_from(simulator: Simulator, fits: SimulationView) -> None:
    shown = view_of_plan(simulator, play(simulator, 0.6).plan(), "plan.json", budget_bytes=fits.budget_bytes)
    assert (shown.status, shown.counters) == ("ok", None)
    assert shown.curves.after_bytes == fits.curves.after_bytes
    assert shown.curves.start_ns == fits.curves.start_ns
    assert (shown.clock_ns, shown.peak_bytes, shown.modules) == (fits.clock_ns, fits.peak_bytes, fits.modules)
    assert sum(row.remats for row in shown.evicted) == sum(row.remats for row in fits.evicted) > 0
    over = view_of_plan(simulator, in_order(deep(), range(len(deep())), "cpu"), "p", budget_bytes=1000)
    assert over.status == "over"
    assert over.verdict.startswith("The plan does not fit 1000 B")


def test_a_plan_of_another_step_is_an_error(simulator: Simulator) -> None:
    with pytest.raises(PlanError, match="another graph"):
        view_of_plan(simulator, in_order(tower(2), range(len(tower(2))), "cpu"), "p", budget_bytes=None)


def test_a_step_without_ops() -> None:
    simulator = simulator_of(empty())
    run = simulator.run("dtr-eq", 10, compiled=False)
    shown = view(simulator, run, telemetry(simulator, run))
    assert "Nothing was executed." in text_of(shown)
    assert render_html(with_simulation(report(empty()), shown))


# Words


def test_a_verdict_says_what_it_costs(fits: SimulationView) -> None:
    percent = 100 * (fits.overhead - 1)
    assert fits.verdict.startswith(f"Fits {budget_text(fits.budget_bytes or 0)}: +{percent:.1f} % time, peak ")


def test_a_verdict_says_what_did_not_fit_and_what_would(fails: SimulationView) -> None:
    assert fails.verdict.startswith(f"Does not fit {budget_text(fails.budget_bytes or 0)}: op ")
    assert "(train.py:1" in fails.verdict
    assert "that cannot be evicted" in fails.verdict
    assert fails.smallest is not None
    budget = fails.advice[0].split("--budget ")[1].rstrip(").")
    assert parse_bytes(budget) == fails.smallest.budget_bytes
    assert f"dtr-eq fits from {budget_text(fails.smallest.budget_bytes)} on" in fails.advice[0]


def test_a_run_over_the_limit_says_so(simulator: Simulator) -> None:
    run = play(simulator, 0.6, limit=1.001)
    shown = view(simulator, run, telemetry(simulator, run))
    assert shown.status == "thrash"
    assert shown.verdict.startswith("Given up at ")
    assert "(--limit 1.001)" in shown.verdict


def test_a_budget_that_no_policy_can_keep(simulator: Simulator) -> None:
    run = simulator.run("dtr-eq", simulator.baseline_bytes // 20, compiled=False)
    shown = view(simulator, run, telemetry(simulator, run))
    assert "what exists before the step takes more by itself" in shown.verdict
    assert any(text.startswith("No policy runs it in less than ") for text in shown.advice)


def test_nothing_to_do(simulator: Simulator) -> None:
    run = play(simulator, 1.5)
    verdict = view(simulator, run, telemetry(simulator, run)).verdict
    assert verdict.endswith(f"as it is: the step's peak is {format_bytes(simulator.baseline_bytes)}.")


@pytest.mark.parametrize("nbytes", [8 << 30, 3412 << 20, 24 * 10**9, 5 << 10, 512])
def test_a_budget_is_written_so_that_it_can_be_typed(nbytes: int) -> None:
    assert parse_bytes(budget_text(nbytes)) == nbytes


# Text


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
@pytest.mark.parametrize("name", ["fits", "fails"])
def test_text_keeps_to_the_width(request: pytest.FixtureRequest, name: str, width: int) -> None:
    text = text_of(request.getfixturevalue(name), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert all(line == line.rstrip() for line in text.splitlines())


def test_text_in_ascii(fits: SimulationView) -> None:
    text = text_of(fits, encoding="ascii")
    assert text.isascii()
    assert "# after   . before   - budget   ^ computed again" in text


def test_text_has_the_lists_at_the_length_asked_for(fits: SimulationView) -> None:
    assert "Computed again, by module" in text_of(fits)
    assert "layers.*" in text_of(fits)
    assert "1 more" in text_of(fits, top=1)
    assert "Computed again, by" not in text_of(fits, top=0)


def test_the_curve_shows_before_after_and_the_budget(fits: SimulationView) -> None:
    lines = text_of(fits).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Memory over the step"))
    curve = lines[start + 1 : start + 11]
    assert "░" in curve[0]
    assert "─" in next(line for line in curve if budget_text(fits.budget_bytes or 0)[:3] in line)
    assert all("█" in line for line in curve[6:])


def test_no_name_paints_the_terminal() -> None:
    simulator = simulator_of(deep(hostile="\x1b[31m"))
    run = play(simulator, 0.6)
    shown = view(simulator, run, telemetry(simulator, run))
    text = text_of(msgspec.structs.replace(shown, policy="\x1b[2J"))
    assert "\x1b" not in text


# Files


def test_telemetry_files_have_a_row_for_everything(simulator: Simulator) -> None:
    run = play(simulator, 0.6)
    told = telemetry(simulator, run)
    tables = {name: list(csv.DictReader(io.StringIO(text))) for name, text in sheets(told).items()}
    assert {name: len(rows) for name, rows in tables.items()} == {
        "tensors.csv": len(told.tensors),
        "storages.csv": len(told.storages),
        "ops.csv": len(told.ops),
        "timeline.csv": len(told.moments),
    }
    assert max(int(row["total_bytes"]) for row in tables["timeline.csv"]) == run.peak_bytes
    assert sum(row["kind"] == "recompute" for row in tables["timeline.csv"]) == run.recomputations
    assert [int(row["event"]) for row in tables["timeline.csv"]] == list(range(len(told.moments)))
    storage = next(row for row in tables["storages.csv"] if row["remats"] == "1" and row["death"])
    assert tables["timeline.csv"][int(storage["birth"])]["kind"] == "run"
    assert tables["timeline.csv"][int(storage["death"])]["kind"] in ("evict", "banish")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_figure(fits: SimulationView, fails: SimulationView, tmp_path: Path, suffix: str) -> None:
    for shown in (fits, fails):
        simulation_figure(shown, tmp_path / f"memory.{suffix}")
        assert (tmp_path / f"memory.{suffix}").stat().st_size > 5_000


def test_json_has_the_curve_thinned(fits: SimulationView) -> None:
    thin = fits.curves.thinned(10)
    assert len(thin.op) == len(thin.before_bytes) == 10
    assert max(thin.after_bytes) == fits.peak_bytes
    assert json.loads(msgspec.json.encode(fits))["verdict"] == fits.verdict


# Page


@pytest.fixture
def open_page(open_html: Open) -> Open:
    """A function that opens the page of a view."""
    return lambda shown, width=1280: open_html(render_html(with_simulation(report(deep()), shown)), width)


def test_the_page_has_the_panes(open_page: Open, fits: SimulationView) -> None:
    page = open_page(fits)
    text = page.inner_text("#simulation")
    assert fits.verdict in text
    assert page.is_visible("nav >> text=Budget")
    assert page.locator("#simulation .chart path.before").count() == 1
    assert page.locator("#simulation .chart line.budget").count() == 1
    shades = page.locator("#simulation .chart rect.again")
    assert 0 < shades.count() <= fits.recomputed
    assert f"{fits.recomputed} ops" in text.replace("\n", " ")
    rows = page.locator("#simulation .pair > div").nth(0).locator("tbody tr")
    assert rows.count() == min(12, len(fits.modules))
    assert rows.first.inner_text().startswith(fits.modules[0].name)
    assert page.locator("#memory .chart path.before").count() == 0


def test_the_chart_tells_of_any_moment_by_op_and_by_time(open_page: Open, fits: SimulationView) -> None:
    page = open_page(fits)
    first = fits.curves.again.index(1)
    plot = page.locator("#simulation .chart svg")
    plot.focus()
    plot.press("Home")
    for _ in range(first):
        plot.press("ArrowRight")
    tip = page.inner_text("#tip")
    assert tip.startswith(f"op {fits.curves.op[first]} ")
    assert f"executed {first} · computed again" in tip
    wide = page.locator("#simulation .chart rect.again").first.get_attribute("width")
    page.click("#simulation [data-key=time]")
    assert "ms" in page.inner_text("#simulation .chart") or "µs" in page.inner_text("#simulation .chart")
    assert page.locator("#simulation .chart rect.again").first.get_attribute("width") != wide
    plot.press("Home")
    assert page.inner_text("#tip").startswith("op 0 ")


def test_the_page_of_a_run_that_was_given_up(open_page: Open, fails: SimulationView) -> None:
    page = open_page(fails)
    text = page.inner_text("#simulation")
    assert fails.verdict in text
    assert all(line in text for line in fails.advice)
    assert "What could not be evicted" in text


@pytest.mark.parametrize("width", [420, 800, 1600])
def test_the_page_fits_any_width(open_page: Open, fits: SimulationView, width: int) -> None:
    page = open_page(fits, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_report_without_a_run_has_no_pane(open_html: Open) -> None:
    page = open_html(render_html(report(tower())))
    assert not page.is_visible("#simulation")
    assert not page.is_visible("nav >> text=Budget")
