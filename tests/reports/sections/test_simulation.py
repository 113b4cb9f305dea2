"""The section of a run under a budget: sentences, text, page, figure, telemetry."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans import in_order
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat import Simulation, Simulator
from tensortide.replays.remat.simulator import smallest_budget
from tensortide.replays.remat.telemetry import telemetry
from tensortide.reports.blocks import Document, Section
from tensortide.reports.budgeted import advice, budget_text, verdict
from tensortide.reports.pictures import Curve
from tensortide.reports.render.csv import render_csv
from tensortide.reports.render.figure import render_figure
from tensortide.reports.render.html import render_html
from tensortide.reports.render.json import render_json
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.sections import Step, sections_of
from tensortide.reports.sections.simulation import document, section, telemetry_section
from tensortide.studies.remat.budgeted import Budgeted, of_plan, of_policy
from tensortide.timelines import timeline
from tensortide.units import format_bytes, parse_bytes
from tests.marks import some_slow
from tests.reports import graphs
from tests.reports.conftest import Open
from tests.reports.graphs import empty, tower

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
def fits(simulator: Simulator) -> Budgeted:
    run = play(simulator, 0.6)
    return of_policy(simulator, run)


@pytest.fixture(scope="module")
def fails(simulator: Simulator) -> Budgeted:
    run = play(simulator, 0.3)
    return of_policy(simulator, run, smallest=smallest_budget(simulator, "dtr-eq"))


def text_of(shown: Budgeted, width: int = 100, top: int = 10, encoding: str = "utf-8") -> str:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding=encoding)
    render_terminal(document(shown, top=top), Console(file=out, width=width, no_color=True, highlight=False))
    out.flush()
    return data.getvalue().decode(encoding)


def total(shown: Section, table: str, column: str) -> float:
    values = shown.table(table)[column]
    return sum(value for value in values if isinstance(value, int | float))


def curve_of(shown: Section) -> Curve:
    curve = shown["memory"]
    assert isinstance(curve, Curve)
    return curve


# Figures


def test_rows_add_up(fits: Budgeted, simulator: Simulator) -> None:
    shown = section(fits)
    assert shown.fact("status") == "ok"
    assert shown.fact("recomputed") == len(fits.recomputed) > 0
    for table in ("modules", "kinds"):
        assert total(shown, table, "time_ns") == shown.fact("remat_ns") == fits.clock_ns - fits.model_ns
        assert total(shown, table, "runs") == shown.fact("recomputed") == total(shown, "step", "again")
        assert total(shown, table, "share") == pytest.approx(1.0)
    curve = curve_of(shown)
    assert max(curve.totals()) == shown.fact("peak_bytes") == fits.peak_bytes <= (fits.budget_bytes or 0)
    assert max(curve.lines[0].values) == shown.fact("baseline_bytes") == simulator.baseline_bytes
    assert sum(shade.end - shade.start for shade in curve.shades) == len(fits.recomputed)
    assert [band.label for band in curve.bands] == ["forward", "backward", "optimizer"]


def test_before_is_the_step_at_the_op_that_comes_next(fits: Budgeted) -> None:
    resident = timeline(deep()).resident.tolist()
    again = fits.line.is_recompute.tolist()
    found = [nbytes for nbytes, flag in zip(fits.before_bytes, again, strict=True) if not flag]
    assert found == [resident[op] for op, flag in zip(fits.line.run_op, again, strict=True) if not flag] == resident


def test_what_could_not_be_evicted_adds_up(fails: Budgeted) -> None:
    shown = section(fails)
    assert shown.fact("status") == "oom"
    held, asked = shown.table("held"), shown.fact("stop_asked_bytes")
    assert isinstance(asked, int)
    assert total(shown, "held", "size_bytes") + asked > (fails.budget_bytes or 0)
    row = held["role"].index("parameter")
    assert (held["storages"][row], held["pinned_bytes"][row]) == (LAYERS, LAYERS * 64 * 64 * 4)


def test_a_plan_is_shown_like_the_run_it_came_from(simulator: Simulator, fits: Budgeted) -> None:
    run = of_plan(simulator, play(simulator, 0.6).plan(), "plan.json", budget_bytes=fits.budget_bytes)
    assert (run.outcome, run.telemetry, run.rules) == ("ok", None, "")
    shown, expected = section(run), section(fits)
    assert curve_of(shown).totals() == curve_of(expected).totals()
    assert curve_of(shown).x == curve_of(expected).x
    assert [shown.fact(key) for key in ("clock_ns", "peak_bytes")] == [
        expected.fact(key) for key in ("clock_ns", "peak_bytes")
    ]
    assert shown.table("modules") == expected.table("modules")
    assert total(shown, "evicted", "remats") == total(expected, "evicted", "remats") > 0
    over = of_plan(simulator, in_order(deep(), range(len(deep())), "cpu"), "p", budget_bytes=1000)
    assert over.outcome == "over"
    assert verdict(over).startswith("The plan does not fit 1000 B")


def test_a_plan_of_another_step_is_an_error(simulator: Simulator) -> None:
    with pytest.raises(PlanError, match="another graph"):
        of_plan(simulator, in_order(tower(2), range(len(tower(2))), "cpu"), "p", budget_bytes=None)


def test_a_step_without_ops() -> None:
    simulator = simulator_of(empty())
    run = simulator.run("dtr-eq", 10, compiled=False)
    shown = of_policy(simulator, run)
    assert "Nothing was executed." in text_of(shown)
    assert render_html(document(shown))
    assert render_json(document(shown))


# Words


def test_a_verdict_says_what_it_costs(fits: Budgeted) -> None:
    percent = 100 * (fits.overhead - 1)
    assert verdict(fits).startswith(f"Fits {budget_text(fits.budget_bytes or 0)}: +{percent:.1f} % time, peak ")


def test_a_verdict_says_what_did_not_fit_and_what_would(fails: Budgeted) -> None:
    assert verdict(fails).startswith(f"Does not fit {budget_text(fails.budget_bytes or 0)}: op ")
    assert "(train.py:1" in verdict(fails)
    assert "that cannot be evicted" in verdict(fails)
    assert fails.smallest is not None
    first = next(advice(fails))
    budget = first.split("--budget ")[1].rstrip(").")
    assert parse_bytes(budget) == fails.smallest.budget_bytes
    assert f"dtr-eq fits from {budget_text(fails.smallest.budget_bytes)} on" in first


def test_a_run_over_the_limit_says_so(simulator: Simulator) -> None:
    run = play(simulator, 0.6, limit=1.001)
    shown = of_policy(simulator, run)
    assert shown.outcome == "thrash"
    assert verdict(shown).startswith("Given up at ")
    assert "(--limit 1.001)" in verdict(shown)


def test_a_budget_that_no_policy_can_keep(simulator: Simulator) -> None:
    run = simulator.run("dtr-eq", simulator.baseline_bytes // 20, compiled=False)
    shown = of_policy(simulator, run)
    assert "what exists before the step takes more by itself" in verdict(shown)
    assert any(text.startswith("No policy runs it in less than ") for text in advice(shown))


def test_nothing_to_do(simulator: Simulator) -> None:
    run = play(simulator, 1.5)
    shown = of_policy(simulator, run)
    assert verdict(shown).endswith(f"as it is: the step's peak is {format_bytes(simulator.baseline_bytes)}.")


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


def test_text_in_ascii(fits: Budgeted) -> None:
    text = text_of(fits, encoding="ascii")
    assert text.isascii()
    assert re.search(r"# with the budget   : without the budget   - budget, .* MiB   \^ recomputed", text)


def test_text_has_the_lists_at_the_length_asked_for(fits: Budgeted) -> None:
    assert "Recomputed, by module" in text_of(fits)
    assert "layers.[" in text_of(fits)
    assert "1 more" in text_of(fits, top=1)
    assert "Recomputed, by" not in text_of(fits, top=0)


def test_the_curve_shows_before_after_and_the_budget(fits: Budgeted) -> None:
    lines = text_of(fits).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Memory over the step"))
    curve = lines[start + 1 : start + 11]
    assert "·" in curve[0]
    assert "─" in next(line for line in curve if budget_text(fits.budget_bytes or 0)[:3] in line)
    assert all("█" in line for line in curve[6:])


def test_no_name_paints_the_terminal() -> None:
    simulator = simulator_of(deep(hostile="\x1b[31m"))
    run = play(simulator, 0.6)
    shown = of_policy(simulator, run, name="\x1b[2J")
    assert "\x1b" not in text_of(shown)


# Files


def test_telemetry_files_have_a_row_for_everything(simulator: Simulator) -> None:
    run = play(simulator, 0.6)
    told = telemetry(simulator, run)
    whole = Document(title="run", sections=(telemetry_section(told),))
    names = ("tensors", "storages", "ops", "timeline")
    tables = {name: list(csv.DictReader(io.StringIO(render_csv(whole, name)))) for name in names}
    counts = [len(next(iter(t.values()))) for t in (told.tensors, told.storages, told.ops, told.moments)]
    assert [len(tables[name]) for name in names] == counts
    assert max(int(row["total_bytes"]) for row in tables["timeline"]) == run.peak_bytes
    assert sum(row["kind"] == "recompute" for row in tables["timeline"]) == run.recomputations
    assert [int(row["event"]) for row in tables["timeline"]] == list(range(counts[-1]))
    storage = next(row for row in tables["storages"] if row["remats"] == "1" and row["death"])
    assert tables["timeline"][int(storage["birth"])]["kind"] == "run"
    assert tables["timeline"][int(storage["death"])]["kind"] in ("evict", "banish")


def test_figure(fits: Budgeted, fails: Budgeted, tmp_path: Path) -> None:
    for run, suffix in ((fits, "png"), (fails, "svg")):
        file = render_figure(document(run), tmp_path / f"memory.{suffix}", ["memory"])
        assert file.stat().st_size > 5_000


def test_json_has_the_verdict_and_the_whole_curve(fits: Budgeted) -> None:
    found = json.loads(render_json(document(fits)))["sections"]["simulation"]
    assert found["notes"][0] == {"kind": "verdict", "text": verdict(fits)}
    assert max(map(sum, zip(*found["curves"]["memory"]["stack"].values(), strict=True))) == fits.peak_bytes
    assert len(found["curves"]["memory"]["ops"]) == len(fits.line.run_op)


def test_it_stands_in_a_document_with_other_sections(fits: Budgeted) -> None:
    whole = Document(title="step", sections=(section(fits), *sections_of(Step(deep()))))
    assert whole["simulation"].fact("peak_bytes") == fits.peak_bytes
    assert render_html(whole)


# Page


@pytest.fixture
def open_page(open_html: Open) -> Open:
    """A function that opens the page of a run."""
    return lambda shown, width=1280: open_html(render_html(document(shown)), width)


def test_the_page_has_the_panes(open_page: Open, fits: Budgeted) -> None:
    page = open_page(fits)
    text = page.inner_text("#simulation")
    assert verdict(fits) in text
    assert page.is_visible("nav >> text=Under a budget")
    assert page.locator("#simulation .chart path.line").count() == 1
    assert page.locator("#simulation .chart line.budget").count() == 1
    shades = page.locator("#simulation .chart rect.again")
    assert 0 < shades.count() <= len(fits.recomputed)
    assert f"{len(fits.recomputed)} ops" in text
    first = section(fits).table("modules")["module"][0]
    assert str(first) in page.inner_text('[id="simulation.modules"]')


def test_the_chart_names_any_moment_by_time_and_by_op(open_page: Open, fits: Budgeted) -> None:
    page = open_page(fits)
    first = fits.line.is_recompute.tolist().index(True)
    plot = page.locator("#simulation .chart svg")
    plot.focus()
    plot.press("Home")
    press = "(plot, times) => { while (times--) plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'})) }"
    plot.evaluate(press, first)
    tip = page.inner_text("#tip")
    assert tip.startswith(f"op {fits.line.run_op[first]} ")
    assert "recomputed" in tip
    assert "layers." in tip
    wide = page.locator("#simulation .chart rect.again").first.get_attribute("width")
    assert "ms" in page.inner_text("#simulation .chart") or "µs" in page.inner_text("#simulation .chart")
    page.click("#simulation [data-key=op]")
    assert page.locator("#simulation .chart rect.again").first.get_attribute("width") != wide
    plot.press("Home")
    assert page.inner_text("#tip").startswith("op 0 ")


def test_the_page_of_a_run_that_was_given_up(open_page: Open, fails: Budgeted) -> None:
    page = open_page(fails)
    text = page.inner_text("#simulation")
    assert verdict(fails) in text
    assert all(line in text for line in advice(fails))
    assert "What could not be evicted" in text


@pytest.mark.parametrize("width", some_slow([420, 1600], [1600]))
def test_the_page_fits_any_width(open_page: Open, fits: Budgeted, width: int) -> None:
    page = open_page(fits, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
